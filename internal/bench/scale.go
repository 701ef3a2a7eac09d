package main

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/godat/godat/internal/perf/result"
	"github.com/godat/godat/internal/process"
	"github.com/godat/godat/udat"
)

// endpoints on one completion queue, or one EVD.
var endpoints = []int{1, 16, 256, 1024}

// scaleTime bounds the rounds.
const scaleTime = 80 * time.Second

// window is how many operations are in flight in all, on however many endpoints.
const window = 64

// scale measures the cost of an operation on many endpoints, and the connections per second.
func (b *bench) scale(s *result.Section) error {
	const self = "ci/bench.sh scale"
	perf := func(n int) []string {
		return []string{
			"ib_write_bw", "-d", b.device, "-F", "-s", "8", "-n", strconv.Itoa(max(20, 20000/n)), "-q", strconv.Itoa(n),
			"-t", strconv.Itoa(max(1, window/n)), "-Q", "1", "-I", strconv.Itoa(inline),
		}
	}
	dat := func(n int) []string {
		return b.datperf(result.Busy, "-t", result.Write, "-m", result.Bandwidth, "-l", strings.Join(layers, ","),
			"-s", "8", "-n", strconv.Itoa(max(20*n, 20000)), "-q", strconv.Itoa(n),
			"--depth", strconv.Itoa(max(1, window/n)), "--signal", "1")
	}
	cost := &result.Table{
		Title: "Time per RDMA write of 8 bytes, by endpoints", Unit: "ns",
		Series: append([]string{"ib_write_bw"}, layers...),
		How:    []string{show(b.pin(clientEnd, perf(1))) + " " + b.address, show(dat(1))},
		Note:   fmt.Sprintf("%d writes in flight in all, at least one on each endpoint; every one is signalled.", window),
	}
	rate := &result.Table{
		Title: "Connections per second", Unit: "1/s", Series: []string{"cmtime", "udat"},
		How: []string{"cmtime -s " + b.address + " -b " + b.address + " -c $N", self},
		Note: "udat: from creating the first endpoint to the last connection established, both ends in one process. " +
			"cmtime: its steps from creating the identifier to the connection, two processes.",
	}
	s.Tables = append(s.Tables, cost, rate)
	stop, err := b.datperfServers()
	if err != nil {
		return err
	}
	defer stop()
	err = b.inRounds(scaleTime, func() error {
		for _, n := range endpoints {
			row := strconv.Itoa(n)
			out, err := b.perftest(result.Busy, perf(n))
			var bytes float64
			if err == nil {
				bytes, err = perftestBandwidth(out, 8)
			}
			if err != nil {
				cost.Fail(row, "ib_write_bw", err)
			} else {
				cost.Add(row, "ib_write_bw", show(b.pin(clientEnd, perf(n)))+" "+b.address, 8e9/bytes)
			}
			b.both(cost, row, dat(n), func(layer, command string, total *result.Stream) {
				cost.Add(row, layer, command, 1e9/total.OpsS)
			})
			if n > 1 {
				b.connections(rate, self, n)
			}
		}
		return nil
	})
	if b.machine == tcg {
		return err
	}
	first := cost.Sample("1", "ib_write_bw")
	for _, r := range cost.Rows {
		c := cost.Sample(r.Name, "ib_write_bw")
		for _, layer := range layers {
			v, one := cost.Sample(r.Name, layer), cost.Sample("1", layer)
			if r.Name != "1" && c != nil && first != nil && v != nil && one != nil {
				r.Limit(layer+" grows <= 1.2 x as much as ib_write_bw", v.Ratio(one)/c.Ratio(first), 1.2)
			}
		}
	}
	rate.Mark("udat", ">=", 0.9, "cmtime")
	return err
}

// connections measures how fast n endpoints connect.
func (b *bench) connections(t *result.Table, self string, n int) {
	row := strconv.Itoa(n)
	argv := []string{"cmtime", "-s", b.address, "-b", b.address, "-c", row}
	if v, err := b.cmtime(argv); err != nil {
		t.Fail(row, "cmtime", err)
	} else {
		t.Add(row, "cmtime", show(argv), float64(n)/v.Seconds())
	}
	if v, err := connectMany(b.device, n); err != nil {
		t.Fail(row, "udat", err)
	} else {
		t.Add(row, "udat", self, float64(n)/v.Seconds())
	}
}

// cmtime returns the time that all connections took, from creating identifiers to established.
func (b *bench) cmtime(argv []string) (time.Duration, error) {
	server, err := process.Start(pairTime, nil, "cmtime", "-b", b.address)
	if err != nil {
		return 0, err
	}
	defer server.Stop()
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

// connectTime bounds everything that waits here.
const connectTime = time.Minute

// connectAtOnce is how many connections are under way at a time.
const connectAtOnce = 32

// connectMany connects n endpoints with n others of this process, and returns the time that took.
func connectMany(device string, n int) (took time.Duration, err error) {
	ia, err := udat.Open(device)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, ia.Close(udat.CloseAbrupt)) }()
	pz, err := ia.CreatePZ()
	if err != nil {
		return 0, err
	}
	var evds [3]*udat.EVD
	for i, flags := range []udat.EVDFlags{udat.EVDDTO, udat.EVDConnection, udat.EVDConnection | udat.EVDCR} {
		if evds[i], err = ia.CreateEVD(4*n+16, flags, nil); err != nil {
			return 0, err
		}
	}
	dto, conn, peerConn := evds[0], evds[1], evds[2]
	qual, _, err := ia.CreatePSPAny(peerConn, udat.PSPConsumer)
	if err != nil {
		return 0, err
	}
	begin := time.Now()
	attr := &udat.EPAttr{MaxRequestDTOs: 1, MaxRecvDTOs: 1, MaxRequestIOV: 1, MaxRecvIOV: 1}
	accepted := make(chan error, 1)
	go func() {
		accepted <- acceptAll(peerConn, n, func() (*udat.EP, error) { return ia.CreateEP(pz, dto, dto, peerConn, attr) })
	}()
	eps := make([]*udat.EP, n)
	for i := range eps {
		if eps[i], err = ia.CreateEP(pz, dto, dto, conn, attr); err != nil {
			return 0, fmt.Errorf("endpoint %d: %w", i, err)
		}
	}
	if err := connectAll(ia.Addr(), qual, conn, eps); err != nil {
		return 0, err
	}
	err = <-accepted
	return time.Since(begin), err
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

// acceptAll makes an endpoint for each of n requests, until all are connected.
func acceptAll(evd *udat.EVD, n int, create func() (*udat.EP, error)) error {
	for up := 0; up < n; {
		ev, _, err := evd.Wait(connectTime, 1)
		if err != nil {
			return err
		}
		switch ev.Number {
		case udat.EventConnectionRequest:
			ep, err := create()
			if err == nil {
				err = ev.CR.Accept(ep, nil)
			}
			if err != nil {
				return err
			}
		case udat.EventConnectionEstablished:
			up++
		default:
			return fmt.Errorf("accepting: %v", ev.Number)
		}
	}
	return nil
}
