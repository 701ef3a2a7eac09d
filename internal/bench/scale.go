package main

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/godat/godat/internal/perf/result"
	"github.com/godat/godat/udat"
)

// endpoints on one EVD.
var endpoints = []int{1, 16, 256, 1024}

// scaleTime bounds the rounds.
const scaleTime = 80 * time.Second

// window is how many operations are outstanding in all, on however many endpoints.
const window = 64

func (b *bench) scaleMem(s *result.Section) error { return b.scale(s, "mem0", false) }

func (b *bench) scaleDevice(s *result.Section) error { return b.scale(s, b.device, true) }

// scale measures the cost per event, the connections per second and the memory of endpoints, all on
// one EVD.
func (b *bench) scale(s *result.Section, device string, verbs bool) error {
	const self = "ci/bench.sh scale"
	cost := &result.Table{
		Title: "Time per RDMA write of 8 bytes and its event, " + device, Unit: "ns", Series: []string{"udat"},
		How: []string{self},
		Note: fmt.Sprintf("%d writes outstanding in all, on the endpoints in turn; every one makes an event on the one EVD.",
			window),
	}
	rate := &result.Table{
		Title: "Connections per second, " + device, Unit: "1/s", Series: []string{"udat"}, How: []string{self},
		Note: "From creating the first endpoint to the last connection established; both ends in one process.",
	}
	size := &result.Table{
		Title: "Memory per connected endpoint, " + device, Unit: "bytes", Series: []string{"Go heap", "resident"},
		How: []string{self},
		Note: "Queues for 64 requests shared out among the endpoints, at least one each, and one receive; " +
			"resident includes what the C libraries and the driver map.",
	}
	s.Tables = append(s.Tables, cost, rate, size)
	if verbs {
		cost.Series = append([]string{"ib_write_bw"}, cost.Series...)
		cost.How = append(cost.How, b.manyPairs(0)+" "+b.address)
		cost.Note += " ib_write_bw, in C, has the same number of queue pairs on its one completion queue."
		rate.Series = append([]string{"cmtime"}, rate.Series...)
		rate.How = append(rate.How, "cmtime -s "+b.address+" -b "+b.address+" -c $N")
		rate.Note += " cmtime: its steps from creating the identifier to the connection, two processes."
	}
	events := 200000
	if verbs {
		events = 20000
	}
	if b.quick {
		events /= 20
	}
	err := b.inRounds(scaleTime, func() error {
		for _, n := range endpoints {
			row := strconv.Itoa(n)
			got, err := measureScale(device, n, events)
			if err != nil {
				cost.Fail(row, "udat", err)
				continue
			}
			cost.Add(row, "udat", self, got.perEvent)
			if n > 1 {
				rate.Add(row, "udat", self, got.connects)
				size.Add(row, "Go heap", self, got.heap)
				size.Add(row, "resident", self, got.resident)
			}
			if verbs {
				b.scaleOthers(cost, rate, n)
			}
		}
		return nil
	})
	if verbs && b.machine == tcg {
		return err
	}
	one, first := cost.Sample("1", "udat"), cost.Sample("1", "ib_write_bw")
	for _, r := range cost.Rows {
		v, c := cost.Sample(r.Name, "udat"), cost.Sample(r.Name, "ib_write_bw")
		switch {
		case one == nil || v == nil || r.Name == "1":
		case !verbs:
			r.Limit("udat <= 1.2 x its time with one endpoint", v.Ratio(one), 1.2)
		case first != nil && c != nil:
			r.Limit("udat's growth <= 1.2 x ib_write_bw's", v.Ratio(one)/c.Ratio(first), 1.2)
		}
	}
	rate.Mark("udat", ">=", 0.9, "cmtime")
	return err
}

// manyPairs is the command line of perftest for n queue pairs.
func (b *bench) manyPairs(n int) string {
	pairs, each, depth := "$N", "$EACH", "$DEPTH"
	if n > 0 {
		pairs, depth, each = strconv.Itoa(n), strconv.Itoa(max(1, window/n)), strconv.Itoa(max(20, 20000/n))
	}
	return fmt.Sprintf("ib_write_bw -d %s -F -s 8 -n %s -q %s -t %s -Q 1 -I 256", b.device, each, pairs, depth)
}

func (b *bench) scaleOthers(cost, rate *result.Table, n int) {
	row := strconv.Itoa(n)
	argv := strings.Fields(b.manyPairs(n))
	line := show(b.pin(clientEnd, argv))
	out, err := b.perftest(result.Busy, argv)
	if err == nil {
		var bytes float64
		if bytes, err = perftestBandwidth(out, 8); err == nil {
			cost.Add(row, "ib_write_bw", line+" "+b.address, 8e9/bytes)
		}
	}
	if err != nil {
		cost.Fail(row, "ib_write_bw", err)
	}
	if n == 1 {
		return
	}
	argv = []string{"cmtime", "-s", b.address, "-b", b.address, "-c", row}
	if v, err := b.cmtime(argv); err != nil {
		rate.Fail(row, "cmtime", err)
	} else {
		rate.Add(row, "cmtime", show(argv), float64(n)/v.Seconds())
	}
}

// cmtime returns the time that all connections took, from creating identifiers to established.
func (b *bench) cmtime(argv []string) (time.Duration, error) {
	server, err := start(pairTime, nil, "cmtime", "-b", b.address)
	if err != nil {
		return 0, err
	}
	defer server.stop()
	time.Sleep(time.Second) // it does not say when it listens
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

// scaled is what n connected endpoints gave.
type scaled struct {
	perEvent float64 // ns
	connects float64 // per second
	heap     float64 // bytes per endpoint
	resident float64
}

// connectTime bounds everything that waits here.
const connectTime = time.Minute

// connectAtOnce is how many connections are under way at a time.
const connectAtOnce = 32

// measureScale connects n endpoints on one EVD with n others in this process, and writes through
// them.
func measureScale(device string, n, events int) (s scaled, err error) {
	ia, err := udat.Open(device)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, ia.Close(udat.CloseAbrupt)) }()
	pz, err := ia.CreatePZ()
	if err != nil {
		return s, err
	}
	mem, err := ia.AllocLMR(pz, 4096, udat.PrivAll)
	if err != nil {
		return s, err
	}
	depth := (window + n - 1) / n
	var evds []*udat.EVD
	for _, e := range []struct {
		qlen  int
		flags udat.EVDFlags
	}{
		{2 * n * (depth + 1), udat.EVDDTO}, {2 * n * (depth + 1), udat.EVDDTO},
		{4*n + 16, udat.EVDConnection}, {4*n + 16, udat.EVDConnection | udat.EVDCR},
	} {
		evd, err := ia.CreateEVD(e.qlen, e.flags, nil)
		if err != nil {
			return s, err
		}
		evds = append(evds, evd)
	}
	dto, peerDTO, conn, peerConn := evds[0], evds[1], evds[2], evds[3]
	qual, _, err := ia.CreatePSPAny(peerConn, udat.PSPConsumer)
	if err != nil {
		return s, err
	}
	heap, resident := memoryUse()
	begin := time.Now()
	attr := &udat.EPAttr{MaxRequestDTOs: depth, MaxRecvDTOs: 1, MaxRequestIOV: 1, MaxRecvIOV: 1}
	eps, peers := make([]*udat.EP, n), make([]*udat.EP, n)
	for i := range n {
		if eps[i], err = ia.CreateEP(pz, dto, dto, conn, attr); err != nil {
			return s, fmt.Errorf("endpoint %d: %w", i, err)
		}
		if peers[i], err = ia.CreateEP(pz, peerDTO, peerDTO, peerConn, attr); err != nil {
			return s, fmt.Errorf("endpoint %d: %w", n+i, err)
		}
	}
	accepted := make(chan error, 1)
	go func() { accepted <- acceptAll(peerConn, peers) }()
	if err := connectAll(ia.Addr(), qual, conn, eps); err != nil {
		return s, err
	}
	if err := <-accepted; err != nil {
		return s, err
	}
	s.connects = float64(n) / time.Since(begin).Seconds()
	heap2, resident2 := memoryUse()
	s.heap, s.resident = float64(heap2-heap)/float64(2*n), float64(resident2-resident)/float64(2*n)
	if s.perEvent, err = writeThrough(mem, dto, eps, depth, events); err != nil {
		return s, err
	}
	runtime.KeepAlive(peers)
	return s, nil
}

func connectAll(addr netip.Addr, qual udat.ConnQual, conn *udat.EVD, eps []*udat.EP) error {
	next := 0
	for up := 0; up < len(eps); up++ {
		for ; next < len(eps) && next-up < connectAtOnce; next++ {
			if err := eps[next].Connect(addr, qual, connectTime, nil, udat.QoSBestEffort, udat.ConnectDefault); err != nil {
				return err
			}
		}
		ev, _, err := conn.Wait(connectTime, 1)
		if err != nil {
			return fmt.Errorf("%d of %d connections are up: %w", up, len(eps), err)
		}
		if ev.Number != udat.EventConnectionEstablished {
			return fmt.Errorf("%d of %d connections are up: %v", up, len(eps), ev.Number)
		}
	}
	return nil
}

func acceptAll(evd *udat.EVD, eps []*udat.EP) error {
	for up, requests := 0, 0; up < len(eps); {
		ev, _, err := evd.Wait(connectTime, 1)
		if err != nil {
			return err
		}
		switch ev.Number {
		case udat.EventConnectionRequest:
			if err := ev.CR.Accept(eps[requests], nil); err != nil {
				return err
			}
			requests++
		case udat.EventConnectionEstablished:
			up++
		default:
			return fmt.Errorf("accepting: %v", ev.Number)
		}
	}
	return nil
}

// writeThrough keeps a window of writes outstanding, on the endpoints in turn, and returns the time
// per event in nanoseconds.
func writeThrough(mem *udat.LMR, dto *udat.EVD, eps []*udat.EP, depth, events int) (float64, error) {
	iov := []udat.LMRTriplet{mem.Triplet(0, 8)}
	to := mem.RMRTriplet(2048, 8)
	pending := make([]int, len(eps))
	next := 0
	post := func() error {
		for pending[next] == depth { // what came after it completed before it
			next = (next + 1) % len(eps)
		}
		if err := eps[next].PostRDMAWrite(iov, udat.Cookie(next), to, udat.CompletionDefault); err != nil {
			return err
		}
		pending[next]++
		next = (next + 1) % len(eps)
		return nil
	}
	got := make([]udat.Event, window)
	warmup := max(events/10, 2*len(eps))
	total := events + warmup
	var begin time.Time
	started := time.Now()
	for posted, done := 0, 0; done < total; {
		for ; posted < total && posted-done < window; posted++ {
			if err := post(); err != nil {
				return 0, err
			}
		}
		k, err := dto.DequeueBatch(got)
		if errors.Is(err, udat.ErrQueueEmpty) {
			if time.Since(started) > 2*connectTime {
				return 0, fmt.Errorf("%d of %d writes have completed after %v", done, total, time.Since(started))
			}
			runtime.Gosched()
			continue
		}
		if err != nil {
			return 0, err
		}
		for i := range got[:k] {
			if got[i].Status != udat.DTOSuccess {
				return 0, fmt.Errorf("a write on endpoint %d: %v", got[i].Cookie, got[i].Status)
			}
			pending[got[i].Cookie]--
		}
		if done < warmup && done+k >= warmup {
			begin = time.Now()
			total = done + k + events
		}
		done += k
	}
	return float64(time.Since(begin).Nanoseconds()) / float64(events), nil
}

// memoryUse returns the live Go heap and the resident memory in bytes.
func memoryUse() (heap, resident int64) {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	statm, _ := os.ReadFile("/proc/self/statm")
	if f := strings.Fields(string(statm)); len(f) > 1 {
		pages, _ := strconv.ParseInt(f[1], 10, 64)
		resident = pages * int64(os.Getpagesize())
	}
	return int64(m.HeapAlloc), resident
}
