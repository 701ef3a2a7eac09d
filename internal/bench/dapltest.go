package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/godat/godat/internal/perf/result"
)

// dapltest's name for the device, in a dat.conf of its own.
const daplName = "bench"

// dapltestServer starts dapltest's server, and gives the environment that its clients need.
func (b *bench) dapltestServer() (env []string, stop func(), err error) {
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return nil, nil, err
	}
	conf := filepath.Join(dir, "dat.conf")
	text := fmt.Sprintf("%s u2.0 nonthreadsafe default libdaplofa.so.2 dapl.2.0 \"%s 0\" \"\"\n", daplName, b.address)
	if err := os.WriteFile(conf, []byte(text), 0o644); err != nil {
		return nil, nil, err
	}
	env = []string{"DAT_OVERRIDE=" + conf}
	server, err := start(vmTime, env, b.pin(serverEnd, []string{"dapltest", "-T", "S", "-D", daplName})...)
	if err != nil {
		return nil, nil, err
	}
	stop = func() { server.stop(); os.RemoveAll(dir) }
	if err := server.until(20*time.Second, func() bool { return strings.Contains(server.out.String(), "Ready") }); err != nil {
		stop()
		return nil, nil, err
	}
	return env, stop, nil
}

// againstDapltest compares with dapltest's performance test, which has RDMA write and read: operations per second with a pipeline,
// and the mean time of an operation, from post to completion, with one at a time.
func (b *bench) againstDapltest() (all []*comparison) {
	for _, op := range []struct{ dapl, test string }{{"RW", result.Write}, {"RR", result.Read}} {
		argv := func(s size) []string {
			depth := s.depth
			if op.dapl == "RR" {
				depth = 16
			}
			return b.pin(clientEnd, []string{"dapltest", "-T", "P", "-D", daplName, "-s", b.address, "-m", "p", "-i", b.operations(s.stream / 2), "-p", strconv.Itoa(depth),
				op.dapl, strconv.Itoa(s.bytes)})
		}
		// dapltest measures one at a time after as many with the pipeline, which warm it up.
		dat := func(s size, depth int) []string {
			warmup := "0"
			if depth == 1 {
				warmup = b.operations(s.stream / 2)
			}
			return b.datperf(result.Busy, "-t", op.test, "-m", "bw", "-l", strings.Join(layers, ","), "-s", strconv.Itoa(s.bytes),
				"-n", b.operations(s.stream/2), "--warmup", warmup, "--depth", strconv.Itoa(depth), "--signal", "1", "--read-depth", "16", "--buffers", "1")
		}
		deep := func(s size) int {
			if op.dapl == "RR" {
				return 16
			}
			return s.depth
		}
		series := append([]string{"dapltest"}, layers...)
		rate := &Table{Title: "Operations per second of " + op.test + ", polled, beside dapltest", Unit: "ops/s", Series: series}
		rate.How = []string{how(argv, ""), how(func(s size) []string { return dat(s, deep(s)) }, "")}
		single := &Table{
			Title: "One " + op.test + " at a time, polled, beside dapltest: mean from post to completion", Unit: "ns", Series: series,
			How: []string{rate.How[0], how(func(s size) []string { return dat(s, 1) }, "")},
		}
		c := &comparison{table: rate, sizes: sizes}
		c.round = func(s size) error {
			line := argv(s)
			p, err := start(pairTime, b.dapl, line...)
			var d dapl
			if err == nil {
				var out string
				if out, err = p.wait(); err == nil {
					d, err = dapltestRaw(out)
				}
			}
			if err != nil {
				rate.fail(s.name, "dapltest", err)
			} else {
				rate.add(s.name, "dapltest", show(line), d.Ops)
				single.add(s.name, "dapltest", show(line), d.Latency)
			}
			perSecond := func(r *result.Run) float64 { total := r.Total(); return total.OpsS }
			b.figure(rate, s.name, dat(s, deep(s)), perSecond)
			b.figure(single, s.name, dat(s, 1), func(r *result.Run) float64 { return 1e9 / perSecond(r) })
			return nil
		}
		all = append(all, c, &comparison{table: single})
	}
	return all
}
