package udat

import (
	"sync/atomic"

	"github.com/godat/godat/udat/internal/fabric"
)

// workQueue is the account of one queue of an endpoint: what has been posted and has not completed. The poster owns
// the tail, under the endpoint's lock for that queue; the dispatcher that completions come to owns the head, under
// its own lock. Work completes in the order in which it was posted.
//
// Successful suppressed work makes no completion: it is done when a later one is, so that the head may move over many.
type workQueue struct {
	ep      *EP
	evd     *EVD
	id      uint64 // upper half of the work request ids
	receive bool
	entries []workEntry
	limit   uint32 // the Consumer's; the entries are a few more
	head    atomic.Uint32
	tail    atomic.Uint32

	segments []fabric.SGE // of receives posted outside a connection: stride for each entry
	stride   int

	// Guarded by the dispatcher's lock.
	holding bool // completions wait in held until the connection is established
	held    []heldEvent
}

type heldEvent struct {
	ev     Event
	notify bool
}

// workEntry is one piece of work that has been posted.
type workEntry struct {
	cookie Cookie
	lmr    *LMR   // of the first segment that is not empty
	length uint64 // of a bind: its serial
	rmr    *RMR   // of a bind
	op     DTOOperation
	flags  entryFlags

	segments uint16 // of a receive, where keep has noted them
}

type entryFlags uint8

const (
	entrySuppressed  entryFlags = 1 << iota // success makes no event
	entryUnsignalled                        // the event notifies nobody
	entryInternal                           // posted by the library: no event at all
)

// spareEntries is how many entries a queue has beyond the Consumer's limit: work that the library posts to learn that
// suppressed work before it is done.
const spareEntries = 1

func newWorkQueue(ep *EP, evd *EVD, limit int, receive bool) *workQueue {
	size := 1
	for size < limit+spareEntries {
		size *= 2
	}
	q := &workQueue{ep: ep, evd: evd, receive: receive, limit: uint32(limit), entries: make([]workEntry, size)}
	if receive {
		q.stride = max(ep.attr.MaxRecvIOV, 1)
		q.segments = make([]fabric.SGE, size*q.stride)
	}
	return q
}

func (q *workQueue) entry(seq uint32) *workEntry { return &q.entries[seq&uint32(len(q.entries)-1)] }

// outstanding is the number posted and not completed.
func (q *workQueue) outstanding() int { return int(q.tail.Load() - q.head.Load()) }

// heldBack is the number of receives that have completed and whose events wait for the connection's own.
func (q *workQueue) heldBack() int {
	q.evd.mu.Lock()
	defer q.evd.mu.Unlock()
	return len(q.held)
}

// done says whether all work before seq has completed.
func (q *workQueue) done(seq uint32) bool { return int32(q.head.Load()-seq) >= 0 }

// forgetBinds tells the windows that the outcome of binds that are outstanding will never be known.
func (q *workQueue) forgetBinds() {
	for seq := q.head.Load(); seq != q.tail.Load(); seq++ {
		if en := q.entry(seq); en.rmr != nil {
			en.rmr.forget(en.length)
		}
	}
}

// clear forgets all outstanding work; completions of it that still come are dropped. Both locks are held.
func (q *workQueue) clear() {
	q.forgetBinds()
	q.head.Store(q.tail.Load())
	q.dropHeld()
}

// dropHeld forgets what was held back; the dispatcher's lock is held.
func (q *workQueue) dropHeld() {
	for i := range q.held {
		q.held[i].ev.lost()
	}
	q.holding, q.held = false, nil
}

// complete turns a completion into an event on the dispatcher; e.mu is held.
func (e *EVD) complete(wc *fabric.WC) {
	if wc.ID&srqID != 0 {
		e.completeSRQ(wc)
		return
	}
	q := e.sources.find(wc.ID)
	if q == nil {
		return // of an endpoint that has been freed
	}
	seq := uint32(wc.ID)
	head := q.head.Load()
	if seq-head >= q.tail.Load()-head {
		return // of work that a reset has forgotten
	}
	en := *q.entry(seq)
	q.head.Store(seq + 1)
	if en.rmr != nil {
		en.rmr.settle(en.length, wc.Status == fabric.StatusSuccess)
	}
	if wc.Status != fabric.StatusSuccess {
		e.fail(q.ep, wc.Status)
	}
	if en.flags&entryInternal != 0 || (wc.Status == fabric.StatusSuccess && en.flags&entrySuppressed != 0) {
		return
	}
	if e.discard {
		return
	}
	e.deliver(q, &en, wc, nil)
}

// fail notes that work of an endpoint has failed.
func (e *EVD) fail(ep *EP, status fabric.Status) {
	l := ep.link.Load()
	if l == nil {
		return
	}
	flushed := status == fabric.StatusFlush
	if !flushed {
		l.failed.Store(true)
	}
	if s := ep.getState(); s != EPDisconnected && s != epFreed {
		e.failed = append(e.failed, failure{ep: ep, link: l, flushed: flushed})
	}
}

// deliver queues the event of a completion, or holds it back until the connection's own event is queued.
func (e *EVD) deliver(q *workQueue, en *workEntry, wc *fabric.WC, srq *SRQ) {
	ev := Event{Number: EventDTOCompletion, EP: q.ep, srq: srq, Cookie: en.cookie, Operation: en.op, Length: en.length}
	notify := en.flags&entryUnsignalled == 0
	if q.receive {
		if wc.Status == fabric.StatusSuccess {
			received(&ev, wc)
		}
		notify = notify && !(e.streams.solicitedOnly() && e.armed) // the device will tell
	}
	if en.op == DTOBind {
		ev.Number, ev.RMR, ev.Length = EventRMRBindCompletion, en.rmr, 0
	}
	if wc.Status != fabric.StatusSuccess {
		ev.Status, ev.RawStatus, ev.VendorError = q.status(en, wc.Status), uint32(wc.Status), wc.VendorErr
		ev.Length = 0
		notify = true
	}
	if q.holding {
		q.held = append(q.held, heldEvent{ev, en.flags&entryUnsignalled == 0 || wc.Status != fabric.StatusSuccess})
		return
	}
	e.push(&ev, notify)
}

// received fills in what only the completion of a receive knows.
func received(ev *Event, wc *fabric.WC) {
	ev.Length = uint64(wc.ByteLen)
	switch {
	case wc.Flags&fabric.WCWithInv != 0:
		ev.Operation, ev.RMRContext = DTOReceiveInv, wc.Imm
		ev.EP.obj.ia.windows.invalidated(wc.Imm)
	case wc.Flags&fabric.WCWithImm != 0 && wc.Opcode == fabric.OpWCRecvWithImm:
		ev.Operation, ev.Immediate, ev.HasImmediate = DTOReceiveWriteImm, wc.Imm, true
	case wc.Flags&fabric.WCWithImm != 0:
		ev.Operation, ev.Immediate, ev.HasImmediate = DTOReceiveImm, wc.Imm, true
	}
}

// release queues what was held back; the dispatcher's lock is taken.
func (q *workQueue) release() {
	q.evd.mu.Lock()
	defer q.evd.mu.Unlock()
	q.pushHeld()
	q.evd.rouse()
}

// releaseAfter queues the event of the connection on its dispatcher, which may be nil, and what was held back until then.
// Whoever has taken the event finds nothing held back: on one dispatcher both are one step, and where there are two the
// completions, which need no order between them, come first.
func (q *workQueue) releaseAfter(to *EVD, ev *Event) {
	if to != q.evd {
		q.release()
		to.post(ev)
		return
	}
	to.mu.Lock()
	defer to.mu.Unlock()
	to.push(ev, true)
	q.pushHeld()
	to.rouse()
}

// pushHeld queues what was held back; the dispatcher's lock is held.
func (q *workQueue) pushHeld() {
	held := q.held
	q.holding, q.held = false, nil
	for i := range held {
		q.evd.push(&held[i].ev, held[i].notify)
	}
}

// hold makes completions wait for release.
func (q *workQueue) hold() {
	q.evd.mu.Lock()
	q.holding = true
	q.evd.mu.Unlock()
}

// status is the DAT status of work that failed. Some devices (rxe) call a bad local key, and a message that is too long
// for its receive, an operation error: the keys were good when the work was posted, so that they tell which it is.
func (q *workQueue) status(en *workEntry, s fabric.Status) DTOStatus {
	if s != fabric.StatusLocalQPOp {
		return dtoStatus(s)
	}
	switch l := en.lmr; {
	case l != nil && (!l.obj.live.Load() || l.pz != q.ep.pz):
		return DTOErrLocalProtection
	case q.receive:
		return DTOErrLocalLength
	}
	return DTOErrLocalEP
}

// dtoStatus is the DAT status of a fabric's.
func dtoStatus(s fabric.Status) DTOStatus {
	switch s {
	case fabric.StatusSuccess:
		return DTOSuccess
	case fabric.StatusFlush:
		return DTOErrFlushed
	case fabric.StatusLocalLength:
		return DTOErrLocalLength
	case fabric.StatusLocalQPOp:
		return DTOErrLocalEP
	case fabric.StatusLocalProt, fabric.StatusLocalAccess, fabric.StatusLocalRDD:
		return DTOErrLocalProtection
	case fabric.StatusBadResponse:
		return DTOErrBadResponse
	case fabric.StatusRemoteAccess:
		return DTOErrRemoteAccess
	case fabric.StatusRemoteInvReq, fabric.StatusRemoteOp, fabric.StatusRemoteInvRD, fabric.StatusRemoteAborted:
		return DTOErrRemoteResponder
	case fabric.StatusRNRExceeded:
		return DTOErrReceiverNotReady
	case fabric.StatusMWBind:
		return RMROperationFailed
	}
	return DTOErrTransport
}
