// Package fabrictest is a test suite for the contract of package fabric. Every fabric runs the
// suite on one of its devices.
//
// Both ends of a connection are on that device. A test is skipped if the device's attributes say
// that the device cannot do what the test needs.
package fabrictest

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"
	"unsafe"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat/internal/fabric"
)

// Config says what to test.
type Config struct {
	// Open opens a device of the fabric.
	Open func(opts fabric.Options, async func(fabric.AsyncEvent)) (fabric.Device, error)
	// Unreachable is an address to which the fabric finds no path. It is invalid if there is no
	// such address.
	Unreachable netip.AddrPort
	// Cycles is the number of connections that the leak test makes.
	Cycles int
}

// patience bounds every wait for something that must happen.
const patience = 30 * time.Second

// grace is how long a test watches for something that must not happen.
const grace = 100 * time.Millisecond

// node is an open device with a protection domain. Everything that it creates is closed at the
// test's end.
type node struct {
	t     *testing.T
	dev   fabric.Device
	pd    fabric.PD
	async chan fabric.AsyncEvent
}

func newNode(t *testing.T, cfg Config, opts fabric.Options) *node {
	t.Helper()
	if opts == (fabric.Options{}) {
		opts = fabric.Options{RNRRetry: 7, Retry: fabric.DefaultRetry}
	}
	n := &node{t: t, async: make(chan fabric.AsyncEvent, 1000)}
	dev, err := cfg.Open(opts, func(ev fabric.AsyncEvent) {
		select {
		case n.async <- ev:
		default: // on some devices, an overrun completion queue repeats its event without end
		}
	})
	assert.NilError(t, err)
	n.dev = dev
	t.Cleanup(func() { assert.NilError(t, dev.Close()) })
	n.pd, err = dev.AllocPD()
	assert.NilError(t, err)
	n.cleanup(n.pd)
	return n
}

type closer interface{ Close() error }

// cleanup closes c at the test's end, unless the test has done so.
func (n *node) cleanup(c closer) {
	n.t.Cleanup(func() {
		if err := c.Close(); err != nil && !errors.Is(err, fabric.ErrClosed) {
			n.t.Errorf("closing %T: %v", c, err)
		}
	})
}

// settings are the sizes and the SRQ of an end. If depth or sges is 0, newEnd uses a default.
type settings struct {
	depth  int
	sges   int
	inline int
	srq    fabric.SRQ
}

// end is a queue pair with its completion queues, its memory, and later its connection.
type end struct {
	*node
	qp       fabric.QP
	scq, rcq fabric.CQ
	mr       fabric.MR
	mem      []byte
	conn     fabric.Conn
	events   chan fabric.ConnEvent
}

const memSize = 64 << 10

func (n *node) newEnd(s settings) *end {
	n.t.Helper()
	if s.depth == 0 {
		s.depth = 16
	}
	if s.sges == 0 {
		s.sges = 1
	}
	e := &end{node: n, mem: make([]byte, memSize), events: make(chan fabric.ConnEvent, 16)}
	e.scq, e.rcq = n.newCQ(2*s.depth), n.newCQ(2*s.depth)
	e.mr = n.register(e.mem, fabric.LocalWrite|fabric.RemoteRead|fabric.RemoteWrite|n.atomic()|n.bindable())
	qp, err := n.dev.CreateQP(fabric.QPInit{
		PD: n.pd, SendCQ: e.scq, RecvCQ: e.rcq, SRQ: s.srq,
		MaxSend: s.depth, MaxRecv: s.depth, MaxSendSGE: s.sges, MaxRecvSGE: s.sges, MaxInline: s.inline,
	})
	assert.NilError(n.t, err)
	e.qp = qp
	n.cleanup(qp)
	return e
}

func (n *node) newCQ(depth int) fabric.CQ {
	n.t.Helper()
	cq, err := n.dev.CreateCQ(depth)
	assert.NilError(n.t, err)
	n.cleanup(cq)
	return cq
}

// register pins Go memory and registers it.
func (n *node) register(mem []byte, access fabric.Access) fabric.MR {
	n.t.Helper()
	var pin runtime.Pinner
	pin.Pin(&mem[0])
	mr, err := n.pd.RegMR(mem, access)
	assert.NilError(n.t, err)
	n.t.Cleanup(pin.Unpin)
	n.cleanup(mr)
	return mr
}

// iwarp reports whether the device is plain iWARP. Then a send does not wait for a receive,
// requests complete before the peer has checked them, and the driver itself ends the queue pair
// when the connection ends.
func (n *node) iwarp() bool { return !n.dev.Attr().PeerToPeer }

func (n *node) atomic() fabric.Access {
	if n.dev.Attr().Atomics {
		return fabric.RemoteAtomic
	}
	return 0
}

func (n *node) bindable() fabric.Access {
	if n.dev.Attr().MaxMW > 0 {
		return fabric.WindowBind
	}
	return 0
}

// on is the end's connection handler.
func (e *end) on(ev fabric.ConnEvent) { e.events <- ev }

// event waits for the end's next connection event, and checks that its kind is want.
func (e *end) event(want fabric.ConnEventKind) fabric.ConnEvent {
	e.t.Helper()
	select {
	case ev := <-e.events:
		if ev.Kind != want {
			e.t.Fatalf("connection event %s (%v), want %s", kindText(ev.Kind), ev.Err, kindText(want))
		}
		return ev
	case <-time.After(patience):
		e.t.Fatalf("no connection event, want %s", kindText(want))
		panic("unreachable")
	}
}

// failAccept waits for the outcome of an accept whose requester has given up. On iWARP an accept
// succeeds once the reply is sent, so the connection may be established and then end at once.
func (e *end) failAccept() {
	e.t.Helper()
	if !e.iwarp() {
		e.event(fabric.EventFailed)
		return
	}
	select {
	case ev := <-e.events:
		switch ev.Kind {
		case fabric.EventFailed:
		case fabric.EventEstablished:
			e.event(fabric.EventDisconnected)
		default:
			e.t.Fatalf("connection event %s (%v), want failed, or established and disconnected", kindText(ev.Kind), ev.Err)
		}
	case <-time.After(patience):
		e.t.Fatal("no connection event, want failed, or established and disconnected")
	}
}

// noEvent checks that no connection event comes for as long as the constant grace says.
func (e *end) noEvent() {
	e.t.Helper()
	select {
	case ev := <-e.events:
		e.t.Fatalf("connection event %s (%v), want none", kindText(ev.Kind), ev.Err)
	case <-time.After(grace):
	}
}

func kindText(k fabric.ConnEventKind) string {
	names := []string{"established", "peer-rejected", "rejected", "unreachable", "failed", "disconnected", "removed"}
	if int(k) < len(names) {
		return names[k]
	}
	return fmt.Sprint("kind ", int(k))
}

// service is a listener that collects its requests.
type service struct {
	fabric.Listener
	t        *testing.T
	requests chan fabric.Request
}

func (n *node) listen() *service {
	n.t.Helper()
	s := &service{t: n.t, requests: make(chan fabric.Request, 1000)}
	l, err := n.dev.Listen(0, nil, func(r fabric.Request) { s.requests <- r })
	assert.NilError(n.t, err)
	s.Listener = l
	n.cleanup(l)
	return s
}

func (s *service) request() fabric.Request {
	s.t.Helper()
	select {
	case r := <-s.requests:
		return r
	case <-time.After(patience):
		s.t.Fatal("no connection request")
		panic("unreachable")
	}
}

// connect starts connecting the end to a service.
func (e *end) connect(s *service, p fabric.ConnectParams) {
	e.t.Helper()
	e.connectTo(s.Addr(), p)
}

func (e *end) connectTo(addr netip.AddrPort, p fabric.ConnectParams) {
	e.t.Helper()
	p.Remote = addr
	c, err := e.dev.Connect(e.qp, p, e.on)
	assert.NilError(e.t, err)
	e.conn = c
	e.cleanup(c)
}

// accept accepts a connection request with the queue pair of e.
func (e *end) accept(r fabric.Request, p fabric.AcceptParams) {
	e.t.Helper()
	c, err := r.Accept(e.qp, p, e.on)
	assert.NilError(e.t, err)
	e.conn = c
	e.cleanup(c)
}

// pair makes two connected ends; a is the active one.
func (n *node) pair(s settings) (a, b *end) {
	n.t.Helper()
	a, b = n.newEnd(s), n.newEnd(s)
	n.join(a, b)
	return a, b
}

func (n *node) join(a, b *end) {
	n.t.Helper()
	s := n.listen()
	depth := uint8(min(4, n.dev.Attr().MaxReadIn, n.dev.Attr().MaxReadOut))
	a.connect(s, fabric.ConnectParams{ReadIn: depth, ReadOut: depth})
	b.accept(s.request(), fabric.AcceptParams{ReadIn: depth, ReadOut: depth})
	a.event(fabric.EventEstablished)
	b.event(fabric.EventEstablished)
	assert.NilError(n.t, s.Close())
}

// seg returns n bytes of the end's memory, from offset off on, as a segment.
func (e *end) seg(off, n int) fabric.SGE {
	return fabric.SGE{Addr: e.addr(off), Length: uint32(n), LKey: e.mr.LKey()}
}

// split returns at most k segments that make up mem[off:off+n]. None of them is empty, because an
// empty segment crashes the kernel with soft-iWARP of Linux 6.1.
func (e *end) split(off, n, k int) (segs []fabric.SGE) {
	for ; k > 0; k-- {
		if part := n / k; part > 0 {
			segs = append(segs, e.seg(off, part))
			off, n = off+part, n-part
		}
	}
	return segs
}

func (e *end) addr(off int) uint64 { return uint64(uintptr(unsafe.Pointer(&e.mem[off]))) }

// send posts one send work request, whose memory is mem[off:off+n].
func (e *end) send(wr fabric.SendWR, off, n int) {
	e.t.Helper()
	segs := e.split(off, n, 1)
	wr.NumSGE = uint32(len(segs))
	k, err := e.qp.PostSend([]fabric.SendWR{wr}, segs)
	assert.NilError(e.t, err)
	assert.Equal(e.t, k, 1)
}

// recv posts one receive over mem[off:off+n].
func (e *end) recv(id uint64, off, n int) {
	e.t.Helper()
	segs := e.split(off, n, 1)
	k, err := e.qp.PostRecv([]fabric.RecvWR{{ID: id, NumSGE: uint32(len(segs))}}, segs)
	assert.NilError(e.t, err)
	assert.Equal(e.t, k, 1)
}

// complete waits for n completions. It arms the queue and sleeps until the queue notifies.
func complete(t *testing.T, cq fabric.CQ, n int) []fabric.WC {
	t.Helper()
	wcs, err := await(cq, n, patience)
	if err != nil {
		t.Fatalf("%d completions of %d: %v", len(wcs), n, err)
	}
	return wcs
}

func await(cq fabric.CQ, n int, limit time.Duration) ([]fabric.WC, error) {
	deadline := time.Now().Add(limit)
	wcs := make([]fabric.WC, n)
	got := 0
	for armed := false; ; {
		k, err := cq.Poll(wcs[got:], 1)
		got += k
		if err != nil || got == n {
			return wcs[:got], err
		}
		switch {
		case !armed:
			if err := cq.Arm(false); err != nil {
				return wcs[:got], err
			}
			armed = true // and poll once more
		default:
			if _, err := cq.Wait(deadline); err != nil {
				return wcs[:got], err
			}
			armed = false
		}
	}
}

// awaitOne waits for one completion, which must have the given id and status.
func awaitOne(t *testing.T, cq fabric.CQ, id uint64, status fabric.Status) fabric.WC {
	t.Helper()
	wc := complete(t, cq, 1)[0]
	if wc.ID != id || wc.Status != status {
		t.Fatalf("completion %d: %v (vendor %#x), want %d: %v", wc.ID, wc.Status, wc.VendorErr, id, status)
	}
	return wc
}

// awaitNone checks that no completion comes for as long as the constant grace says.
func awaitNone(t *testing.T, cq fabric.CQ) {
	t.Helper()
	if wcs, err := await(cq, 1, grace); err == nil {
		t.Fatalf("completion %d: %v, want none", wcs[0].ID, wcs[0].Status)
	} else if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
}

// asyncEvent waits for an asynchronous event.
func (n *node) asyncEvent(want fabric.AsyncKind) fabric.AsyncEvent {
	n.t.Helper()
	select {
	case ev := <-n.async:
		if ev.Kind != want {
			n.t.Fatalf("asynchronous event %d, want %d", ev.Kind, want)
		}
		return ev
	case <-time.After(patience):
		n.t.Fatalf("no asynchronous event, want %d", want)
		panic("unreachable")
	}
}

// A call of together runs f in n goroutines and waits for them.
func together(n int, f func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}
