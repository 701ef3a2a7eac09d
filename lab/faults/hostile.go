package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/godat/godat/udat"
)

// secretByte fills the victim's regions. An attack must neither read nor change any of these bytes.
const secretByte = 0x5e

const regionSize = 4096

// side is one end of a connection that a row makes in addition to the links of the round.
type side struct {
	ia  *udat.IA
	pz  *udat.PZ
	evd *udat.EVD
	ep  *udat.EP
	mem *memory
}

func newSide(device, name string) (*side, error) {
	s := &side{}
	var err error
	if s.ia, err = udat.Open(device, udat.WithRNRRetry(7)); err != nil {
		return nil, err
	}
	if s.pz, err = s.ia.CreatePZ(); err != nil {
		return s, err
	}
	s.evd, err = s.ia.CreateEVD(256, udat.EVDDTO|udat.EVDConnection|udat.EVDCR|udat.EVDRMRBind, nil)
	if err != nil {
		return s, err
	}
	s.mem, err = newMemory(s.ia, s.pz, name, regionSize, udat.PrivAll)
	return s, err
}

// close closes the adapter and frees the objects that it still has.
func (s *side) close() error {
	if s == nil {
		return nil
	}
	return s.ia.Close(udat.CloseAbrupt)
}

// next returns the next event.
func (s *side) next() (udat.Event, error) {
	ev, _, err := s.evd.Wait(patience, 1)
	return ev, err
}

// drain drops the events that are queued.
func (s *side) drain() {
	for _, err := s.evd.Dequeue(); err == nil; {
		_, err = s.evd.Dequeue()
	}
}

// attack is a connection whose active end is hostile.
type attack struct {
	r       *round
	a, v    *side
	victims []*memory // regions of the victim of which no byte may change
	granted *memory   // the region of the victim that the attacker may read and write
	rmr     *udat.RMR
	read    bool // the latest operation is an RDMA read
}

// connected creates new endpoints at both ends and connects them.
func (k *attack) connected() error {
	for _, s := range []*side{k.a, k.v} {
		if s.ep != nil {
			if err := s.ep.Free(); err != nil {
				return err
			}
		}
		s.drain()
		var err error
		attr := &udat.EPAttr{MaxRequestDTOs: 64, MaxRDMAReadIn: 4}
		if s.ep, err = s.ia.CreateEP(s.pz, s.evd, s.evd, s.evd, attr); err != nil {
			return err
		}
	}
	qual, psp, err := k.v.ia.CreatePSPAny(k.v.evd, udat.PSPConsumer)
	if err != nil {
		return err
	}
	defer psp.Free()
	if err := k.a.ep.Connect(k.v.ia.Addr(), qual, patience, nil, udat.QoSBestEffort, udat.ConnectDefault); err != nil {
		return err
	}
	ev, err := k.v.next()
	if err != nil || ev.Number != udat.EventConnectionRequest {
		return fmt.Errorf("the victim gets %v (%v) instead of a request", ev.Number, err)
	}
	if err := ev.CR.Accept(k.v.ep, nil); err != nil {
		return err
	}
	for _, s := range []*side{k.a, k.v} {
		if ev, err := s.next(); err != nil || ev.Number != udat.EventConnectionEstablished {
			return fmt.Errorf("%v (%v) instead of ESTABLISHED: %v", ev.Number, err, ev.Err())
		}
	}
	return nil
}

// refused waits until a refused operation has ended the connection at both ends. On iWARP a Send or
// write completes before the peer has seen it.
func (k *attack) refused() error {
	for _, s := range []*side{k.a, k.v} {
		failed := false
		for {
			ev, err := s.next()
			if err != nil {
				return fmt.Errorf("no end of the connection: %w", err)
			}
			if ev.Number == udat.EventDTOCompletion || ev.Number == udat.EventRMRBindCompletion {
				failed = failed || ev.Status != udat.DTOSuccess
				if s == k.a && ev.Status == udat.DTOSuccess && (!k.r.iwarp || ev.Operation == udat.DTORDMARead) {
					return errors.New("the operation succeeds")
				}
				continue
			}
			if !slices.Contains(ended, ev.Number) {
				return fmt.Errorf("event %v", ev.Number)
			}
			break
		}
		if s == k.a && !failed && (!k.r.iwarp || k.read) {
			return errors.New("the operation has no completion")
		}
	}
	return k.unchanged()
}

// unchanged checks that no byte of the victim has changed and that the attacker has read none.
func (k *attack) unchanged() error {
	for _, m := range append([]*memory{k.granted}, k.victims...) {
		if i := changed(m.buf, secretByte); i >= 0 {
			return fmt.Errorf("byte %d of region %s has changed", i, m.name)
		}
		if err := m.check(); err != nil {
			return err
		}
	}
	if i := slices.Index(k.a.mem.buf, secretByte); i >= 0 {
		return fmt.Errorf("the attacker has read a byte, which is at %d", i)
	}
	return k.a.mem.check()
}

// permitted is the control experiment: a read of the granted memory and a write to it must succeed.
func (k *attack) permitted() error {
	if err := k.connected(); err != nil {
		return err
	}
	grant := k.granted.lmr.RMRTriplet(0, regionSize)
	for _, read := range []bool{true, false} {
		if err := k.succeed(read, grant.RMRContext, grant.TargetAddress+regionSize-16, 16); err != nil {
			return err
		}
		if read && changed(k.a.mem.buf[:16], secretByte) >= 0 {
			return errors.New("the bytes read are not the victim's")
		}
		set(k.a.mem.buf, emptyByte)
	}
	until := time.Now().Add(patience) // on iWARP a write completes before it is placed
	for changed(k.granted.buf[regionSize-16:], emptyByte) >= 0 {
		if time.Now().After(until) {
			return errors.New("the write has not arrived")
		}
		time.Sleep(time.Millisecond)
	}
	set(k.granted.buf, secretByte)
	return nil
}

// put posts a write of n bytes to the remote memory, or a read from it.
func (k *attack) put(read bool, context uint32, address uint64, n int) error {
	remote := udat.RMRTriplet{RMRContext: context, TargetAddress: address, SegmentLength: uint64(n)}
	iov := k.a.mem.iov(0, n)
	k.read = read
	if read {
		return k.a.ep.PostRDMARead(iov, 1, remote, udat.CompletionDefault)
	}
	return k.a.ep.PostRDMAWrite(iov, 1, remote, udat.CompletionDefault)
}

// succeed is like put, and waits for the completion, which must be a success.
func (k *attack) succeed(read bool, context uint32, address uint64, n int) error {
	if err := k.put(read, context, address, n); err != nil {
		return err
	}
	if ev, err := k.a.next(); err != nil || ev.Status != udat.DTOSuccess {
		return fmt.Errorf("%v %v (%v)", ev.Operation, ev.Status, err)
	}
	return nil
}

// try makes a new connection, posts one forbidden write or read, and expects its refusal.
func (k *attack) try(what string, read bool, context uint32, address uint64, n int) error {
	err := k.connected()
	if err == nil {
		if err = k.put(read, context, address, n); err == nil {
			err = k.refused()
		}
	}
	if err != nil {
		way := "write"
		if read {
			way = "read"
		}
		return fmt.Errorf("%s (%s): %w", what, way, err)
	}
	return nil
}

// tryBoth calls try for a write and for a read.
func (k *attack) tryBoth(what string, context uint32, address uint64, n int) error {
	if err := k.try(what, false, context, address, n); err != nil {
		return err
	}
	return k.try(what, true, context, address, n)
}

// region registers a new region of the victim. No byte of this region may change.
func (k *attack) region(name string, pz *udat.PZ, priv udat.MemPriv) (*memory, udat.RMRTriplet, error) {
	m, err := newMemory(k.v.ia, pz, name, regionSize, priv)
	if err != nil {
		return nil, udat.RMRTriplet{}, err
	}
	set(m.buf, secretByte)
	k.victims = append(k.victims, m)
	return m, m.lmr.RMRTriplet(0, regionSize), nil
}

// attacking returns the function of a scenario: a hostile peer performs the operations on a
// connection of its own, while the round's links must continue their traffic.
func attacking(operations func(*attack) error) func(*round) error {
	return func(r *round) error {
		return attacked(r, func(k *attack) error { return k.run(operations) })
	}
}

// attacked opens both adapters of an attack, calls f, and closes the adapters.
func attacked(r *round, f func(*attack) error) (err error) {
	k := &attack{r: r}
	defer func() {
		for _, s := range []*side{k.a, k.v} {
			err = errors.Join(err, s.close())
		}
	}()
	if k.v, err = newSide(r.device, "grant"); err != nil {
		return err
	}
	if k.a, err = newSide(r.device, "attacker"); err != nil {
		return err
	}
	k.granted = k.v.mem
	set(k.granted.buf, secretByte)
	return f(k)
}

func (k *attack) run(operations func(*attack) error) error {
	r := k.r
	if err := k.permitted(); err != nil {
		return fmt.Errorf("the control: %w", err)
	}
	if err := operations(k); err != nil {
		return err
	}
	if err := k.unchanged(); err != nil {
		return err
	}
	return r.goOn()
}

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
		"udat/internal/tcpfabric:TestSilentHandshakes", "udat/internal/tcpfabric:TestWaitingSends"}),
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
