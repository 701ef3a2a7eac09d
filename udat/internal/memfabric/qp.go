package memfabric

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/godat/godat/udat/internal/fabric"
)

type qpState uint32

const (
	qpInit      qpState = iota // takes receives
	qpConnected                // sends and receives
	qpError                    // flushes
	qpClosed
)

const (
	firstQPN = 0x11
	maxQPN   = 1<<24 - 1
)

// opBind is the operation of a window's binding; the value is that of verbs, where it is posted the
// same way.
const opBind fabric.Opcode = 8

// The first three groups of fields are one cache line each: what posters and the engine write, what
// they read, and what the peer's engine writes. It matters with many queue pairs in turn.
type qp struct {
	mu      sync.Mutex    // of posters, and of changes of state
	state   atomic.Uint32 // qpState; changed under mu, and only upwards
	queued  atomic.Bool   // for the engine to look at
	sq      sendQueue
	awaited atomic.Pointer[conn] // it has accepted, and hears by the first message too that the peer is ready

	dev        *Device
	num        uint32
	cut        atomic.Bool // fault: nothing passes to or from it
	pd         *pd
	sendCQ     *cq
	peer       *qp // set before the state becomes qpConnected, then fixed
	maxSendSGE int
	maxInline  int
	readOut    int // reads and atomics outstanding at the most, as initiator

	in     sync.Mutex // held by the peer's engine for the length of one message, and by the own one to flush
	readIn int        // reads and atomics outstanding at the most, as target
	recvCQ *cq
	srq    *srq
	rq     *recvQueue // its own, or that of srq
	object
	claimed bool // by a connection or an attempt at one; guarded by Fabric.mu

	held holding

	// The engine's own.
	try      try
	timer    *time.Timer
	readDone []time.Time // when the latest reads were done: a ring of as many as may be outstanding
	reads    int
	lastWQE  bool          // AsyncQPLastWQE has been told
	done     chan struct{} // of Close, which waits until the engine is through with the queue pair
}

// CreateQP makes a queue pair in the state of verbs' INIT.
func (d *Device) CreateQP(p fabric.QPInit) (fabric.QP, error) {
	const op = "create QP"
	a := &d.f.attr
	dom, _ := p.PD.(*pd)
	send, _ := p.SendCQ.(*cq)
	recv, _ := p.RecvCQ.(*cq)
	shared, _ := p.SRQ.(*srq)
	switch {
	case dom == nil || dom.dev != d:
		return nil, invalid(op, "no PD of this device")
	case send == nil || send.dev != d:
		return nil, invalid(op, "no send CQ of this device")
	case recv == nil || recv.dev != d:
		return nil, invalid(op, "no receive CQ of this device")
	case p.SRQ != nil && (shared == nil || shared.pd.dev != d):
		return nil, invalid(op, "the SRQ is not of this device")
	case p.MaxSend < 0 || p.MaxSend > a.MaxQPWR:
		return nil, invalid(op, "MaxSend %d is not in 0 to %d", p.MaxSend, a.MaxQPWR)
	case shared == nil && (p.MaxRecv < 0 || p.MaxRecv > a.MaxQPWR):
		return nil, invalid(op, "MaxRecv %d is not in 0 to %d", p.MaxRecv, a.MaxQPWR)
	case p.MaxSendSGE < 0 || p.MaxSendSGE > a.MaxSGE:
		return nil, invalid(op, "MaxSendSGE %d is not in 0 to %d", p.MaxSendSGE, a.MaxSGE)
	case shared == nil && (p.MaxRecvSGE < 0 || p.MaxRecvSGE > a.MaxSGE):
		return nil, invalid(op, "MaxRecvSGE %d is not in 0 to %d", p.MaxRecvSGE, a.MaxSGE)
	case p.MaxInline < 0 || p.MaxInline > a.MaxInline:
		return nil, invalid(op, "MaxInline %d is not in 0 to %d", p.MaxInline, a.MaxInline)
	}
	q := &qp{
		dev: d, pd: dom, sendCQ: send, recvCQ: recv, srq: shared,
		maxSendSGE: p.MaxSendSGE, maxInline: p.MaxInline,
		held: holding{soft: -1, hard: -1},
	}
	if shared != nil {
		q.rq = &shared.rq
	} else {
		q.rq = new(recvQueue)
		q.rq.init(p.MaxRecv, p.MaxRecvSGE)
	}
	q.sq.init(p.MaxSend, p.MaxSendSGE, p.MaxInline)
	if err := d.admit(op, QPs, q.parents()...); err != nil {
		return nil, err
	}
	f := d.f
	f.mu.Lock()
	q.num = f.newQPN()
	d.qps[q] = struct{}{}
	f.mu.Unlock()
	for _, c := range []*cq{send, recv} {
		c.mu.Lock()
		c.qps[q] = struct{}{}
		c.mu.Unlock()
	}
	return q, nil
}

func (q *qp) parents() []*object {
	ps := []*object{&q.pd.object, &q.sendCQ.object, &q.recvCQ.object}
	if q.srq != nil {
		ps = append(ps, &q.srq.object)
	}
	return ps
}

// newQPN takes a number in one long cycle; f.mu is held.
func (f *Fabric) newQPN() uint32 {
	for {
		n := f.nextQPN
		if f.nextQPN++; f.nextQPN > maxQPN {
			f.nextQPN = firstQPN
		}
		if _, used := f.qpns[n]; !used {
			f.qpns[n] = struct{}{}
			return n
		}
	}
}

func (q *qp) Num() uint32    { return q.num }
func (q *qp) MaxInline() int { return q.maxInline }

func (q *qp) Path() (fabric.Path, error) {
	return fabric.Path{}, fmt.Errorf("%w: %s has no packets", fabric.ErrNotSupported, deviceName)
}

func (q *qp) is(s qpState) bool { return qpState(q.state.Load()) == s }

// usable returns an error if nothing can be posted.
func (q *qp) usable(op string, s qpState) error {
	switch {
	case s == qpClosed:
		return failed(op, fabric.ErrClosed)
	case q.dev.faults.removed.Load():
		return failed(op, fabric.ErrDeviceRemoved)
	}
	return nil
}

func (q *qp) PostSend(wrs []fabric.SendWR, sges []fabric.SGE) (int, error) {
	const op = "post send"
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range wrs {
		wr := &wrs[i]
		list, err := segments(op, sges, wr.FirstSGE, wr.NumSGE, q.maxSendSGE)
		length := total(list)
		if err == nil {
			err = q.checkSend(op, wr, length)
		}
		if _, hit := q.dev.faults.post.hit(); hit && err == nil {
			err = failed(op, fabric.ErrResources)
		}
		if err != nil {
			if i > 0 {
				q.wake()
			}
			return i, err
		}
		s := q.sq.next()
		s.wr, s.length = *wr, length
		s.due = q.dev.faults.due()
		s.sges = append(s.sges[:0], list...)
		if wr.Flags&fabric.Inline != 0 {
			s.inline = s.inline[:0]
			for _, sge := range list {
				s.inline = appendRaw(s.inline, sge)
			}
		}
		q.sq.push()
	}
	if len(wrs) > 0 {
		q.wake()
	}
	return len(wrs), nil
}

// checkSend returns an error if wr cannot be posted now; mu is held.
func (q *qp) checkSend(op string, wr *fabric.SendWR, length uint64) error {
	s := qpState(q.state.Load())
	if err := q.usable(op, s); err != nil {
		return err
	}
	a := &q.dev.f.attr
	switch wr.Opcode {
	case fabric.OpSend, fabric.OpSendImm, fabric.OpWrite, fabric.OpRead:
	case fabric.OpWriteImm:
		if !a.WriteImmediate {
			return failed(op+": RDMA write with immediate", fabric.ErrNotSupported)
		}
	case fabric.OpCmpSwap, fabric.OpFetchAdd:
		if !a.Atomics {
			return failed(op+": atomic", fabric.ErrNotSupported)
		}
	case fabric.OpSendInv, fabric.OpLocalInv:
		if !a.SendInvalidate {
			return failed(op+": invalidate", fabric.ErrNotSupported)
		}
	default:
		return invalid(op, "unknown opcode %d", wr.Opcode)
	}
	switch {
	case s == qpInit:
		return failed(op+": not connected", fabric.ErrQPState)
	case length > a.MaxMessage:
		return invalid(op, "length %d is above the limit %d", length, a.MaxMessage)
	case wr.Flags&fabric.Inline != 0 && length > uint64(q.maxInline):
		return invalid(op, "inline length %d is above the limit %d", length, q.maxInline)
	case wr.Flags&fabric.Inline != 0 && sinks(wr.Opcode):
		return invalid(op, "a read or an atomic cannot be inline")
	case q.sq.full():
		return failed(op, fabric.ErrQueueFull)
	}
	return nil
}

// sinks reports whether op writes to its local memory, and so counts as a read.
func sinks(op fabric.Opcode) bool {
	return op == fabric.OpRead || op == fabric.OpCmpSwap || op == fabric.OpFetchAdd
}

// appendRaw copies inline payload in the poster's goroutine; as in verbs its key is ignored.
func appendRaw(to []byte, sge fabric.SGE) []byte {
	if sge.Length == 0 {
		return to
	}
	addr := uintptr(sge.Addr)
	src := unsafe.Slice(*(**byte)(unsafe.Pointer(&addr)), int(sge.Length))
	n := len(to)
	to = to[:n+len(src)]
	move(to[n:], src)
	return to
}

func (q *qp) PostRecv(wrs []fabric.RecvWR, sges []fabric.SGE) (int, error) {
	const op = "post receive"
	if q.srq != nil {
		return 0, invalid(op, "the queue pair takes its receives from an SRQ")
	}
	if err := q.usable(op, qpState(q.state.Load())); err != nil {
		return 0, err
	}
	for i := range wrs {
		if _, hit := q.dev.faults.post.hit(); hit {
			n, err := q.rq.push(op, wrs[:i], sges)
			if err == nil {
				err = failed(op, fabric.ErrResources)
			}
			return n, err
		}
	}
	n, err := q.rq.push(op, wrs, sges)
	if q.is(qpError) { // read after the push: either the engine's flush sees it, or this does
		q.wake()
	}
	return n, err
}

// connect prepares q for its peer, unless it is in error or closed.
func (q *qp) connect(peer *qp, in, out uint8) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.is(qpInit) {
		return false
	}
	q.peer, q.readIn, q.readOut = peer, int(in), int(out)
	q.state.Store(uint32(qpConnected))
	return true
}

func (q *qp) SetError() error {
	if q.is(qpClosed) {
		return failed("set QP to error", fabric.ErrClosed)
	}
	q.fail()
	q.awaitMessage()
	return nil
}

// awaitMessage waits for the message that is coming in. After a change to error or closed it is the
// last one.
func (q *qp) awaitMessage() {
	q.in.Lock()
	q.in.Unlock() //lint:ignore SA2001 nothing is done under the lock: holding it once is the wait
}

// fail moves to the error state once, and reports whether this call did.
func (q *qp) fail() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.is(qpError) || q.is(qpClosed) {
		return false
	}
	q.state.Store(uint32(qpError))
	q.wake()
	if q.peer != nil {
		q.peer.wake() // it may wait for a receive that will never be posted
	}
	return true
}

// fatal moves to the error state for a reason that no completion reports.
func (q *qp) fatal() {
	if q.fail() {
		q.dev.report(fabric.AsyncEvent{Kind: fabric.AsyncQPFatal, QP: q})
	}
}

func (q *qp) Close() error {
	if err := q.dev.retire("destroy QP", &q.object); err != nil {
		return err
	}
	done := make(chan struct{})
	q.mu.Lock()
	q.done = done
	q.state.Store(uint32(qpClosed))
	peer := q.peer
	q.mu.Unlock()
	q.wake()
	<-done
	if peer != nil {
		peer.rq.forget(q)
		peer.wake()
	}
	for ; q.sq.len() > 0; q.sq.pop() {
		if b := q.sq.first().bind; b != nil {
			b.cancel()
		}
	}
	q.awaitMessage()
	for _, c := range []*cq{q.sendCQ, q.recvCQ} {
		c.mu.Lock()
		delete(c.qps, q)
		c.mu.Unlock()
	}
	f := q.dev.f
	f.mu.Lock()
	delete(f.qpns, q.num)
	delete(q.dev.qps, q)
	f.mu.Unlock()
	q.dev.release(QPs, q.parents()...)
	return nil
}

// sendQueue is a ring of preallocated slots. Posters fill the next one under qp.mu; the engine
// works on the oldest.
type sendQueue struct {
	slots      []sendSlot
	head, tail atomic.Uint64 // popped and pushed in all
}

type sendSlot struct {
	wr     fabric.SendWR
	length uint64 // bytes of sges
	sges   []fabric.SGE
	inline []byte
	ahead  []byte // the engine's: the payload, where it was read behind a read under way
	bind   *binding
	due    time.Time // a fault delays it until then; zero is none
}

func (s *sendQueue) init(depth, maxSGE, maxInline int) {
	s.slots = make([]sendSlot, depth)
	sges := make([]fabric.SGE, depth*maxSGE)
	inline := make([]byte, depth*maxInline)
	for i := range s.slots {
		s.slots[i].sges = slices.Clip(sges[i*maxSGE : (i+1)*maxSGE])
		s.slots[i].inline = slices.Clip(inline[i*maxInline : (i+1)*maxInline])
	}
}

func (s *sendQueue) len() int { return int(s.tail.Load() - s.head.Load()) }

func (s *sendQueue) full() bool { return s.len() == len(s.slots) }

// next is the slot that push will add.
func (s *sendQueue) next() *sendSlot { return &s.slots[s.tail.Load()%uint64(len(s.slots))] }

func (s *sendQueue) push() { s.tail.Add(1) }

// first is the oldest slot, which nobody else touches until it is popped.
func (s *sendQueue) first() *sendSlot { return s.at(0) }

// at is the slot behind i older ones.
func (s *sendQueue) at(i int) *sendSlot {
	return &s.slots[(s.head.Load()+uint64(i))%uint64(len(s.slots))]
}

func (s *sendQueue) pop() {
	first := s.first()
	if first.bind != nil {
		first.bind = nil
	}
	if first.ahead != nil {
		first.ahead = nil
	}
	s.head.Add(1)
}
