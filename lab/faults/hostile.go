package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/godat/godat/udat"
)

func wrongKeys(k *attack) error {
	t := k.granted.lmr.RMRTriplet(0, regionSize)
	for i, context := range []uint32{t.RMRContext + 1, t.RMRContext ^ 1<<8, t.RMRContext ^ 1<<31, 0, ^uint32(0)} {
		if err := k.tryBoth(fmt.Sprintf("wrong key %d", i), context, t.TargetAddress, 8); err != nil {
			return err
		}
	}
	return nil
}

func outOfBounds(k *attack) error {
	t := k.granted.lmr.RMRTriplet(0, regionSize)
	return errors.Join(
		k.tryBoth("one byte before the region", t.RMRContext, t.TargetAddress-1, 2),
		k.tryBoth("one byte behind the region", t.RMRContext, t.TargetAddress+regionSize-1, 2),
		k.tryBoth("the byte behind the region", t.RMRContext, t.TargetAddress+regionSize, 1),
		k.tryBoth("far below", t.RMRContext, 8, 8),
		k.tryBoth("around the end of the address space", t.RMRContext, ^uint64(0)-3, 8))
}

func wrongRights(k *attack) error {
	_, readOnly, err1 := k.region("read only", k.v.pz, udat.PrivLocalRead|udat.PrivRemoteRead)
	_, writeOnly, err2 := k.region("write only", k.v.pz, udat.PrivLocalWrite|udat.PrivRemoteWrite)
	_, private, err3 := k.region("private", k.v.pz, udat.PrivLocalRead)
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	if err := k.try("a region without remote write", false, readOnly.RMRContext, readOnly.TargetAddress, 8); err != nil {
		return err
	}
	if err := k.try("a private region", false, private.RMRContext, private.TargetAddress, 8); err != nil {
		return err
	}
	if k.r.iwarp {
		return nil // soft-iWARP does not check the right to be read
	}
	return errors.Join(
		k.try("a region without remote read", true, writeOnly.RMRContext, writeOnly.TargetAddress, 8),
		k.try("a private region", true, private.RMRContext, private.TargetAddress, 8))
}

func otherRegions(k *attack) error {
	zone, err := k.v.ia.CreatePZ()
	if err != nil {
		return err
	}
	_, other, err1 := k.region("other zone", zone, udat.PrivAll)
	freed, gone, err2 := k.region("freed", k.v.pz, udat.PrivAll)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	if err := freed.lmr.Free(); err != nil {
		return err
	}
	return errors.Join(
		k.tryBoth("the key of another zone", other.RMRContext, other.TargetAddress, 8),
		k.tryBoth("the key of a freed region", gone.RMRContext, gone.TargetAddress, 8))
}

// bind binds the window to a part of a region that has no remote rights, and returns the triplet of
// the window.
func (k *attack) bind(m *memory, off, n int) (udat.RMRTriplet, error) {
	if _, err := k.rmr.Bind(m.lmr.Triplet(off, n), udat.PrivRemoteWrite, k.v.ep, 2, udat.CompletionDefault); err != nil {
		return udat.RMRTriplet{}, err
	}
	ev, err := k.v.next()
	if err == nil && (ev.Number != udat.EventRMRBindCompletion || ev.Status != udat.DTOSuccess) {
		err = fmt.Errorf("the bind: %v %v", ev.Number, ev.Status)
	}
	return k.rmr.RMRTriplet(), err
}

func windows(k *attack) error {
	m, _, err := k.region("under the window", k.v.pz, udat.PrivLocalRead|udat.PrivLocalWrite)
	if err != nil {
		return err
	}
	if k.rmr, err = k.v.pz.CreateRMR(); err != nil {
		return err
	}
	_, _, provider, err := k.v.ia.Query()
	if err != nil {
		return err
	}
	exact := slices.ContainsFunc(provider.ProviderSpecificAttr, func(a udat.NamedAttr) bool {
		return a.Name == udat.AttrRMRExactBounds && strings.EqualFold(a.Value, "TRUE")
	})
	// Each forbidden operation gets its own connection, with a window on bytes 1024 to 2047.
	tries := []struct {
		what    string
		read    bool
		off, n  int
		rebound int // length of a second bind, which makes the first key stale; -1: none
		bounds  bool
	}{
		{"a read through a window for writes", true, 0, 8, -1, false},
		{"the key of an unbound window", false, 0, 8, 0, false},
		{"the key before the second bind", false, 0, 8, 512, false},
		{"one byte before the window", false, -1, 2, -1, true},
		{"one byte behind the window", false, 1023, 2, -1, true},
	}
	for _, t := range tries {
		if t.bounds && !exact {
			continue // docs/reliability.md says that such bounds are not checked
		}
		if err := k.connected(); err != nil {
			return err
		}
		grant, err := k.bind(m, 1024, 1024)
		if err == nil && t.rebound >= 0 {
			_, err = k.bind(m, 1024, t.rebound)
		}
		if err == nil {
			err = k.put(t.read, grant.RMRContext, grant.TargetAddress+uint64(t.off), t.n)
		}
		if err == nil {
			err = k.refused()
		}
		if err != nil {
			return fmt.Errorf("%s: %w", t.what, err)
		}
	}
	return k.rmr.Free()
}

// longSends sends messages that are one byte longer than the memory of the receive.
func longSends(k *attack) error {
	for _, n := range []int{1, 100, 2000} {
		if err := k.connected(); err != nil {
			return err
		}
		// The receive covers n bytes in the middle of the region. The Send may change only these
		// bytes.
		m, err := newMemory(k.v.ia, k.v.pz, "receive", regionSize, udat.PrivLocalRead|udat.PrivLocalWrite)
		if err != nil {
			return err
		}
		if err := k.v.ep.PostRecv(m.iov(1000, n), 3, udat.CompletionDefault); err != nil {
			return err
		}
		if err := k.a.ep.PostSend(k.a.mem.iov(0, n+1), 1, udat.CompletionDefault); err != nil {
			return err
		}
		if err := k.refused(); err != nil {
			return fmt.Errorf("%d bytes into a receive of %d: %w", n+1, n, err)
		}
		if i := changed(m.buf[:1000], emptyByte); i >= 0 {
			return fmt.Errorf("byte %d, before the receive, has changed", i)
		}
		if i := changed(m.buf[1000+n:], emptyByte); i >= 0 {
			return fmt.Errorf("byte %d behind the receive has changed", i)
		}
		if err := m.check(); err != nil {
			return err
		}
	}
	return nil
}

// noReceive sends to an endpoint without receives. The Sends wait, and noReceive disconnects. On
// iWARP they do not wait: a message without a receive ends the connection.
func noReceive(k *attack) error {
	if err := k.connected(); err != nil {
		return err
	}
	for range 32 {
		if err := k.a.ep.PostSend(k.a.mem.iov(0, 100), 1, udat.CompletionDefault); err != nil {
			return err
		}
	}
	if !k.r.iwarp {
		time.Sleep(200 * time.Millisecond)
		if ev, err := k.v.evd.Dequeue(); err == nil {
			return fmt.Errorf("the victim gets %v", ev.Number)
		}
		if err := k.a.ep.Disconnect(udat.CloseAbrupt); err != nil {
			return err
		}
	}
	ev, err := k.v.next()
	if err == nil && !slices.Contains(ended, ev.Number) {
		err = fmt.Errorf("the victim gets %v", ev.Number)
	}
	return err
}

// atOnce repeatedly connects, and disconnects at once.
func atOnce(k *attack) error {
	for range 10 {
		if err := k.connected(); err != nil {
			return err
		}
		if err := k.a.ep.Disconnect(udat.CloseAbrupt); err != nil {
			return err
		}
		if ev, err := k.v.next(); err != nil || !slices.Contains(ended, ev.Number) {
			return fmt.Errorf("the victim gets %v (%v)", ev.Number, err)
		}
	}
	return nil
}

// randomOperations posts operations whose keys and addresses are near those of the granted memory.
// Only the granted memory may change.
func randomOperations(k *attack) error {
	private, t, err := k.region("beside the grant", k.v.pz, udat.PrivLocalRead)
	if err != nil {
		return err
	}
	n := map[string]int{"mem": 500, "tcp": 500, "rxe": 60, "siw": 60}[k.r.kind]
	if k.r.long { // at least 10,000 in all rounds
		n = map[string]int{"mem": 500, "tcp": 500, "rxe": 2000, "siw": 5000}[k.r.kind]
	}
	grant := k.granted.lmr.RMRTriplet(0, regionSize)
	up := false
	for range n {
		if !up {
			if err := k.connected(); err != nil {
				return err
			}
			if err := k.v.ep.PostRecv(k.granted.iov(0, 64), 4, udat.CompletionDefault); err != nil {
				return err
			}
			up = true
		}
		random := k.r.random
		context := []uint32{grant.RMRContext, grant.RMRContext, t.RMRContext, random.Uint32()}[random.IntN(4)]
		address := []uint64{grant.TargetAddress, t.TargetAddress}[random.IntN(2)] + uint64(random.IntN(2*regionSize)) -
			regionSize/2
		length := 1 + random.IntN(regionSize/2)
		if random.IntN(8) == 0 {
			err = k.a.ep.PostSend(k.a.mem.iov(0, random.IntN(128)), 1, udat.CompletionDefault)
		} else {
			err = k.put(random.IntN(2) == 0, context, address, length)
		}
		if err != nil {
			return err
		}
		for done := false; !done; {
			ev, err := k.a.next()
			if err != nil {
				return fmt.Errorf("an operation has no end: %w", err)
			}
			switch {
			case slices.Contains(ended, ev.Number):
				up, done = false, true
			case ev.Number == udat.EventDTOCompletion && ev.Status == udat.DTOSuccess:
				done = true
			}
		}
		// A receive was used up. So the next operation gets a new connection: a further Send would
		// wait for ever.
		if ev, err := k.v.evd.Dequeue(); err == nil && ev.Number == udat.EventDTOCompletion {
			up = false
		}
	}
	if i := changed(private.buf, secretByte); i >= 0 {
		return fmt.Errorf("byte %d beside the grant has changed", i)
	}
	if err := errors.Join(private.check(), k.granted.check()); err != nil {
		return err
	}
	// The attacker may read and write the granted memory: restore both regions.
	set(k.granted.buf, secretByte)
	set(k.a.mem.buf, emptyByte)
	return nil
}

func hostileRow(name, promise string, operations func(*attack) error, notOn ...string) scenario {
	s := scenario{group: "hostile peer", name: name, promise: promise, act: attacking(operations), ends: disconnected,
		within: soon, rounds: map[string][2]int{"mem": {3, 100}, "tcp": {3, 100}, "rxe": {1, 5}, "siw": {1, 2}},
		why: map[string]string{}}
	s.leaveOut(notOn)
	return s
}

const refusal = "the operation fails, its connection ends at both ends; no byte changes or leaks; " +
	"other connections go on"

// rawSockets is a row for the fabric tcp. It runs tcp's unit tests with peers on raw sockets. Each
// of these peers breaks one rule.
var rawSockets = scenario{group: "hostile peer", tests: true, ends: disconnected, within: soon,
	name: "raw sockets: frames that break each rule, truncated, byte by byte; set-ups that are wrong, or never end",
	promise: "the connection ends, and the peer hears why; no byte changes or leaks; others are served; " +
		"other connections go on",
	act: unitTests([]string{"udat/internal/tcpfabric:TestHostileFrames", "udat/internal/tcpfabric:TestHostileOwnEnd",
		"udat/internal/tcpfabric:TestTooManyReads", "udat/internal/tcpfabric:TestBytesOneByOne",
		"udat/internal/tcpfabric:TestTruncation", "udat/internal/tcpfabric:TestBadSetups",
		"udat/internal/tcpfabric:TestSilentHandshakes", "udat/internal/tcpfabric:TestLies",
		"udat/internal/tcpfabric:TestLiesTwice"}),
	rounds: map[string][2]int{"tcp": {1, 10}},
	why:    map[string]string{"mem": "no sockets", "rxe": "no sockets", "siw": "its sockets are the driver's"}}

var hostileGroup = []scenario{
	hostileRow("wrong keys", refusal, wrongKeys),
	hostileRow("out of bounds, by one byte at either end and far", refusal, outOfBounds),
	hostileRow("regions without the right (soft-iWARP checks no right to be read)", refusal, wrongRights),
	hostileRow("keys of another zone and of freed regions", refusal, otherRegions),
	hostileRow("windows: wrong right, stale keys, bounds (not on rxe, which does not check these)", refusal, windows,
		"siw: no windows"),
	hostileRow("sends longer than the receive", refusal, longSends),
	hostileRow("sends without a receive",
		"they wait; the victim's connection ends with the attacker (on iWARP at once)", noReceive),
	hostileRow("disconnect at once, 10 times", "the victim sees each connection end", atOnce),
	hostileRow("random operations", "nothing but the grant changes; other connections go on", randomOperations),
	rawSockets,
}
