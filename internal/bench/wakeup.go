package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/godat/godat/internal/perf/result"
)

// wakeup measures the same ping-pong polled and waiting: the difference is what a wake-up costs.
func (b *bench) wakeup(p *Part) error {
	const polled, event, adaptive, cost = "polled", "event", "adaptive (polls for 50 us, then waits)", "event, over polled"
	n := b.operations(3000)
	c := func(mode string) []string { return []string{filepath.Join(b.bin, "pingpong"), mode, "2", n} }
	dat := func(mode string) []string {
		return b.datperf(mode, "-t", result.Send, "-m", "lat", "-l", strings.Join(layers, ","), "-s", "2", "-n", n)
	}
	t := &Table{
		Title: "Ping-pong of sends of 2 bytes, half the round trip: median", Unit: "ns", Series: append([]string{"C"}, layers...),
		How:  []string{show(c("poll|event")) + " " + b.address, show(dat("busy|event|adaptive"))},
		Note: "The C program (ci/bench/pingpong.c) does what datperf's loop does: one completion queue, one request in 16 signalled, receives posted again after the answer; it waits in ibv_get_cq_event.",
	}
	spin := &Table{
		Title: "Round trip of two goroutines that wait, without and with spinning before they park", Unit: "ns", Series: []string{"spin=0s", "spin=50µs"},
		How:  []string{"GODAT_TEST_DEVICE=" + b.device + " go test -run xxx -bench WaitPingPong ./udat"},
		Note: "Sends of 8 bytes, both ends in one process; the option is udat.WithSpin.",
	}
	p.Tables = append(p.Tables, t, spin)
	b.plain = false // the C program sends inline
	stop, err := b.datperfServers()
	if err != nil {
		return err
	}
	defer stop()
	figure := func(r *result.Run) float64 { total := r.Total(); return total.Latency.At(50) }
	for range b.rounds {
		for _, m := range []struct{ row, c, dat string }{{polled, "poll", "busy"}, {event, "event", "event"}, {adaptive, "", "adaptive"}} {
			if m.c != "" {
				if v, err := b.pingpong(m.dat, c(m.c)); err != nil {
					t.fail(m.row, "C", err)
				} else {
					t.add(m.row, "C", show(b.polling(clientEnd, m.dat, c(m.c)))+" "+b.address, v)
				}
			}
			b.figure(t, m.row, dat(m.dat), figure)
		}
	}
	if err := b.waitBenchmarks(spin); err != nil {
		return err
	}
	for _, s := range t.Series {
		with, without := t.sample(event, s), t.sample(polled, s)
		if with != nil && without != nil {
			t.add(cost, s, "", with.Median-without.Median)
		}
	}
	return nil
}

func (b *bench) pingpong(poll string, argv []string) (float64, error) {
	server, err := start(pairTime, nil, b.polling(serverEnd, poll, argv)...)
	if err != nil {
		return 0, err
	}
	defer server.stop()
	if err := server.until(20*time.Second, func() bool { return strings.Contains(server.err.String(), "listening") }); err != nil {
		return 0, err
	}
	out, err := b.run(pairTime, append(slices.Clip(b.polling(clientEnd, poll, argv)), b.address)...)
	if err != nil {
		return 0, err
	}
	m, err := keyValues(out, "p50_ns")
	if err != nil {
		return 0, err
	}
	_, err = server.wait()
	return m["p50_ns"], err
}

// waitBenchmarks runs the benchmark of package udat that waits with and without spinning.
func (b *bench) waitBenchmarks(t *Table) error {
	os.Setenv("GODAT_TEST_DEVICE", b.device)
	defer os.Unsetenv("GODAT_TEST_DEVICE")
	for range b.rounds {
		text, err := b.runIn("udat", 2*pairTime, filepath.Join(b.bin, "udat.test"), "-test.run=xxx", "-test.bench=WaitPingPong", "-test.benchtime=0.5s")
		if err != nil {
			return err
		}
		all, err := parseGoBench(text)
		if err != nil {
			return err
		}
		for _, m := range all {
			f := strings.Split(m.Name, "/")
			if len(f) != 3 || !slices.Contains(t.Series, f[2]) {
				return fmt.Errorf("there is no place for the benchmark %s", m.Name)
			}
			t.add(f[1], f[2], t.How[0], m.NsOp)
		}
	}
	return nil
}
