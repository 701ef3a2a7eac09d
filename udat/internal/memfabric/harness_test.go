package memfabric

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat/internal/fabric"
)

// bound is how long a test waits for something that must happen. In virtual time the wait costs
// nothing.
const bound = 2 * time.Minute

var options = fabric.Options{RNRRetry: 7, Retry: 7}

// bubble runs a test in virtual time. It also finds every goroutine that outlives its object: a
// bubble does not end before its last goroutine.
func bubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, test)
}

// end is one end of a connection with all objects that it needs.
type end struct {
	t      *testing.T
	dev    *Device
	async  chan fabric.AsyncEvent
	pd     fabric.PD
	cq     fabric.CQ
	init   fabric.QPInit
	qp     fabric.QP
	mem    []byte
	mr     fabric.MR
	conn   fabric.Conn
	events chan fabric.ConnEvent
}

type endOptions struct {
	fabric.Options
	qp    fabric.QPInit // sizes, and the SRQ
	depth int           // of the CQ
	srq   int
	bytes int
}

func (o endOptions) orDefault() endOptions {
	if o.Options == (fabric.Options{}) {
		o.Options = options
	}
	if o.qp.MaxSend == 0 {
		o.qp.MaxSend = 16
	}
	if o.qp.MaxRecv == 0 {
		o.qp.MaxRecv = 16
	}
	o.qp.MaxSendSGE, o.qp.MaxRecvSGE, o.qp.MaxInline = 4, 4, 64
	if o.depth == 0 {
		o.depth = 64
	}
	if o.bytes == 0 {
		o.bytes = 4096
	}
	return o
}

func openDevice(t *testing.T, f *Fabric, o fabric.Options) (*Device, chan fabric.AsyncEvent) {
	t.Helper()
	async := make(chan fabric.AsyncEvent, 64)
	d, err := f.Open("mem0", o, func(ev fabric.AsyncEvent) { async <- ev })
	assert.NilError(t, err)
	closeAfter(t, d)
	return d.(*Device), async
}

const allAccess = fabric.LocalWrite | fabric.RemoteWrite | fabric.RemoteRead | fabric.RemoteAtomic | fabric.WindowBind

func newEnd(t *testing.T, f *Fabric, o endOptions) *end {
	t.Helper()
	o = o.orDefault()
	e := &end{t: t, events: make(chan fabric.ConnEvent, 16)}
	e.dev, e.async = openDevice(t, f, o.Options)
	var err error
	e.pd, err = e.dev.AllocPD()
	assert.NilError(t, err)
	closeAfter(t, e.pd)
	e.cq, err = e.dev.CreateCQ(o.depth)
	assert.NilError(t, err)
	closeAfter(t, e.cq)
	if o.srq > 0 {
		o.qp.SRQ, err = e.pd.CreateSRQ(o.srq, 4)
		assert.NilError(t, err)
		closeAfter(t, o.qp.SRQ)
	}
	e.mem = make([]byte, o.bytes)
	e.mr, err = e.pd.RegMR(e.mem, allAccess)
	assert.NilError(t, err)
	closeAfter(t, e.mr)
	o.qp.PD, o.qp.SendCQ, o.qp.RecvCQ = e.pd, e.cq, e.cq
	e.init = o.qp
	e.renew()
	return e
}

// renew gives the end a new queue pair. The previous one stays open.
func (e *end) renew() {
	e.t.Helper()
	var err error
	e.qp, err = e.dev.CreateQP(e.init)
	assert.NilError(e.t, err)
	closeAfter(e.t, e.qp)
}

type closer interface{ Close() error }

// closeAfter closes what the test has not closed itself.
func closeAfter(t *testing.T, c closer) {
	t.Cleanup(func() {
		if err := c.Close(); err != nil && !errors.Is(err, fabric.ErrClosed) {
			t.Error(err)
		}
	})
}

func (e *end) on(ev fabric.ConnEvent) { e.events <- ev }

// listen returns the requests that come to a free port.
func (e *end) listen() (netip.AddrPort, chan fabric.Request, fabric.Listener) {
	e.t.Helper()
	requests := make(chan fabric.Request, 16)
	l, err := e.dev.Listen(0, nil, func(r fabric.Request) { requests <- r })
	assert.NilError(e.t, err)
	closeAfter(e.t, l)
	return l.Addr(), requests, l
}

func (e *end) connect(p fabric.ConnectParams) {
	e.t.Helper()
	var err error
	e.conn, err = e.dev.Connect(e.qp, p, e.on)
	assert.NilError(e.t, err)
	closeAfter(e.t, e.conn)
}

func (e *end) accept(r fabric.Request, p fabric.AcceptParams) {
	e.t.Helper()
	var err error
	e.conn, err = r.Accept(e.qp, p, e.on)
	assert.NilError(e.t, err)
	closeAfter(e.t, e.conn)
}

// pair returns two connected ends: the first has connected, the second has accepted.
func pair(t *testing.T, o endOptions) (a, b *end) {
	t.Helper()
	f := New()
	a, b = newEnd(t, f, o), newEnd(t, f, o)
	join(t, a, b)
	return a, b
}

func join(t *testing.T, a, b *end) {
	t.Helper()
	addr, requests, l := b.listen()
	a.connect(fabric.ConnectParams{Remote: addr, ReadIn: 4, ReadOut: 4})
	b.accept(next(t, requests), fabric.AcceptParams{ReadIn: 4, ReadOut: 4})
	a.wants(fabric.EventEstablished)
	b.wants(fabric.EventEstablished)
	assert.NilError(t, l.Close())
}

// next returns the next value of c, which must come within the bound.
func next[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(bound):
		t.Fatalf("nothing came in %v", bound)
		panic("unreachable")
	}
}

func (e *end) wants(kind fabric.ConnEventKind) fabric.ConnEvent {
	e.t.Helper()
	ev := next(e.t, e.events)
	assert.Equal(e.t, ev.Kind, kind, "event %+v", ev)
	switch kind {
	case fabric.EventUnreachable, fabric.EventFailed, fabric.EventRemoved:
		assert.Assert(e.t, ev.Err != nil, "it says why")
	}
	return ev
}

func (e *end) wantsAsync(kind fabric.AsyncKind) fabric.AsyncEvent {
	e.t.Helper()
	ev := next(e.t, e.async)
	assert.Equal(e.t, ev.Kind, kind)
	return ev
}

// quiet asserts, in virtual time, that no event and no completion is coming to the end.
func (e *end) quiet() {
	e.t.Helper()
	synctest.Wait()
	select {
	case ev := <-e.events:
		e.t.Fatalf("unexpected connection event %+v", ev)
	case ev := <-e.async:
		e.t.Fatalf("unexpected asynchronous event %+v", ev)
	default:
	}
	var wcs [1]fabric.WC
	n, err := e.cq.Poll(wcs[:], 1)
	assert.NilError(e.t, err)
	assert.Equal(e.t, n, 0, "unexpected completion %+v", wcs[0])
}

// completions waits for n completions.
func (e *end) completions(n int) []fabric.WC {
	e.t.Helper()
	deadline := time.Now().Add(bound)
	wcs := make([]fabric.WC, n)
	for got := 0; ; {
		assert.NilError(e.t, e.cq.Arm(false))
		k, err := e.cq.Poll(wcs[got:], 1)
		assert.NilError(e.t, err)
		if got += k; got == n {
			return wcs
		}
		_, err = e.cq.Wait(deadline)
		assert.NilError(e.t, err, "%d of %d completions came", got, n)
	}
}

func (e *end) completion(id uint64, st fabric.Status) fabric.WC {
	e.t.Helper()
	wc := e.completions(1)[0]
	assert.Equal(e.t, wc.ID, id, "completion %+v", wc)
	assert.Equal(e.t, wc.Status, st, "completion %+v", wc)
	assert.Equal(e.t, wc.QPNum, e.qp.Num())
	return wc
}

// at returns the segment of n bytes at off of the end's region.
func (e *end) at(off, n int) fabric.SGE {
	return fabric.SGE{Addr: addrOf(e.mem) + uint64(off), Length: uint32(n), LKey: e.mr.LKey()}
}

func (e *end) recv(id uint64, sges ...fabric.SGE) {
	e.t.Helper()
	wrs := []fabric.RecvWR{{ID: id, NumSGE: uint32(len(sges))}}
	var err error
	if s := e.init.SRQ; s != nil {
		_, err = s.PostRecv(wrs, sges)
	} else {
		_, err = e.qp.PostRecv(wrs, sges)
	}
	assert.NilError(e.t, err)
}

func (e *end) post(wr fabric.SendWR, sges ...fabric.SGE) {
	e.t.Helper()
	wr.NumSGE = uint32(len(sges))
	n, err := e.qp.PostSend([]fabric.SendWR{wr}, sges)
	assert.NilError(e.t, err)
	assert.Equal(e.t, n, 1)
}

// send posts a signalled send.
func (e *end) send(id uint64, sges ...fabric.SGE) {
	e.t.Helper()
	e.post(fabric.SendWR{ID: id, Opcode: fabric.OpSend, Flags: fabric.Signaled}, sges...)
}

// remote posts a signalled operation on memory of the other end.
func (e *end) remote(id uint64, op fabric.Opcode, at fabric.SGE, sges ...fabric.SGE) {
	e.t.Helper()
	e.post(fabric.SendWR{
		ID: id, Opcode: op, Flags: fabric.Signaled, RemoteAddr: at.Addr, RKey: at.LKey,
	}, sges...)
}

// fill writes a pattern that depends on the position.
func fill(buf []byte, seed uint32) {
	for i := 0; i+4 <= len(buf); i += 4 {
		binary.LittleEndian.PutUint32(buf[i:], seed+uint32(i))
	}
}

func addrPort(port uint16) netip.AddrPort { return netip.AddrPortFrom(addr4, port) }

func addrOf(buf []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(buf)))) }

// load reads a word in host order, unseen by the race detector, as a program polls memory that a
// device writes.
//
//go:norace
func load(buf []byte) uint64 { return *(*uint64)(unsafe.Pointer(unsafe.SliceData(buf))) }

//go:norace
func store(buf []byte, v uint64) { *(*uint64)(unsafe.Pointer(unsafe.SliceData(buf))) = v }
