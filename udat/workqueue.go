package udat

import (
	"math"

	"github.com/godat/godat/udat/internal/fabric"
)

// workQueue is the account of one queue of an endpoint: what has been posted and has not completed. The poster owns
// the tail, under the endpoint's lock for that queue (the poster's lock below); the dispatcher that completions come to owns the
// head, under its own lock. The poster looks at the head only when the queue seems full: each has its lock already, so
// that neither needs another locked instruction for the other. Work completes in the order in which it was posted.
//
// Successful suppressed work makes no completion: it is done when a later one is, so that the head may move over many.
type workQueue struct {
	ep      *EP
	evd     *EVD
	id      uint64 // upper half of the work request ids
	receive bool
	entries []workEntry
	limit   uint32 // the Consumer's; the entries are a few more

	// Guarded by the poster's lock.
	tail  uint32 // the next to be posted
	freed uint32 // completed, as the poster last saw it

	segments []fabric.SGE // of receives posted outside a connection: stride for each entry
	stride   int

	// Guarded by the dispatcher's lock.
	completed uint32 // the first that has not completed

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

// set fills in the entry of a data transfer. Pointers that are there already are not written: that costs a look at the garbage
// collector's state.
func (en *workEntry) set(cookie Cookie, length uint64, op DTOOperation, flags entryFlags, l *LMR) {
	en.cookie, en.length, en.op, en.flags = cookie, length, op, flags
	if en.lmr != l {
		en.lmr = l
	}
	if en.rmr != nil {
		en.rmr = nil
	}
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
		q.stride = ep.attr.MaxRecvIOV
		q.segments = make([]fabric.SGE, size*q.stride)
	}
	return q
}

func (q *workQueue) entry(seq uint32) *workEntry { return &q.entries[seq&uint32(len(q.entries)-1)] }

// head is the first that has not completed; the dispatcher's lock is free.
func (q *workQueue) head() uint32 {
	q.evd.mu.Lock()
	head := q.completed
	q.evd.mu.Unlock()
	return head
}

// outstanding is the number posted and not completed; the poster's lock is held.
func (q *workQueue) outstanding() int {
	q.freed = q.head()
	return int(q.tail - q.freed)
}

// full says whether there is no room for one more than those posted and more; the poster's lock is held.
func (q *workQueue) full(more int) bool {
	return q.tail+uint32(more)-q.freed >= q.limit && q.outstanding()+more >= int(q.limit)
}

// heldBack is the number of receives that have completed and whose events wait for the connection's own.
func (q *workQueue) heldBack() int {
	q.evd.mu.Lock()
	defer q.evd.mu.Unlock()
	return len(q.held)
}

// done says whether all work before seq has completed.
func (q *workQueue) done(seq uint32) bool { return int32(q.head()-seq) >= 0 }

// forgetBinds tells the windows that the outcome of binds that are outstanding will never be known; the poster's lock is held.
func (q *workQueue) forgetBinds(head uint32) {
	for seq := head; seq != q.tail; seq++ {
		if en := q.entry(seq); en.rmr != nil {
			en.rmr.forget(en.length)
		}
	}
}

// clear forgets all outstanding work; completions of it that still come are dropped. Both locks are held.
func (q *workQueue) clear() {
	q.forgetBinds(q.completed)
	q.completed, q.freed = q.tail, q.tail
}

// dropHeld forgets what was held back; the dispatcher's lock is held.
func (q *workQueue) dropHeld() {
	for i := range q.held {
		q.held[i].ev.lost()
	}
	q.holding, q.held = false, nil
}

// completeSimple is complete for what happens most, requests that succeed and make an event. It takes the completions up to the
// first that is not so, or is of another queue, and gives their number.
func (e *EVD) completeSimple(q *workQueue, wcs []fabric.WC, to []Event) int {
	if q.receive || e.discard {
		return 0
	}
	for i := range wcs {
		wc := &wcs[i]
		seq := uint32(wc.ID)
		en := q.entry(seq)
		if wc.ID&^math.MaxUint32 != q.id || wc.Status != fabric.StatusSuccess || int32(seq-q.completed) < 0 || en.flags != 0 || en.rmr != nil {
			return i
		}
		q.completed = seq + 1
		ev := e.given(to)
		if ev == nil {
			if ev = e.place(); ev == nil {
				continue
			}
		}
		ev.Number, ev.EVD, ev.EP = EventDTOCompletion, e, q.ep
		ev.Cookie, ev.Length, ev.Operation = en.cookie, en.length, en.op
		e.notified = true
		if e.cno != nil {
			e.notify(true)
		}
	}
	return len(wcs)
}

// complete turns a completion of a queue's work into an event, if it makes one; e.mu is held. The event takes the next of the
// places of to, or one on the ring.
func (e *EVD) complete(q *workQueue, wc *fabric.WC, to []Event) {
	seq := uint32(wc.ID)
	if int32(seq-q.completed) < 0 {
		return // of work that a reset has forgotten
	}
	q.completed = seq + 1
	en := q.entry(seq)
	failed := wc.Status != fabric.StatusSuccess
	if en.rmr != nil {
		en.rmr.settle(en.length, wc.Status)
	}
	if failed {
		e.fail(q.ep, wc.Status)
	}
	if en.flags&entryInternal != 0 || (!failed && en.flags&entrySuppressed != 0) || e.discard {
		return
	}
	e.deliver(q, en, wc, nil, to)
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
	if ep.getState() != EPDisconnected {
		e.failed = append(e.failed, failure{ep: ep, link: l, flushed: flushed})
	}
}

// given gives the next of the caller's places, empty; nil if there is none, or if the ring has earlier events.
func (e *EVD) given(to []Event) *Event {
	if e.taken >= len(to) || e.ring.n > 0 {
		return nil
	}
	ev := &to[e.taken]
	e.taken++
	*ev = Event{}
	return ev
}

// deliver makes the event of a completion, or holds it back until the connection's own event is queued; see complete.
func (e *EVD) deliver(q *workQueue, en *workEntry, wc *fabric.WC, srq *SRQ, to []Event) {
	notify := en.flags&entryUnsignalled == 0 || wc.Status != fabric.StatusSuccess
	if q.holding {
		q.held = append(q.held, heldEvent{notify: notify})
		q.describe(&q.held[len(q.held)-1].ev, en, wc, srq)
		return
	}
	ev := e.given(to)
	if ev == nil {
		ev = e.place()
	}
	if ev == nil {
		if srq != nil {
			srq.reaped()
		}
		return
	}
	q.describe(ev, en, wc, srq)
	ev.EVD = e
	if q.receive && notify && wc.Status == fabric.StatusSuccess {
		notify = !(e.streams.solicitedOnly() && e.armed) // the device will tell
	}
	e.notify(notify)
}

// describe fills in an empty event.
func (q *workQueue) describe(ev *Event, en *workEntry, wc *fabric.WC, srq *SRQ) {
	ev.Number, ev.EP, ev.Cookie, ev.Operation, ev.Length = EventDTOCompletion, q.ep, en.cookie, en.op, en.length
	if srq != nil {
		ev.srq = srq
	}
	if en.op == DTOBind {
		ev.Number, ev.RMR, ev.Length = EventRMRBindCompletion, en.rmr, 0
	}
	if wc.Status != fabric.StatusSuccess {
		ev.Status, ev.RawStatus, ev.VendorError = q.status(en, wc.Status), uint32(wc.Status), wc.VendorErr
		ev.Length = 0
	} else if q.receive {
		received(ev, wc)
	}
}

// received fills in what only the completion of a receive knows.
func received(ev *Event, wc *fabric.WC) {
	ev.Length = uint64(wc.ByteLen)
	switch {
	case wc.Flags&fabric.WCWithInv != 0:
		ev.Operation, ev.RMRContext = DTOReceiveInv, wc.Imm
		ev.EP.obj.ia.windows.invalidated(wc.Imm)
	case wc.Flags&fabric.WCWithImm != 0 && wc.Opcode == fabric.OpWCRecvWithImm:
		ev.Operation, ev.Immediate, ev.HasImmediate = DTOReceiveWriteImm, rawImmediate(wc.Imm), true
	case wc.Flags&fabric.WCWithImm != 0:
		ev.Operation, ev.Immediate, ev.HasImmediate = DTOReceiveImm, rawImmediate(wc.Imm), true
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

// status is the DAT status of work that failed. Some devices call a bad local key, and a message that is too long for
// its receive, an operation error (rxe) or a general one (siw): the keys were good when the work was posted, so that they tell
// which it is.
func (q *workQueue) status(en *workEntry, s fabric.Status) DTOStatus {
	if s != fabric.StatusLocalQPOp && !(s == fabric.StatusGeneral && q.receive) {
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

// dtoStatus is the DAT status of a failure that the fabric has named.
func dtoStatus(s fabric.Status) DTOStatus {
	switch s {
	case fabric.StatusFlush:
		return DTOErrFlushed
	case fabric.StatusLocalLength:
		return DTOErrLocalLength
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
