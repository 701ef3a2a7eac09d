package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/godat/godat/internal/perf/result"
)

// streamBuffer is the memory for each direction of a stream, in bytes. It is the same as in
// rstream.
const streamBuffer = "524288"

// The series of lab/bench/stream.
const (
	rdmanet  = "rdmanet"
	overTCP  = "TCP"
	udatRead = "udat-read"
)

// The loops of lab/bench/stream.
const (
	ping  = "ping"
	write = "write"
)

// streamLine returns the command that measures round trips or writes of a given size, over one kind
// of end.
func (b *bench) streamLine(device, kind, loop string, size int, flags ...string) []string {
	length := 250 * time.Millisecond
	if b.machine == uml && device != loop0 {
		length = time.Second // two processes on a software device sometimes wait for each other's processor
	}
	if b.quick {
		length /= 10
	}
	argv := []string{
		filepath.Join(b.bin, "stream"), "-device", device, "-size", strconv.Itoa(size), "-time", length.String(),
	}
	if loop == write {
		argv = append(argv, "-buffer", streamBuffer)
	}
	argv = append(append(argv, flags...), kind, loop)
	switch device {
	case loop0:
		argv = onLoop(b.bin, "", argv)
	case b.device:
		argv = b.pinStream(argv)
	}
	return argv
}

// stream runs a command that streamLine returned, and returns one of its figures.
func (b *bench) stream(argv []string, value string) (float64, string, error) {
	out, err := b.run(pairTime, argv...)
	var figures map[string]float64
	if err == nil {
		err = json.Unmarshal([]byte(out), &figures)
	}
	v, ok := figures[value]
	if err == nil && !ok {
		err = fmt.Errorf("no figure %s in %q", value, out)
	}
	return v, show(argv), err
}

// streamPing returns a series that measures a round trip and multiplies it by factor. If factor is
// 0.5, the series has the time of one direction.
func (b *bench) streamPing(name, kind, device string, size int, factor float64, flags ...string) series {
	return series{name, func() (float64, string, error) {
		v, line, err := b.stream(b.streamLine(device, kind, ping, size, flags...), "p50")
		return v * factor, line, err
	}}
}

// streamRate returns a series that measures writes per second and multiplies them by factor. If
// factor is the size of a write, the series has bytes per second.
func (b *bench) streamRate(name, kind, device string, size int, factor float64, flags ...string) series {
	return series{name, func() (float64, string, error) {
		v, line, err := b.stream(b.streamLine(device, kind, write, size, flags...), "ns")
		if err != nil {
			return 0, line, err
		}
		return factor * 1e9 / v, line, nil
	}}
}

// pair measures between two processes on the loop device. It compares the layers with perftest, and
// streams with TCP and udat.
func (b *bench) pair(s *section) error {
	on := *b
	on.device, on.peer, on.address, on.server = loop0, loop0, "127.0.0.1", nil
	on.cpus = processors(loop0)
	stop, err := on.datperfServers()
	if err != nil {
		return err
	}
	defer stop()
	latencies, rates := on.besidePerftest(s, rdmanet, overTCP, inC)
	for i, z := range sizes {
		x, y := latencies[i], rates[i]
		x.series = append(x.series, on.streamPing(rdmanet, "rdmanet", loop0, z.bytes, 0.5),
			on.streamPing(overTCP, "tcp", loop0, z.bytes, 0.5))
		y.series = append(y.series, on.streamRate(rdmanet, "rdmanet", loop0, z.bytes, 1),
			on.streamRate(overTCP, "tcp", loop0, z.bytes, 1))
		switch z.bytes {
		case 64:
			x.Figures = append(x.Figures, figure{rdmanet, overTCP, true, 1})
		case 64 << 10:
			y.Figures = append(y.Figures, figure{rdmanet, overTCP, false, 1})
		case 1 << 20:
			continue // C's loops have room for 64 KiB
		}
		x.series, y.series = append(x.series, on.alone(true, z.bytes)), append(y.series, on.alone(false, z.bytes))
	}
	s.Tables[0].Note += " The messages of perftest, cverbs, udat and C are 1 us under way. rdmanet and TCP call Read " +
		"and Write. C is one process with two threads, which copies within its memory."
	s.Tables[1].Note += " rdmanet and TCP: calls of Write. C is one process with one thread."
	trip := s.table("Request and answer: round trip", "Both ends wait for events. udat sends and receives messages.", "ns",
		result.UDAT, rdmanet)
	x := &setting{row: trip.row("64 B", 64, figure{rdmanet, result.UDAT, true, 1.5})}
	x.series = []series{on.streamPing(result.UDAT, "udat", loop0, 64, 1), on.streamPing(rdmanet, "rdmanet", loop0, 64, 1)}
	rate := s.table("Writes in one direction", "udat-read: RDMA writes of udat whose peer copies what has come out of "+
		"its memory and grants credit, as every stream must.", "bytes/s", udatRead, rdmanet)
	y := &setting{row: rate.row("64 KiB", 64<<10, figure{rdmanet, udatRead, false, 0.9})}
	y.series = []series{on.streamRate(udatRead, "udat-read", loop0, 64<<10, 64<<10),
		on.streamRate(rdmanet, "rdmanet", loop0, 64<<10, 64<<10)}
	s.Ended = b.rounds(slices.Concat(latencies, rates, []*setting{x, y}))
	return nil
}

// The method alone returns a series that runs the loop in C, in one process.
func (b *bench) alone(latency bool, size int) series {
	return series{inC, func() (float64, string, error) {
		if latency {
			v, line, err := b.loopValue(inC, "p50", "-delay", wire, "-threads", "2", "-size", strconv.Itoa(size), "ping")
			return v / 2, line, err
		}
		v, line, err := b.loopValue(inC, "ns", "-size", strconv.Itoa(size), "rate")
		return 1e9 / v, line, err
	}}
}
