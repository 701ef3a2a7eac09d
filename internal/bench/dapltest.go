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

// dapltestServer starts dapltest's server and sets the environment that its clients need.
func (b *bench) dapltestServer() (stop func(), err error) {
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return nil, err
	}
	conf := filepath.Join(dir, "dat.conf")
	text := fmt.Sprintf("%s u2.0 nonthreadsafe default libdaplofa.so.2 dapl.2.0 \"%s 0\" \"\"\n", daplName, b.address)
	if err := os.WriteFile(conf, []byte(text), 0o644); err != nil {
		return nil, err
	}
	b.dapl = []string{"DAT_OVERRIDE=" + conf}
	server, err := process.Start(guestTime, b.dapl, b.pin(serverEnd, []string{"dapltest", "-T", "S", "-D", daplName})...)
	if err != nil {
		return nil, err
	}
	stop = func() { server.Stop(); os.RemoveAll(dir) }
	ready := func() bool { return strings.Contains(server.Stdout.String(), "Ready") }
	if err := server.Until(20*time.Second, ready); err != nil {
		stop()
		return nil, err
	}
	return stop, nil
}

// againstDapltest compares with dapltest's performance test, which has RDMA write and read:
// operations per second with a pipeline, and the mean time of an operation, from post to
// completion, with one at a time.
func (b *bench) againstDapltest() (all []*comparison) {
	for _, op := range []struct{ dapl, test string }{{"RW", result.Write}, {"RR", result.Read}} {
		deep := func(s size) string {
			if op.test == result.Read {
				return "16"
			}
			return strconv.Itoa(s.depth)
		}
		argv := func(s size) []string {
			return b.pin(clientEnd, []string{
				"dapltest", "-T", "P", "-D", daplName, "-s", b.address, "-m", "p", "-i", b.operations(s.stream / 4), "-p", deep(s),
				op.dapl, strconv.Itoa(s.bytes),
			})
		}
		dat := func(s size, depth, warmup string) []string {
			return b.datperf(result.Busy, "-t", op.test, "-m", "bw", "-l", strings.Join(layers, ","),
				"-s", strconv.Itoa(s.bytes), "-n", b.operations(s.stream/4), "--warmup", warmup, "--depth", depth,
				"--signal", "1", "--read-depth", "16",
				"--buffers", "1")
		}
		many := func(s size) []string { return dat(s, deep(s), "0") }
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
			p, err := process.Start(pairTime, b.dapl, line...)
			var d dapl
			if err == nil {
				var out string
				if out, err = p.Wait(); err == nil {
					d, err = dapltestRaw(out)
				}
			}
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
