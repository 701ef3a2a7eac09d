package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/godat/godat/internal/perf/result"
	"github.com/godat/godat/internal/process"
)

// dapltest's name for the device, in a dat.conf of its own.
const daplName = "bench"

// dapltestServer starts dapltest's server with the line of dat.conf that names its library and the
// library's parameters, and returns the environment that its clients need.
func (b *bench) dapltestServer(library, parameters, port string) (env []string, stop func(), err error) {
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return nil, nil, err
	}
	conf := filepath.Join(dir, "dat.conf")
	text := fmt.Sprintf("%s u2.0 nonthreadsafe default %s dapl.2.0 %q \"\"\n", daplName, library, parameters)
	if err := os.WriteFile(conf, []byte(text), 0o644); err != nil {
		return nil, nil, err
	}
	env = []string{"DAT_OVERRIDE=" + conf}
	line := []string{"dapltest", "-T", "S", "-D", daplName, "-n", port}
	server, err := process.Start(guestTime, env, b.pin(serverEnd, line)...)
	if err != nil {
		return nil, nil, err
	}
	stop = func() { server.Stop(); os.RemoveAll(dir) }
	ready := func() bool { return strings.Contains(server.Stdout.String(), "Ready") }
	if err := server.Until(20*time.Second, ready); err != nil {
		stop()
		return nil, nil, err
	}
	return env, stop, nil
}

// daplofa is the C library's provider: its library, its parameters, and a port for the server.
func (b *bench) daplofa() (library, parameters, port string) {
	return "libdaplofa.so.2", b.address + " 0", "62000"
}

// dapltestLine is a client of dapltest's performance test, polled.
func (b *bench) dapltestLine(port, operations, depth, op string, size int) []string {
	return b.pin(clientEnd, []string{"dapltest", "-T", "P", "-D", daplName, "-s", b.address, "-n", port, "-m", "p",
		"-i", operations, "-p", depth, op, strconv.Itoa(size)})
}

// dapltestRun runs a client of dapltest's performance test.
func dapltestRun(env, line []string) (dapl, error) {
	p, err := process.Start(pairTime, env, line...)
	if err != nil {
		return dapl{}, err
	}
	out, err := p.Wait()
	if err != nil {
		return dapl{}, err
	}
	return dapltestRaw(out)
}

// againstDapltest compares with dapltest's performance test, which has RDMA write and read:
// operations per second with a pipeline, and the mean time of an operation, from post to
// completion, with one at a time.
func (b *bench) againstDapltest() (all []*comparison) {
	_, _, port := b.daplofa()
	for _, op := range []struct{ dapl, test string }{{"RW", result.Write}, {"RR", result.Read}} {
		deep := func(s size) string {
			if op.test == result.Read {
				return "16"
			}
			return strconv.Itoa(s.depth)
		}
		argv := func(s size) []string {
			return b.dapltestLine(port, b.operations(s.stream/4), deep(s), op.dapl, s.bytes)
		}
		dat := func(s size, depth, warmup string) []string {
			return b.datperf(result.Busy, "-t", op.test, "-m", "bw", "-l", strings.Join(layers, ","),
				"-s", strconv.Itoa(s.bytes), "-n", b.operations(s.stream/4), "--warmup", warmup, "--depth", depth,
				"--signal", "1", "--read-depth", "16",
				"--buffers", "1")
		}
		many := func(s size) []string { return dat(s, deep(s), b.operations(s.stream/8)) }
		// dapltest measures one at a time after as many with the pipeline, which warm it up.
		one := func(s size) []string { return dat(s, "1", b.operations(s.stream/4)) }
		table := func(unit, title string, line func(size) []string) *result.Table {
			return &result.Table{
				Title: title, Unit: unit, Series: append([]string{"dapltest"}, layers...),
				How: []string{how(argv, ""), how(line, "")},
			}
		}
		rate := table("ops/s", "Operations per second of "+op.test+", polled, beside dapltest", many)
		single := table("ns", "One "+op.test+" at a time, polled, beside dapltest: mean from post to completion", one)
		c := &comparison{tables: []*result.Table{rate, single}, sizes: sizes}
		c.round = func(s size) error {
			line := argv(s)
			d, err := dapltestRun(b.dapl, line)
			if err != nil {
				rate.Fail(s.name, "dapltest", err)
			} else {
				rate.Add(s.name, "dapltest", show(line), d.Ops)
				single.Add(s.name, "dapltest", show(line), d.Latency)
			}
			b.both(rate, s.name, many(s), func(layer, command string, total *result.Stream) {
				rate.Add(s.name, layer, command, total.OpsS)
			})
			b.both(single, s.name, one(s), func(layer, command string, total *result.Stream) {
				single.Add(s.name, layer, command, 1e9/total.OpsS)
			})
			return nil
		}
		c.judge = func() {
			each(rate, ">", [2]float64{1, 1})
			each(single, "<", [2]float64{1, 1})
		}
		all = append(all, c)
	}
	return all
}
