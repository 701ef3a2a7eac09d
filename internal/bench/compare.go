package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/godat/godat/internal/perf/result"
)

// pairTime bounds one pair of programs.
const pairTime = time.Minute

// inline is the largest message that udat sends inline, and cverbs here.
const inline = 128

// scale of one size: how many operations, and how many outstanding.
type size struct {
	bytes             int
	name              string
	latency, stream   int // operations
	depth, moderation int
}

var sizes = []size{
	{2, "2 B", 5000, 30000, 128, 16},
	{64, "64 B", 5000, 30000, 128, 16},
	{4 << 10, "4 KiB", 2000, 12000, 128, 16},
	{64 << 10, "64 KiB", 300, 1200, 64, 16},
	{1 << 20, "1 MiB", 30, 80, 16, 4},
}

func (b *bench) operations(n int) string {
	if b.quick {
		n = max(10, n/20)
	}
	return strconv.Itoa(n)
}

// layers of datperf, in the order of the columns.
var layers = []string{result.Cverbs, result.UDAT}

// comparison is one table: a program of perftest (or dapltest) and datperf, over the sizes.
type comparison struct {
	table *Table
	sizes []size
	// round measures all series of one size once.
	round func(s size) error
}

// compare measures datperf against the others: every round goes through all programs and sizes.
func (b *bench) compare(p *Part) error {
	var all []*comparison
	for _, test := range []string{result.Send, result.Write, result.Read} {
		all = append(all, b.latencyAgainst(test, false))
	}
	for _, test := range []string{result.Send, result.Write, result.Read} {
		all = append(all, b.streamAgainst(test, false)...)
	}
	for _, test := range []string{result.Send, result.Read} {
		all = append(all, b.latencyAgainst(test, true))
	}
	for _, test := range []string{result.Send, result.Read} { // perftest has no events for write
		all = append(all, b.streamAgainst(test, true)...)
	}
	all = append(all, b.againstDapltest()...)
	for _, c := range all {
		p.Tables = append(p.Tables, c.table)
	}

	stopServers, err := b.datperfServers()
	if err != nil {
		return err
	}
	defer stopServers()
	dat, stop, err := b.dapltestServer()
	if err != nil {
		return err
	}
	defer stop()
	b.dapl = dat
	for round := range b.rounds {
		fmt.Fprintf(os.Stderr, "bench: round %d of %d\n", round+1, b.rounds)
		for _, c := range all {
			if c.round == nil {
				continue // measured with the table before it
			}
			for _, s := range c.sizes {
				if err := c.round(s); err != nil {
					return err
				}
			}
		}
	}
	if b.guest {
		return nil // of an emulated or shared processor there is nothing to ask
	}
	for _, c := range all {
		reference, less := c.table.Series[0], c.table.Unit == "ns"
		for _, layer := range layers {
			switch {
			case reference == "dapltest":
				c.table.ahead(layer, reference, less)
			case less:
				c.table.atMost(layer, 1.05, reference)
			default:
				c.table.atLeast(layer, 0.97, reference)
			}
		}
	}
	return nil
}

const (
	perftestPort   = 18515
	datperfPort    = 18516
	datperfPolling = 18517 // the server that is bound to a processor
)

// datperf is the command line of a client.
func (b *bench) datperf(poll string, args ...string) []string {
	line := []string{filepath.Join(b.bin, "datperf"), "client", b.address, "--device", b.device}
	if poll == result.Busy {
		line = b.pin(clientEnd, append(line, "--port", strconv.Itoa(datperfPolling)))
	}
	return append(append(line, args...), "--poll", poll)
}

// datperfServers starts a server for polling clients and one for those that wait, and waits until they listen.
func (b *bench) datperfServers() (stop func(), err error) {
	line := []string{filepath.Join(b.bin, "datperf"), "server", "--device", b.device, "--port"}
	var servers []*process
	stop = func() {
		for _, s := range servers {
			s.stop()
		}
	}
	for port, argv := range map[int][]string{datperfPort: line, datperfPolling: b.pin(serverEnd, line)} {
		server, err := start(vmTime, nil, append(slices.Clip(argv), strconv.Itoa(port))...)
		if err == nil {
			servers = append(servers, server)
			err = server.until(20*time.Second, func() bool { return listening(port) })
		}
		if err != nil {
			stop()
			return nil, err
		}
	}
	return stop, nil
}

// perftest runs both ends of one of its programs, and gives what the client printed. Its ends may miss each other: it is tried
// twice.
func (b *bench) perftest(poll string, argv []string) (string, error) {
	out, err := b.perftestOnce(poll, argv)
	if err != nil {
		fmt.Fprintf(os.Stderr, "bench: again, after %v\n", err)
		time.Sleep(time.Second)
		out, err = b.perftestOnce(poll, argv)
	}
	return out, err
}

func (b *bench) perftestOnce(poll string, argv []string) (string, error) {
	server, err := start(pairTime, nil, b.polling(serverEnd, poll, argv)...)
	if err != nil {
		return "", err
	}
	defer server.stop()
	if err := server.until(20*time.Second, func() bool { return listening(perftestPort) }); err != nil {
		return "", err
	}
	out, err := b.run(pairTime, append(slices.Clip(b.polling(clientEnd, poll, argv)), b.address)...)
	if err != nil {
		return "", err
	}
	b.plain = b.plain || strings.Contains(server.err.String()+server.out.String(), "Device not recognized to implement inline")
	if _, err := server.wait(); err != nil {
		return "", fmt.Errorf("server: %w", err)
	}
	return out, nil
}

// perftestName is the program for a test.
func perftestName(test, mode string) string {
	return "ib_" + test + "_" + mode
}

// common are the flags of a perftest program that fit datperf's.
func (b *bench) common(test string, s size, n string, events bool) []string {
	args := []string{"-d", b.device, "-F", "-s", strconv.Itoa(s.bytes), "-n", n}
	if test == result.Read {
		args = append(args, "-o", "16")
	} else {
		args = append(args, "-I", strconv.Itoa(inline))
	}
	if events {
		args = append(args, "-e")
	}
	return args
}

func inlineNote(test string) string {
	if test == result.Read {
		return ""
	}
	return "Where perftest says that it does not send inline on the device, cverbs runs with --inline 0; udat always sends up to 128 bytes inline where the device can."
}

func waiting(events bool) (string, string) {
	if events {
		return "event", "with events (-e)"
	}
	return "busy", "polled"
}

func eventSizes(events bool) []size {
	if events {
		return []size{sizes[0], sizes[2], sizes[3]}
	}
	return sizes
}

// latencyAgainst compares medians: of half the round trip for send and write, of the whole operation for read.
func (b *bench) latencyAgainst(test string, events bool) *comparison {
	program := perftestName(test, "lat")
	poll, words := waiting(events)
	perf := func(s size) []string {
		args := append([]string{program}, b.common(test, s, b.operations(s.latency), events)...)
		if test == result.Send {
			args = append(args, "-r", "4")
		}
		return args
	}
	client := func(s size) []string { return b.polling(clientEnd, poll, perf(s)) }
	dat := func(s size) []string {
		args := []string{"-t", test, "-m", "lat", "-l", strings.Join(layers, ","), "-s", strconv.Itoa(s.bytes), "-n", b.operations(s.latency),
			"--signal", "1", "--read-depth", "16", "--buffers", strconv.Itoa(result.PerftestBuffers(s.bytes))}
		if test == result.Send {
			args = append(args, "--rx-depth", "4")
		}
		return b.datperf(poll, args...)
	}
	t := &Table{
		Title: fmt.Sprintf("Latency of %s, %s: median", test, words), Unit: "ns", Note: inlineNote(test), Series: append([]string{program}, layers...),
		How: []string{how(client, b.address), how(dat, "")},
	}
	c := &comparison{table: t, sizes: eventSizes(events)}
	c.round = func(s size) error {
		argv := perf(s)
		out, err := b.perftest(poll, argv)
		if err == nil {
			var v float64
			if v, err = perftestLatency(out); err == nil {
				t.add(s.name, program, show(client(s))+" "+b.address, v)
			}
		}
		if err != nil {
			t.fail(s.name, program, err)
		}
		b.figure(t, s.name, dat(s), func(r *result.Run) float64 { total := r.Total(); return total.Latency.At(50) })
		return nil
	}
	return c
}

// both runs datperf for both layers, and hands every run on. Where perftest does not send inline, cverbs does not either; udat
// has no way to be told.
func (b *bench) both(t *Table, row string, argv []string, take func(layer, command string, r *result.Run)) {
	lines := [][]string{argv}
	i := slices.Index(argv, strings.Join(layers, ","))
	size, _ := strconv.Atoi(argv[slices.Index(argv, "-s")+1])
	if b.plain && size <= inline && !slices.Contains(argv, result.Read) {
		lines = nil
		for _, layer := range layers {
			line := slices.Clone(argv)
			line[i] = layer
			if layer == result.Cverbs {
				line = append(line, "--inline", "0")
			}
			lines = append(lines, line)
		}
	}
	for _, line := range lines {
		out, err := b.run(2*pairTime, append(slices.Clip(line), "--json", "-")...)
		var d *result.Document
		if err == nil {
			d, err = parseDatperf(out)
		}
		if err != nil {
			t.fail(row, "datperf "+line[i], err)
			continue
		}
		for k := range d.Runs {
			take(d.Runs[k].Case.Layer, show(line), &d.Runs[k])
		}
	}
}

// figure takes one number of each run of both layers.
func (b *bench) figure(t *Table, row string, argv []string, of func(*result.Run) float64) {
	b.both(t, row, argv, func(layer, command string, r *result.Run) { t.add(row, layer, command, of(r)) })
}

// streamAgainst compares bandwidth, and for small messages their rate, from the same runs.
func (b *bench) streamAgainst(test string, events bool) []*comparison {
	program := perftestName(test, "bw")
	poll, words := waiting(events)
	perf := func(s size) []string {
		args := append([]string{program}, b.common(test, s, b.operations(s.stream), events)...)
		args = append(args, "-t", strconv.Itoa(s.depth), "-Q", strconv.Itoa(s.moderation))
		if test == result.Send {
			args = append(args, "-r", "512")
		}
		return args
	}
	client := func(s size) []string { return b.polling(clientEnd, poll, perf(s)) }
	dat := func(s size) []string {
		args := []string{"-t", test, "-m", "bw", "-l", strings.Join(layers, ","), "-s", strconv.Itoa(s.bytes), "-n", b.operations(s.stream), "--warmup", "0",
			"--depth", strconv.Itoa(s.depth), "--signal", strconv.Itoa(s.moderation), "--read-depth", "16", "--buffers", strconv.Itoa(result.PerftestBuffers(s.bytes))}
		if test == result.Send {
			args = append(args, "--rx-depth", "512")
		}
		return b.datperf(poll, args...)
	}
	commands := []string{how(client, b.address), how(dat, "")}
	series := append([]string{program}, layers...)
	bandwidth := &Table{Title: fmt.Sprintf("Bandwidth of %s, %s", test, words), Unit: "bytes/s", Series: series, How: commands, Note: inlineNote(test)}
	rate := &Table{Title: fmt.Sprintf("Message rate of %s, %s", test, words), Unit: "ops/s", Series: series, How: commands, Note: "From the same runs as the bandwidth."}
	c := &comparison{table: bandwidth, sizes: eventSizes(events)}
	c.round = func(s size) error {
		small := s.bytes <= 4096
		argv := perf(s)
		out, err := b.perftest(poll, argv)
		if err == nil {
			var v, ops float64
			if v, ops, err = perftestBandwidth(out); err == nil {
				if s.bytes >= 64 { // two digits after the point of MB/s are few for two bytes
					bandwidth.add(s.name, program, show(client(s))+" "+b.address, v)
				}
				if small {
					rate.add(s.name, program, show(client(s))+" "+b.address, ops)
				}
			}
		}
		if err != nil {
			bandwidth.fail(s.name, program, err)
		}
		b.both(bandwidth, s.name, dat(s), func(layer, command string, r *result.Run) {
			total := r.Total()
			if s.bytes >= 64 {
				bandwidth.add(s.name, layer, command, total.OpsS*float64(s.bytes))
			}
			if small {
				rate.add(s.name, layer, command, total.OpsS)
			}
		})
		return nil
	}
	return []*comparison{c, {table: rate}}
}

// how is a command with the names of what varies from row to row.
func how(line func(size) []string, end string) string {
	a, z := line(sizes[0]), line(sizes[len(sizes)-1])
	names := map[string]string{"-s": "$SIZE", "-n": "$N", "--warmup": "$N", "-t": "$DEPTH", "--depth": "$DEPTH", "-Q": "$MODERATION", "--signal": "$MODERATION", "--buffers": "$BUFFERS", "-i": "$N", "-p": "$DEPTH", "RW": "$SIZE", "RR": "$SIZE"}
	out := slices.Clone(a)
	for i := range a {
		if a[i] != z[i] && i > 0 {
			out[i] = "$X"
			if n := names[a[i-1]]; n != "" {
				out[i] = n
			}
		}
	}
	return strings.TrimSpace(show(out) + " " + end)
}
