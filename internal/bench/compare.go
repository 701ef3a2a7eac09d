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
	"github.com/godat/godat/internal/process"
)

const (
	pairTime    = 20 * time.Second  // bounds one pair of programs
	eventTime   = 6 * time.Second   // bounds one that waits for events
	compareTime = 450 * time.Second // bounds the rounds of a comparison
)

// inline is the largest message that udat sends inline, and cverbs here.
const inline = 128

// size is a message size, with how many operations measure it and how many are in flight.
type size struct {
	bytes             int
	name              string
	latency, stream   int // operations
	depth, moderation int
}

var sizes = []size{
	{2, "2 B", 3000, 16000, 128, 16},
	{64, "64 B", 3000, 16000, 128, 16},
	{4 << 10, "4 KiB", 2000, 8000, 128, 16},
	{64 << 10, "64 KiB", 400, 800, 64, 16},
	{1 << 20, "1 MiB", 40, 64, 16, 4},
}

func (b *bench) operations(n int) string {
	switch {
	case b.quick:
		n = max(16, n/20/16*16)
	case b.machine == host: // a NIC is faster than rxe
		n *= 10
	case b.machine == tcg:
		n = max(16, n/4/16*16)
	}
	return strconv.Itoa(n)
}

// layers of datperf, in the order of the columns.
var layers = []string{result.Cverbs, result.UDAT}

// comparison measures the tables of one pair of programs.
type comparison struct {
	tables []*result.Table
	sizes  []size
	round  func(s size) error // measures all series of one size once
	judge  func()
}

// each marks both layers of a table against its first series.
func each(t *result.Table, relation string, factors [2]float64, rows ...string) {
	for i, layer := range layers {
		t.Mark(layer, relation, factors[i], t.Series[0], rows...)
	}
}

// limits are the marks beside perftest, for cverbs and udat in this order.
type limits struct{ p50, p99, events, rate, small [2]float64 }

var (
	onRXE = limits{
		p50: [2]float64{1.03, 1.03}, p99: [2]float64{1.2, 1.2}, events: [2]float64{1.1, 1.1},
		rate: [2]float64{0.97, 0.97}, small: [2]float64{0.97, 0.97},
	}
	// Those of the loop device, where ours is a larger part of the time.
	onNIC = limits{
		p50: [2]float64{1.05, 1.1}, p99: [2]float64{1.2, 1.2}, events: [2]float64{1.1, 1.2},
		rate: [2]float64{0.97, 0.97}, small: [2]float64{0.9, 0.75},
	}
)

func (b *bench) compare(s *result.Section) error {
	env, stop, err := b.dapltestServer(b.daplofa())
	if err != nil {
		return err
	}
	defer stop()
	b.dapl = env
	return b.compareWith(s, onRXE, b.againstDapltest())
}

// compareNIC needs nothing but datperf and perftest.
func (b *bench) compareNIC(s *result.Section) error { return b.compareWith(s, onNIC, nil) }

// compareWith measures datperf against the others: every round goes through all programs and sizes.
func (b *bench) compareWith(s *result.Section, marks limits, more []*comparison) error {
	var all []*comparison
	for _, test := range []string{result.Send, result.Write, result.Read} {
		all = append(all, b.latencyAgainst(test, false, marks))
	}
	for _, test := range []string{result.Send, result.Read} { // perftest has no events for write
		all = append(all, b.latencyAgainst(test, true, marks))
	}
	for _, test := range []string{result.Send, result.Write, result.Read} {
		all = append(all, b.streamAgainst(test, marks))
	}
	for _, test := range []string{result.Send, result.Write} {
		all = append(all, b.batchesAgainst(test))
	}
	all = append(all, more...)
	for _, c := range all {
		s.Tables = append(s.Tables, c.tables...)
	}
	stopServers, err := b.datperfServers()
	if err != nil {
		return err
	}
	defer stopServers()
	err = b.inRounds(compareTime, func() error {
		for _, c := range all {
			for _, size := range c.sizes {
				if err := c.round(size); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if b.machine != tcg { // an emulated processor shows nothing about ours
		for _, c := range all {
			c.judge()
		}
	}
	return err
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

// datperfServers starts a server for polling clients and one for those that wait, and waits until
// they listen.
func (b *bench) datperfServers() (stop func(), err error) {
	program := filepath.Join(b.bin, "datperf")
	if len(b.server) > 0 {
		program = "datperf" // in the PATH there
	}
	line := []string{program, "server", "--device", b.peer, "--port"}
	var servers []*process.Process
	stop = func() {
		for _, s := range servers {
			s.Stop()
		}
	}
	for port, argv := range map[int][]string{datperfPort: line, datperfPolling: b.pin(serverEnd, line)} {
		server, err := b.startServer(guestTime, append(slices.Clip(argv), strconv.Itoa(port)))
		if err == nil {
			servers = append(servers, server)
			err = server.Until(20*time.Second, func() bool { return b.listening(port) })
		}
		if err != nil {
			stop()
			return nil, err
		}
	}
	return stop, nil
}

// startServer starts a program on the server's host, where it ends after limit at the latest.
func (b *bench) startServer(limit time.Duration, argv []string) (*process.Process, error) {
	if len(b.server) > 0 {
		argv = slices.Concat(b.server, []string{"timeout", strconv.Itoa(int(limit.Seconds()))}, argv)
	}
	return process.Start(limit, nil, argv...)
}

// listening reports whether a TCP port of the server's host is listened on.
func (b *bench) listening(port int) bool {
	var tables []byte
	if len(b.server) > 0 {
		out, _ := b.run(pairTime, append(slices.Clip(b.server), "cat", "/proc/net/tcp", "/proc/net/tcp6")...)
		tables = []byte(out)
	} else {
		for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
			data, _ := os.ReadFile(file)
			tables = append(tables, data...)
		}
	}
	want := fmt.Sprintf(":%04X", port)
	for line := range strings.Lines(string(tables)) {
		if f := strings.Fields(line); len(f) > 3 && strings.HasSuffix(f[1], want) && f[3] == "0A" {
			return true
		}
	}
	return false
}

// perftest runs both ends of one of its programs and returns what the client printed. Its ends may
// miss each other, and with -e they may wait for ever for an event that rxe has lost: it is tried
// four times, and then for a shorter time.
func (b *bench) perftest(poll string, argv []string) (out string, err error) {
	limit := pairTime
	if poll != result.Busy {
		limit = eventTime
	}
	for range 4 {
		if out, err = b.perftestOnce(limit, poll, argv); err == nil {
			return out, nil
		}
		fmt.Fprintf(os.Stderr, "bench: again, after %v\n", err)
		time.Sleep(time.Second)
	}
	return "", err
}

func (b *bench) perftestOnce(limit time.Duration, poll string, argv []string) (string, error) {
	there := slices.Clone(argv)
	there[slices.Index(there, "-d")+1] = b.peer
	server, err := b.startServer(limit, b.polling(serverEnd, poll, there))
	if err != nil {
		return "", err
	}
	defer server.Stop()
	if err := server.Until(limit, func() bool { return b.listening(perftestPort) }); err != nil {
		return "", err
	}
	out, err := b.run(limit, append(slices.Clip(b.polling(clientEnd, poll, argv)), b.address)...)
	if err != nil {
		return "", err
	}
	said := server.Stderr.String() + server.Stdout.String()
	b.plain = b.plain || strings.Contains(said, "Device not recognized to implement inline")
	if _, err := server.Wait(); err != nil {
		return "", fmt.Errorf("server: %w", err)
	}
	return out, nil
}

// perf is the command line of a perftest program that fits datperf's, without the host.
func (b *bench) perf(test, mode string, s size, n int, more ...string) []string {
	args := []string{"ib_" + test + "_" + mode, "-d", b.device, "-F", "-s", strconv.Itoa(s.bytes), "-n", b.operations(n)}
	if test == result.Read {
		args = append(args, "-o", "16")
	} else {
		args = append(args, "-I", strconv.Itoa(inline))
	}
	return append(args, more...)
}

// dat is the command line of datperf that fits.
func (b *bench) dat(poll, test, mode string, s size, n int, more ...string) []string {
	args := []string{
		"-t", test, "-m", mode, "-l", strings.Join(layers, ","), "-s", strconv.Itoa(s.bytes), "-n", b.operations(n),
		"--read-depth", "16", "--buffers", strconv.Itoa(result.PerftestBuffers(s.bytes)),
	}
	return b.datperf(poll, append(args, more...)...)
}

func inlineNote(test string) string {
	if test == result.Read {
		return ""
	}
	return "Where perftest says that it does not send inline on the device, cverbs runs with --inline 0; " +
		"udat always sends up to 128 bytes inline where the device can."
}

// latencyAgainst compares half the round trip of send and write, and the whole operation of read.
func (b *bench) latencyAgainst(test string, events bool, marks limits) *comparison {
	poll, words, of := result.Busy, "polled", sizes
	var flags []string
	if events {
		poll, words, of = result.Event, "with events (-e)", []size{sizes[0], sizes[2], sizes[3]}
		flags = []string{"-e"}
	}
	rx := []string{}
	if test == result.Send {
		flags, rx = append(flags, "-r", "4"), []string{"--rx-depth", "4"}
	}
	n := func(s size) int {
		if events { // perftest loses an event in every few thousand operations on rxe
			return max(100, s.latency/15)
		}
		return s.latency
	}
	perf := func(s size) []string { return b.perf(test, result.Latency, s, n(s), flags...) }
	dat := func(s size) []string {
		return b.dat(poll, test, result.Latency, s, n(s), append([]string{"--signal", "1"}, rx...)...)
	}
	client := func(s size) []string { return b.polling(clientEnd, poll, perf(s)) }
	program := perf(sizes[0])[0]
	table := func(what, note string) *result.Table {
		return &result.Table{
			Title: fmt.Sprintf("Latency of %s, %s: %s", test, words, what), Unit: "ns", Note: note,
			Series: append([]string{program}, layers...), How: []string{how(client, b.address), how(dat, "")},
		}
	}
	p50, p99 := table("median", inlineNote(test)), table("99th percentile", "From the same runs as the median.")
	c := &comparison{tables: []*result.Table{p50, p99}, sizes: of}
	c.round = func(s size) error {
		out, err := b.perftest(poll, perf(s))
		if err == nil {
			var typical, tail float64
			if typical, tail, err = perftestLatency(out); err == nil {
				line := show(client(s)) + " " + b.address
				p50.Add(s.name, program, line, typical)
				p99.Add(s.name, program, line, tail)
			}
		}
		if err != nil {
			p50.Fail(s.name, program, err)
		}
		b.both(p50, s.name, dat(s), func(layer, command string, total *result.Stream) {
			p50.Add(s.name, layer, command, total.Latency.At(50))
			p99.Add(s.name, layer, command, total.Latency.At(99))
		})
		return nil
	}
	c.judge = func() {
		if events {
			each(p50, "<=", marks.events)
			return
		}
		each(p50, "<=", marks.p50)
		each(p99, "<=", marks.p99)
	}
	return c
}

// both runs datperf for each layer, in a process of its own, as perftest is one: the first run of a
// process is slower. Where perftest does not send inline, cverbs does not either; udat has no such
// option.
func (b *bench) both(
	t *result.Table, row string, argv []string, take func(layer, command string, total *result.Stream),
) {
	var lines [][]string
	i := slices.Index(argv, strings.Join(layers, ","))
	size, _ := strconv.Atoi(argv[slices.Index(argv, "-s")+1])
	plain := b.plain && size <= inline && !slices.Contains(argv, result.Read)
	for _, layer := range layers {
		line := slices.Clone(argv)
		line[i] = layer
		if plain && layer == result.Cverbs {
			line = append(line, "--inline", "0")
		}
		lines = append(lines, line)
	}
	for _, line := range lines {
		out, err := b.run(2*pairTime, append(slices.Clip(line), "--json", "-")...)
		var d *result.Document
		if err == nil {
			d, err = parseDatperf(out)
		}
		if err != nil {
			t.Fail(row, "datperf "+line[i], err)
			continue
		}
		b.doc.Client, b.doc.Server = d.Client, d.Server
		b.doc.Client.Host, b.doc.Server.Host = "", "" // pages are public
		for k := range d.Runs {
			total := d.Runs[k].Total()
			take(d.Runs[k].Case.Layer, show(line), &total)
		}
	}
}

// stream is the flags of a stream: of perftest and of datperf, which warms up, because the first 50
// ms of a stream are slower in a Go process.
func (b *bench) stream(test string, s size) (perf, dat []string) {
	perf = []string{"-t", strconv.Itoa(s.depth), "-Q", strconv.Itoa(s.moderation)}
	dat = []string{"--warmup", b.operations(s.stream / 2), "--depth", strconv.Itoa(s.depth),
		"--signal", strconv.Itoa(s.moderation)}
	if test == result.Send {
		perf, dat = append(perf, "-r", "512"), append(dat, "--rx-depth", "512")
	}
	return perf, dat
}

// rates measures streams with perftest's flags, each set a series of its own, and with datperf's.
func (b *bench) rates(
	t *result.Table, of []size, perf map[string]func(size) []string, dat func(size) []string,
) *comparison {
	for _, series := range t.Series[:len(t.Series)-len(layers)] {
		client := func(s size) []string { return b.pin(clientEnd, perf[series](s)) }
		t.How = append(t.How, how(client, b.address))
	}
	t.How = append(t.How, how(dat, ""))
	return &comparison{tables: []*result.Table{t}, sizes: of, round: func(s size) error {
		for series, argv := range perf {
			out, err := b.perftest(result.Busy, argv(s))
			var v float64
			if err == nil {
				v, err = perftestBandwidth(out, s.bytes)
			}
			if err != nil {
				t.Fail(s.name, series, err)
			} else {
				t.Add(s.name, series, show(b.pin(clientEnd, argv(s)))+" "+b.address, v)
			}
		}
		b.both(t, s.name, dat(s), func(layer, command string, total *result.Stream) {
			t.Add(s.name, layer, command, total.OpsS*float64(s.bytes))
		})
		return nil
	}}
}

// streamAgainst compares bandwidth.
func (b *bench) streamAgainst(test string, marks limits) *comparison {
	perf := func(s size) []string {
		flags, _ := b.stream(test, s)
		return b.perf(test, result.Bandwidth, s, s.stream, flags...)
	}
	dat := func(s size) []string {
		_, flags := b.stream(test, s)
		return b.dat(result.Busy, test, result.Bandwidth, s, s.stream, flags...)
	}
	program := perf(sizes[0])[0]
	t := &result.Table{
		Title: fmt.Sprintf("Bandwidth of %s, polled", test), Unit: "bytes/s",
		Series: append([]string{program}, layers...), Note: inlineNote(test),
	}
	c := b.rates(t, sizes[1:], map[string]func(size) []string{program: perf}, dat)
	c.judge = func() {
		each(t, ">=", marks.small, sizes[1].name)
		each(t, ">=", marks.rate, sizes[2].name, sizes[3].name, sizes[4].name)
	}
	return c
}

// batchesAgainst compares batches of 16 with perftest's single posts, and with its own batches.
func (b *bench) batchesAgainst(test string) *comparison {
	perf := func(more ...string) func(s size) []string {
		return func(s size) []string {
			flags, _ := b.stream(test, s)
			return b.perf(test, result.Bandwidth, s, s.stream, append(flags, more...)...)
		}
	}
	dat := func(s size) []string {
		_, flags := b.stream(test, s)
		return b.dat(result.Busy, test, result.Bandwidth, s, s.stream, append(flags, "--batch", "16")...)
	}
	program := perf()(sizes[0])[0]
	t := &result.Table{
		Title: fmt.Sprintf("Bandwidth of %s in batches of 16, polled", test), Unit: "bytes/s",
		Series: append([]string{program, program + " -l 16"}, layers...), Note: inlineNote(test),
	}
	others := map[string]func(size) []string{program: perf(), program + " -l 16": perf("-l", "16")}
	c := b.rates(t, sizes[1:3], others, dat)
	c.judge = func() { each(t, ">", [2]float64{1, 1}) }
	return c
}

// how is a command with the names of what varies from row to row.
func how(line func(size) []string, end string) string {
	a, z := line(sizes[0]), line(sizes[len(sizes)-1])
	names := map[string]string{
		"-s": "$SIZE", "-n": "$N", "--warmup": "$WARMUP", "-t": "$DEPTH", "--depth": "$DEPTH", "-Q": "$MODERATION",
		"--signal": "$MODERATION", "--buffers": "$BUFFERS", "-i": "$N", "-p": "$DEPTH", "RW": "$SIZE", "RR": "$SIZE",
	}
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
