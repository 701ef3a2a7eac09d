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
	"github.com/godat/godat/lab/process"
)

// inline is the largest message, in bytes, that udat sends inline. cverbs gets the same limit here.
const inline = 128

// size is a message size. It also says how many operations measure this size on soft-RoCE, and how
// many of them are in flight.
type size struct {
	bytes             int
	name              string
	latency, stream   int // numbers of operations
	depth, moderation int
}

var sizes = []size{
	{64, "64 B", 3000, 16000, 128, 16},
	{4 << 10, "4 KiB", 2000, 8000, 128, 16},
	{64 << 10, "64 KiB", 400, 800, 64, 16},
	{1 << 20, "1 MiB", 40, 64, 16, 4},
}

// operations returns how many operations to measure: n on soft-RoCE, more on a faster device, fewer
// in a quick run or on an emulated machine.
func (b *bench) operations(n int) string {
	switch {
	case b.quick:
		n = max(16, n/20/16*16)
	case b.machine == host || b.device == loop0: // faster than rxe
		n *= 10
	case b.machine == tcg:
		n = max(16, n/4/16*16)
	}
	return strconv.Itoa(n)
}

const (
	perftestPort  = 18515
	datperfPort   = 18516
	datperfOnWire = 18517 // port of the server on which messages take the time wire
)

// wire is the value of GODAT_LOOP_WIRE in latency tests: the time that a message takes on the loop
// device.
const wire = "1us"

// place returns the command that runs argv at one end: bound to that end's processor, and on the
// loop device if b.device is that device.
func (b *bench) place(end int, wire string, argv []string) []string {
	argv = b.pin(end, argv)
	if b.device == loop0 {
		argv = onLoop(b.bin, wire, argv)
	}
	return argv
}

// datperfServers starts one server for rates and one for latencies, and waits until both listen.
func (b *bench) datperfServers() (stop func(), err error) {
	program := filepath.Join(b.bin, "datperf")
	if len(b.server) > 0 {
		program = "datperf" // found in the PATH of the server's host
	}
	var servers []*process.Process
	stop = func() {
		for _, s := range servers {
			s.Stop()
		}
	}
	for port, wire := range map[int]string{datperfPort: "", datperfOnWire: wire} {
		line := []string{program, "server", "--device", b.peer, "--port", strconv.Itoa(port)}
		server, err := b.startServer(b.limit+time.Hour, b.place(serverEnd, wire, line))
		if err == nil {
			servers = append(servers, server)
			err = server.Until(pairTime, func() bool { return b.listening(port) })
		}
		if err != nil {
			stop()
			return nil, err
		}
	}
	return stop, nil
}

// startServer starts a program on the server's host. The program ends after limit at the latest.
func (b *bench) startServer(limit time.Duration, argv []string) (*process.Process, error) {
	if len(b.server) > 0 {
		argv = slices.Concat(b.server, []string{"timeout", strconv.Itoa(int(limit.Seconds()))}, argv)
	}
	return process.Start(limit, nil, argv...)
}

// listening reports whether a process listens on a TCP port of the server's host.
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

// perftest runs both ends of one of perftest's programs. It returns the client's output and the
// client's command. If an end fails, perftest runs both ends once more.
func (b *bench) perftest(wire string, argv []string) (out, line string, err error) {
	client := append(b.place(clientEnd, wire, argv), b.address)
	for range 2 {
		if out, err = b.perftestOnce(wire, argv, client); err == nil {
			break
		}
		fmt.Fprintf(os.Stderr, "bench: %v\n", err)
	}
	return out, show(client), err
}

func (b *bench) perftestOnce(wire string, argv, client []string) (string, error) {
	there := slices.Clone(argv)
	there[slices.Index(there, "-d")+1] = b.peer
	server, err := b.startServer(pairTime, b.place(serverEnd, wire, there))
	if err != nil {
		return "", err
	}
	defer server.Stop()
	if err := server.Until(pairTime, func() bool { return b.listening(perftestPort) }); err != nil {
		return "", err
	}
	out, err := b.run(pairTime, client...)
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

// perf returns the command line of one of perftest's programs, without the host. Its settings are
// the same as datperf's.
func (b *bench) perf(test, mode string, s size, n int, more ...string) []string {
	args := []string{
		"ib_" + test + "_" + mode, "-d", b.device, "-F", "-s", strconv.Itoa(s.bytes), "-n", b.operations(n),
		"-I", strconv.Itoa(inline),
	}
	if b.device == loop0 {
		args = append(args, "-x", "1") // the GID that other processes can reach
	}
	return append(args, more...)
}

// datperf runs a datperf client for one layer, in a new process, because perftest also uses a new
// process for each run, and the first run of a process is slower. Where perftest does not send
// inline, cverbs does not either. udat has no option for that.
func (b *bench) datperf(layer, wire, test, mode string, s size, n int, more ...string) (
	total result.Stream, line string, err error,
) {
	port := datperfPort
	if wire != "" {
		port = datperfOnWire
	}
	argv := []string{
		filepath.Join(b.bin, "datperf"), "client", b.address, "--device", b.device, "--port", strconv.Itoa(port),
		"-t", test, "-m", mode, "-l", layer, "-s", strconv.Itoa(s.bytes), "-n", b.operations(n),
		"--buffers", strconv.Itoa(result.PerftestBuffers(s.bytes)), "--poll", result.Busy,
	}
	argv = append(argv, more...)
	if b.plain && s.bytes <= inline && layer == result.Cverbs {
		argv = append(argv, "--inline", "0")
	}
	argv = b.place(clientEnd, wire, argv)
	out, err := b.run(2*pairTime, append(slices.Clip(argv), "--json", "-")...)
	if err != nil {
		return total, "", err
	}
	d, err := parseDatperf(out)
	if err != nil {
		return total, "", err
	}
	b.now.Machine["device"] = fmt.Sprintf("%s (%s)", d.Client.Device, d.Client.Detail)
	return d.Runs[0].Total(), show(argv), nil
}

// sentLatency returns a series that measures half of the round trip of a Send.
func (b *bench) sentLatency(s size, name string) series {
	if name == perftestName {
		return series{name, func() (float64, string, error) {
			out, line, err := b.perftest(wire, b.perf(result.Send, result.Latency, s, s.latency, "-r", "4"))
			if err != nil {
				return 0, line, err
			}
			v, err := perftestLatency(out)
			return v, line, err
		}}
	}
	return series{name, func() (float64, string, error) {
		total, line, err := b.datperf(name, wire, result.Send, result.Latency, s, s.latency,
			"--signal", "1", "--rx-depth", "4")
		if err != nil {
			return 0, line, err
		}
		return total.Latency.At(50), line, nil
	}}
}

// writeRate returns a series that measures RDMA writes per second. datperf warms up, because in a
// Go process the first 50 ms of a stream are slower.
func (b *bench) writeRate(s size, name string) series {
	if name == perftestName {
		return series{name, func() (float64, string, error) {
			out, line, err := b.perftest("", b.perf(result.Write, result.Bandwidth, s, s.stream,
				"-t", strconv.Itoa(s.depth), "-Q", strconv.Itoa(s.moderation)))
			if err != nil {
				return 0, line, err
			}
			v, err := perftestBandwidth(out, s.bytes)
			return v / float64(s.bytes), line, err
		}}
	}
	return series{name, func() (float64, string, error) {
		total, line, err := b.datperf(name, "", result.Write, result.Bandwidth, s, s.stream,
			"--warmup", b.operations(s.stream/2), "--depth", strconv.Itoa(s.depth), "--signal", strconv.Itoa(s.moderation))
		return total.OpsS, line, err
	}}
}

const perftestName = "perftest"

// besidePerftest adds two tables with one row for each message size. The columns are perftest, the
// layers, and the series whose names are in others. It returns the rows of both tables in the order
// of sizes. The rate of 64-byte writes has no goal here, because the part "loop" has a goal for it.
func (b *bench) besidePerftest(s *section, others ...string) (latencies, rates []*setting) {
	names := append([]string{perftestName}, layers...)
	columns := append(slices.Clip(names), others...)
	latency := s.table("Half of a round trip over size", "Sends, polled. The median of a run.", "ns", columns...)
	rate := s.table("Messages per second over size", "RDMA writes, polled.", "ops/s", columns...)
	for _, z := range sizes {
		x := &setting{row: latency.row(z.name, z.bytes, bothLayers(perftestName, true, [2]float64{1.05, 1.10})...)}
		y := &setting{row: rate.row(z.name, z.bytes)}
		if z.bytes > inline {
			y.Figures = bothLayers(perftestName, false, [2]float64{0.97, 0.97})
		}
		for _, name := range names {
			x.series = append(x.series, b.sentLatency(z, name))
			y.series = append(y.series, b.writeRate(z, name))
		}
		latencies, rates = append(latencies, x), append(rates, y)
	}
	return latencies, rates
}

// nic compares datperf with perftest. It needs these two programs only.
func (b *bench) nic(s *section) error {
	stop, err := b.datperfServers()
	if err != nil {
		return err
	}
	defer stop()
	latencies, rates := b.besidePerftest(s)
	s.Ended = b.rounds(append(latencies, rates...))
	return nil
}
