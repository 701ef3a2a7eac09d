package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/godat/godat/internal/perf/result"
	"github.com/godat/godat/lab/process"
)

const (
	onTCP     = "tcp:127.0.0.1" // a fabric that needs no RDMA device
	fabtests  = "fi_pingpong"
	withCRC   = "udat, CRC"
	rawPolled = "TCP, polled"
)

// tcp measures the fabric tcp between two processes of this host. It compares tcp with Go's net
// package, for the same bytes, and with libfabric's tcp provider.
func (b *bench) tcp(s *section) error {
	var all []*setting
	trip := s.table("Half of a round trip over TCP", "Sends, polled. TCP, polled: Go programs that read until something "+
		"is there. fi_pingpong -p tcp -e msg: the mean of a run; it polls. rdmanet calls Read and Write.", "ns",
		rawPolled, result.UDAT, fabtests, rdmanet)
	for _, z := range sizes {
		x := &setting{row: trip.row(z.name, z.bytes, figure{result.UDAT, fabtests, true, 1})}
		x.series = []series{b.streamPing(rawPolled, "tcp-polled", onTCP, z.bytes, 0.5),
			b.streamPing(result.UDAT, "udat-polled", onTCP, z.bytes, 0.5),
			{fabtests, func() (float64, string, error) { return b.pingpong(z) }}}
		if z.bytes == 64 {
			x.Figures = append(x.Figures, figure{result.UDAT, rawPolled, true, 1.3}, figure{rdmanet, fabtests, true, 1})
			x.series = append(x.series, b.streamPing(rdmanet, "rdmanet", onTCP, z.bytes, 0.5))
		}
		all = append(all, x)
	}
	rate := s.table("Streams over TCP", "udat: RDMA writes into the same memory, 32 in flight. TCP: Write, and Read into "+
		"256 KiB.", "bytes/s", overTCP, result.UDAT, withCRC)
	for _, z := range sizes[2:] {
		x := &setting{row: rate.row(z.name, z.bytes, figure{result.UDAT, overTCP, false, 0.8},
			figure{withCRC, overTCP, false, 0.6})}
		each := float64(z.bytes)
		x.series = []series{b.streamRate(overTCP, "tcp", onTCP, z.bytes, each),
			b.streamRate(result.UDAT, "udat", onTCP, z.bytes, each),
			b.streamRate(withCRC, "udat", onTCP, z.bytes, each, "-checksums")}
		all = append(all, x)
	}
	allocs := s.table("Allocations of an operation over TCP", "Both ends, in one process.", "allocations", result.UDAT)
	for _, loop := range []string{ping, write} {
		x := &setting{row: allocs.row(loop, 0)}
		x.series = []series{{result.UDAT, func() (float64, string, error) {
			return b.stream(b.streamLine(onTCP, "udat", loop, 64, "-ends", "goroutines"), "allocs")
		}}}
		all = append(all, x)
	}
	s.Ended = b.rounds(all)
	return nil
}

// pingpong returns half of the mean round trip of libfabric's program, in ns. Sometimes the
// program's two ends do not find each other, so pingpong tries up to three times.
func (b *bench) pingpong(z size) (v float64, line string, err error) {
	n := 5 * z.latency
	if b.quick {
		n /= 10
	}
	argv := []string{fabtests, "-p", "tcp", "-e", "msg", "-S", strconv.Itoa(z.bytes), "-I", strconv.Itoa(n)}
	client := append(slices.Clip(argv), "127.0.0.1")
	for range 3 {
		var out string
		if out, err = b.pingpongOnce(argv, client); err == nil {
			v, err = parsePingpong(out)
			break
		}
	}
	return v, show(client), err
}

func (b *bench) pingpongOnce(argv, client []string) (string, error) {
	server, err := process.Start(pairTime, nil, argv...)
	if err != nil {
		return "", err
	}
	defer server.Stop()
	if err := server.Until(pairTime, func() bool { return b.listening(pingpongPort) }); err != nil {
		return "", err
	}
	return b.run(pairTime, client...)
}

// pingpongPort is the port of fi_pingpong's control connection.
const pingpongPort = 47592

// parsePingpong returns the column usec/xfer, half of a round trip, in nanoseconds.
func parsePingpong(text string) (float64, error) {
	var heading []string
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) > 0 && f[0] == "bytes" {
			heading = f
			continue
		}
		if heading == nil || len(f) < len(heading) {
			continue
		}
		for i := range f { // the heading "total time" contains a blank; its column does not
			if heading[len(heading)-1-i] == "usec/xfer" {
				us, err := strconv.ParseFloat(f[len(f)-1-i], 64)
				if err == nil && us <= 0 {
					err = fmt.Errorf("fi_pingpong: %g us", us)
				}
				return us * 1000, err
			}
		}
	}
	return 0, fmt.Errorf("fi_pingpong: no figure usec/xfer: %s", process.LastLines(text, 2))
}
