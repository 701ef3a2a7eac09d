package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/godat/godat/internal/perf/result"
	"github.com/godat/godat/internal/process"
)

// streamTime bounds the rounds of a part with streams.
const streamTime = 100 * time.Second

const (
	streamBuffer = "524288" // bytes, as rstream has
	rstreamPort  = "7471"
)

// The columns, by the name of internal/bench/stream: what udat does with RDMA itself, and streams.
var (
	pingSeries  = []string{"udat", "rdmanet", "tcp"}
	writeSeries = []string{"udat-read", "rdmanet", "lent", "udat", "tcp"}
)

const rstream = "rstream"

// link is a wire of the loop device for writes of 64 KiB; empty: as fast as the processor copies.
type link struct{ name, wire string }

var links = []link{{", no limit", ""}, {", 50 Gbit/s", "1us,10486ns"}}

// streams measures package rdmanet on the model of a NIC.
func (b *bench) streams(s *result.Section) error {
	return b.streamTables(s, "stream-loop", "loop0", links, pingSeries, writeSeries)
}

// streamsOnDevice measures it beside rsockets.
func (b *bench) streamsOnDevice(s *result.Section) error {
	return b.streamTables(s, "stream", b.device, links[:1], append(pingSeries, rstream), append(writeSeries, rstream))
}

func (b *bench) streamTables(s *result.Section, program, device string, links []link, pings, writes []string) error {
	how := []string{program + " -device " + device + " -size $SIZE [-buffer " + streamBuffer + "] $SERIES ping|write"}
	if len(pings) > len(pingSeries) {
		how = append(how, "rstream -s "+b.address+" -T b -S $SIZE -C $TRANSFERS -I $ITERATIONS")
		for i := range how {
			how[i] = strings.Join(b.pinStream([]string{how[i]}), " ")
		}
	}
	table := func(unit, title, note string, series []string) *result.Table {
		t := &result.Table{Title: title, Unit: unit, Note: note, Series: series, How: how}
		s.Tables = append(s.Tables, t)
		return t
	}
	const ends = "Two processes that wait for events. "
	p50 := table("ns", "Request and answer: median of the round trip", ends+"udat sends and receives messages.", pings)
	p99 := table("ns", "Request and answer: 99th percentile", "", pings)
	bytes := table("bytes/s", "Writes in one direction", ends+"udat-read: RDMA writes of udat whose peer copies what has "+
		"come out of its memory and grants credit, as every stream must. udat: the same without a reader: always into the "+
		"same memory, which stays in the writer's cache. lent: WriteRegion, without a copy by the sender.", writes)
	err := b.inRounds(streamTime, func() error {
		for _, size := range []size{sizes[1], sizes[2]} {
			for _, series := range pings {
				line, fig, err := b.streamFigures(program, device, series, "ping", "", size.bytes)
				if err != nil {
					p50.Fail(size.name, series, err)
					continue
				}
				p50.Add(size.name, series, line, fig["p50"])
				if fig["p99"] > 0 {
					p99.Add(size.name, series, line, fig["p99"])
				}
			}
		}
		for _, size := range []size{sizes[1], sizes[3]} {
			for _, l := range links {
				if l.wire != "" && size.bytes < 64<<10 {
					continue
				}
				row := size.name + l.name
				for _, series := range writes {
					if line, fig, err := b.streamFigures(program, device, series, "write", l.wire, size.bytes); err != nil {
						bytes.Fail(row, series, err)
					} else {
						bytes.Add(row, series, line, float64(size.bytes)*1e9/fig["ns"])
					}
				}
			}
		}
		return nil
	})
	if b.machine != tcg || device != b.device {
		p50.Mark("rdmanet", "<=", 1.5, "udat", "64 B")
		p50.Mark("rdmanet", "<=", 1, rstream)
		for _, l := range links {
			bytes.Mark("rdmanet", ">=", 0.9, "udat-read", "64 KiB"+l.name)
			bytes.Mark("rdmanet", ">=", 1, rstream, "64 KiB"+l.name)
			if l.wire != "" {
				bytes.Mark("rdmanet", ">=", 0.9, "udat", "64 KiB"+l.name)
			}
		}
	}
	return err
}

// streamFigures measures one series: p50 and p99 of round trips, or ns per write.
func (b *bench) streamFigures(program, device, series, loop, wire string, size int) (
	line string, fig map[string]float64, err error,
) {
	length := 250 * time.Millisecond
	if device == b.device {
		length = time.Second // of two processes on a software device one waits for the other's processor now and then
	}
	if b.quick {
		length /= 10
	}
	if series == rstream {
		return b.rstream(loop, size)
	}
	argv := []string{
		filepath.Join(b.bin, program), "-device", device, "-size", strconv.Itoa(size), "-time", length.String(),
	}
	if loop == "write" {
		argv = append(argv, "-buffer", streamBuffer)
	}
	argv = append(argv, series, loop)
	if device == b.device {
		argv = b.pinStream(argv)
	}
	var env []string
	if wire != "" {
		env = []string{"GODAT_LOOP_WIRE=" + wire}
	}
	p, err := process.Start(pairTime, env, argv...)
	if err != nil {
		return "", nil, err
	}
	out, err := p.Wait()
	if err == nil {
		err = json.Unmarshal([]byte(out), &fig)
	}
	return strings.Join(append(env, show(argv)), " "), fig, err
}

// pinStream binds both ends to one processor of a User Mode Linux, where a system call on another
// processor than the one before takes 60 us instead of 5, and Go's threads change processors.
func (b *bench) pinStream(argv []string) []string {
	if b.machine == uml {
		return b.pin(clientEnd, argv)
	}
	return argv
}

// rstream runs both ends of rdmacm-utils' program. Its round trip is the mean: it prints no median.
func (b *bench) rstream(loop string, size int) (line string, fig map[string]float64, err error) {
	transfers, iterations := "1", b.operations(1000)
	if loop == "write" {
		transfers, iterations = b.operations(4000), "1"
		if size >= 64<<10 {
			transfers = b.operations(800)
		}
	}
	args := []string{"-p", rstreamPort, "-T", "b", "-S", strconv.Itoa(size), "-C", transfers, "-I", iterations}
	server, err := process.Start(pairTime, nil, b.pinStream(append([]string{rstream, "-b", b.address}, args...))...)
	if err != nil {
		return "", nil, err
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
		return "", nil, err
	}
	each, err := parseRstream(out)
	if err != nil {
		return "", nil, err
	}
	if loop == "ping" {
		return show(argv), map[string]float64{"p50": 2 * each}, nil
	}
	return show(argv), map[string]float64{"ns": each}, nil
}

// parseRstream returns the time of one transfer in nanoseconds, from the last column of its table.
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
