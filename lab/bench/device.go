package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/godat/godat/internal/perf/result"
	"github.com/godat/godat/lab/process"
)

const (
	rstream     = "rstream"
	rstreamPort = "7471"
	connections = 256
)

// onDevice compares godat with rsockets and with the kernel's connection manager, on soft-RoCE or
// on a NIC. The loop device supports neither of them.
func (b *bench) onDevice(s *section) error {
	z := sizes[2]
	trip := s.table("Request and answer", "Round trip, two processes that wait for events. rstream -T b polls for 10 us "+
		"before it waits, and prints the mean.", "ns", rstream, rdmanet)
	x := &setting{row: trip.row("64 B", 64, figure{rdmanet, rstream, true, 1})}
	x.series = []series{{rstream, func() (float64, string, error) { return b.rstream(ping, 64) }},
		b.streamPing(rdmanet, "rdmanet", b.device, 64, 1)}
	rate := s.table("Writes in one direction", "Buffers of 512 KiB.", "bytes/s", rstream, rdmanet)
	y := &setting{row: rate.row(z.name, z.bytes, figure{rdmanet, rstream, false, 1})}
	y.series = []series{{rstream, func() (float64, string, error) { return b.rstream(write, z.bytes) }},
		b.streamRate(rdmanet, "rdmanet", b.device, z.bytes, float64(z.bytes))}
	connects := s.table("Connections per second", "udat: from creating the first endpoint to the last connection "+
		"established, both ends in one process. cmtime: its steps from creating the identifier to the connection, two "+
		"processes.", "1/s", "cmtime", result.UDAT)
	n := strconv.Itoa(connections)
	c := &setting{row: connects.row(n+" connections", 0, figure{result.UDAT, "cmtime", false, 0.9})}
	c.series = []series{{"cmtime", func() (float64, string, error) {
		argv := []string{"cmtime", "-s", b.address, "-b", b.address, "-c", n}
		v, err := b.cmtime(argv)
		return connections / v.Seconds(), show(argv), err
	}}, {result.UDAT, func() (float64, string, error) {
		v, err := connectMany(b.device, connections)
		return connections / v.Seconds(), "connectMany of lab/bench", err
	}}}
	s.Ended = b.rounds([]*setting{x, y, c})
	return nil
}

// pinStream returns a command that binds both ends to one processor in a User Mode Linux. There a
// system call takes 60 us instead of 5 if the previous one ran on another processor, and Go's
// threads move between processors.
func (b *bench) pinStream(argv []string) []string {
	if b.machine == uml {
		return b.pin(clientEnd, argv)
	}
	return argv
}

// rstream runs both ends of rstream, a program of rdmacm-utils. It returns the round trip in ns, or
// the bytes per second.
func (b *bench) rstream(loop string, size int) (v float64, line string, err error) {
	transfers, iterations := "1", b.operations(1000)
	if loop == write {
		transfers, iterations = b.operations(800), "1"
	}
	args := []string{"-p", rstreamPort, "-T", "b", "-S", strconv.Itoa(size), "-C", transfers, "-I", iterations}
	server, err := process.Start(pairTime, nil, b.pinStream(append([]string{rstream, "-b", b.address}, args...))...)
	if err != nil {
		return 0, "", err
	}
	defer server.Stop()
	argv := b.pinStream(append([]string{rstream, "-s", b.address}, args...))
	var out string
	for range 5 { // the server does not say when it listens
		time.Sleep(200 * time.Millisecond)
		if out, err = b.run(pairTime, argv...); err == nil && strings.Contains(out, "custom") {
			break
		}
	}
	if err != nil {
		return 0, "", err
	}
	each, err := parseRstream(out)
	if err != nil {
		return 0, "", err
	}
	if loop == ping {
		return 2 * each, show(argv), nil
	}
	return float64(size) * 1e9 / each, show(argv), nil
}

// parseRstream returns the time of one transfer in nanoseconds, from the last column of rstream's
// table.
func parseRstream(out string) (float64, error) {
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		if len(f) < 8 || f[0] != "custom" {
			continue
		}
		if us, err := strconv.ParseFloat(f[len(f)-1], 64); err == nil && us > 0 {
			return us * 1000, nil
		}
	}
	return 0, fmt.Errorf("rstream: no row of figures: %s", process.LastLines(out, 2))
}

// cmtime runs argv, a client of the program cmtime. It returns the time from the creation of the
// first rdma_cm_id until the last connection is established.
func (b *bench) cmtime(argv []string) (time.Duration, error) {
	server, err := process.Start(pairTime, nil, "cmtime", "-b", b.address)
	if err != nil {
		return 0, err
	}
	defer server.Stop()
	time.Sleep(time.Second) // the server does not say when it listens
	out, err := b.run(pairTime, argv...)
	if err != nil {
		return 0, err
	}
	steps, err := parseCmtime(out)
	if err != nil {
		return 0, err
	}
	ms := 0.0
	for _, s := range steps {
		switch s.Name {
		case "disconnect", "destroy":
		default:
			ms += s.Ms
		}
	}
	return time.Duration(ms * float64(time.Millisecond)), nil
}
