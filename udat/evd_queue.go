package udat

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/godat/godat/udat/internal/fabric"
)

// This file is the queue of a dispatcher. It knows endpoints only as sources, completionSink and
// sharedQueue.

// drain moves all completions to the ring; e.mu is held.
func (e *EVD) drain() { e.drainInto(nil, 1) }

// drainInto drains all completions, and polls up to polls times for the first. Their events go to
// the slots of to while there are any, then to the ring; with slots, the ring must be empty. It
// returns the number of slots filled; e.mu is held.
func (e *EVD) drainInto(to []Event, polls int) int {
	if e.cq == nil || e.dead {
		return 0
	}
	to = to[:min(len(to), e.qlen)] // more are an overflow
	for ; ; polls = 1 {
		n, err := e.cq.Poll(e.wcs[:], polls)
		e.completeAll(e.wcs[:n], to)
		if n < len(e.wcs) || err != nil {
			n, e.taken = e.taken, 0
			return n
		}
	}
}

// completeAll settles completions in order. Those of plain sends, RDMA operations and receives that
// succeeded and produce an event it settles itself; complete has the other cases.
func (e *EVD) completeAll(wcs []fabric.WC, to []Event) {
	var s *source // of the completion before
	plain := false
	for i := range wcs {
		wc := &wcs[i]
		if s == nil || !s.inflight.owns(wc.ID) {
			if wc.ID&sharedID != 0 {
				e.completeShared(wc)
				continue
			}
			if s = e.sources.find(wc.ID); s == nil {
				continue // of an endpoint that has been freed
			}
			plain = !e.discard && !s.muted && !(s.receive && (s.deferring || e.streams.solicitedOnly()))
		}
		q, seq := &s.inflight, uint32(wc.ID)
		en := q.entry(seq)
		if !plain || wc.Status != fabric.StatusSuccess || int32(seq-q.completed) < 0 || en.flags != 0 || en.rmr != nil ||
			s.receive && wc.Flags != 0 {
			e.complete(s, wc, to)
			continue
		}
		q.completed = seq + 1
		e.waiting.active = true
		ev := e.callerSlot(to)
		if ev == nil {
			if ev = e.ringSlot(); ev == nil {
				continue
			}
		}
		ev.Number, ev.EVD, ev.EP = EventDTOCompletion, e, s.ep
		ev.Cookie, ev.Length, ev.Operation = en.cookie, en.length, en.op
		if s.receive {
			ev.Length = uint64(wc.ByteLen)
		}
		e.waiting.notified = true
		if e.cno != nil {
			e.notify(true)
		}
	}
}

// complete settles a completion and makes its event, if it has one, in the next slot of to or on
// the ring; e.mu is held.
func (e *EVD) complete(s *source, wc *fabric.WC, to []Event) {
	en := s.inflight.complete(uint32(wc.ID))
	if en == nil {
		return
	}
	failed := wc.Status != fabric.StatusSuccess
	if en.flags&entryInternal == 0 {
		e.waiting.active = true
	}
	if en.flags&entryInternal != 0 || (!failed && en.flags&entrySuppressed != 0) || e.discard || s.muted {
		e.settle(s, en, wc, nil)
		return
	}
	e.deliver(s, en, wc, nil, to)
}

// completeShared is complete for a receive of a shared queue.
func (e *EVD) completeShared(wc *fabric.WC) {
	s := e.shared[wc.QPNum]
	if s.source == nil {
		return
	}
	e.waiting.active = true
	cookie, places, ok := s.queue.claim(wc.ID)
	if !ok {
		return
	}
	en := inflightEntry{cookie: cookie, op: DTOReceive}
	switch {
	case s.muted:
		places.Add(-1)
	case e.discard:
		places.Add(-1)
		e.settle(s.source, &en, wc, nil)
	default:
		e.deliver(s.source, &en, wc, places, nil)
	}
}

// deliver makes the event of a completion, or defers it until the connection's own event is queued;
// see complete. places, unless nil, counts the event until it is taken.
func (e *EVD) deliver(s *source, en *inflightEntry, wc *fabric.WC, places *atomic.Int32, to []Event) {
	notify := en.flags&entryUnsignalled == 0 || wc.Status != fabric.StatusSuccess
	var ev, slot *Event
	if s.deferring {
		s.deferred = append(s.deferred, deferredEvent{notify: notify})
		ev, notify = &s.deferred[len(s.deferred)-1].ev, false
	} else if slot = e.callerSlot(to); slot != nil {
		ev = &e.scratch // the caller's slot would escape to the heap through the interface
	} else {
		ev = e.ringSlot()
	}
	e.settle(s, en, wc, ev)
	if ev == nil {
		if places != nil {
			places.Add(-1)
		}
		return
	}
	ev.EVD = e
	if places != nil {
		ev.places = places
	}
	if s.receive && notify && wc.Status == fabric.StatusSuccess {
		notify = !(e.streams.solicitedOnly() && e.waiting.armed) // the device notifies
	}
	if slot != nil {
		*slot, e.scratch = e.scratch, Event{}
	}
	e.notify(notify)
}

// settle passes a completion to its owner, and keeps the owner's report until the dispatcher is
// unlocked.
func (e *EVD) settle(s *source, en *inflightEntry, wc *fabric.WC, ev *Event) {
	if after := s.sink.complete(en, wc, ev); after != nil {
		e.after = append(e.after, after)
	}
}

// callerSlot returns the next unused slot of the caller's slice, empty, or nil if there is none or
// the ring has earlier events.
func (e *EVD) callerSlot(to []Event) *Event {
	if e.taken >= len(to) || e.ring.n > 0 {
		return nil
	}
	ev := &to[e.taken]
	e.taken++
	*ev = Event{}
	return ev
}

// ringSlot appends an empty event to the ring and returns it, nil if an overflowed dispatcher has
// no room left; e.mu is held.
func (e *EVD) ringSlot() *Event {
	if e.ring.n+e.taken+e.reserved >= e.qlen && e.overflow() {
		return nil
	}
	return e.ring.push()
}

// overflowRoom is the least number of events that an overflowed dispatcher keeps beyond its length.
const overflowRoom = 4096

// overflow reports the overflow, once. full means that the room beyond the queue's length is used
// up too. That room is overflowRoom events, or the depth of the completion queue if that is larger.
// The completion queue never shrinks, so events of endpoints that have been freed fit as well.
func (e *EVD) overflow() (full bool) {
	if !e.overflowed {
		e.overflowed = true
		e.obj.ia.async(e, &Event{Number: EventAsyncEVDOverflow, Object: e, Reason: ReasonEVDOverflow})
	}
	room := overflowRoom
	if e.cq != nil {
		room = max(room, e.cq.Depth())
	}
	return e.ring.n >= e.qlen+room
}

// push queues an event; e.mu is held. notify means that it may wake a waiter or trigger the
// notification object.
func (e *EVD) push(ev *Event, notify bool) {
	slot := e.ringSlot()
	if slot == nil {
		ev.freePlace()
		return
	}
	*slot = *ev
	slot.EVD = e
	e.notify(notify)
}

// notify notes a notification event, if yes, and triggers the notification object; e.mu is held.
// The waiter is woken later, by rouse, when all events have been queued.
func (e *EVD) notify(yes bool) {
	if !yes {
		return
	}
	e.waiting.notified = true
	if e.triggers() {
		e.cno.trigger(e)
	}
}

// triggers reports whether a notification event triggers the notification object now.
func (e *EVD) triggers() bool { return e.cno != nil && !e.waiting.blocked() && !e.disabled && !e.dead }

// take takes up to len(to) events, and drains the completion queue if the ring has fewer; e.mu is
// held.
func (e *EVD) take(to []Event, polls int) int {
	n := 0
	if e.ring.n == 0 {
		n = e.drainInto(to, polls)
	} else if e.ring.n < len(to) {
		e.drain()
	}
	for ; n < len(to) && e.ring.n > 0; n++ {
		e.pop(&to[n])
	}
	return n
}

// pop takes the first event of the ring; there must be one.
func (e *EVD) pop(to *Event) {
	e.ring.pop(to)
	to.freePlace()
	if e.ring.n <= e.qlen/2 {
		e.overflowed = false
	}
}

// unlock unlocks the dispatcher and reports failures. No lock of an endpoint may be held.
func (e *EVD) unlock() {
	if len(e.after) == 0 {
		e.mu.Unlock()
		return
	}
	for _, after := range e.unlockAfter() {
		after()
	}
}

// unlockLater is unlock for callers that may hold the lock of an endpoint: it reports in the
// background.
func (e *EVD) unlockLater() {
	for _, after := range e.unlockAfter() {
		go after()
	}
}

// unlockAfter unlocks the dispatcher and returns the reports of failures, for the caller to run.
func (e *EVD) unlockAfter() []func() {
	after := e.after
	e.after = nil
	e.mu.Unlock()
	return after
}

// async queues an event on the adapter's asynchronous dispatcher, or, if it has none, on those of
// the device's other adapters. from, unless nil, is a dispatcher whose lock is held.
func (ia *IA) async(from *EVD, ev *Event) {
	switch to := ia.asyncEVD; {
	case !to.object().alive() && from == nil:
		ia.asyncElsewhere(ev)
	case !to.object().alive():
		go ia.asyncElsewhere(ev)
	case from == nil:
		to.post(ev)
	case to != from: // else it is this dispatcher that overflows
		// This cannot deadlock: the second lock is always that of an asynchronous dispatcher, of
		// this adapter or of one that was opened earlier.
		to.mu.LockNested()
		to.postLocked(ev)
	}
}

// adapters is the set of all *IA that are open in this process.
var adapters sync.Map

// asyncElsewhere queues an event on the asynchronous dispatchers of the device's other adapters in
// this process; no dispatcher's lock is held.
func (ia *IA) asyncElsewhere(ev *Event) {
	told := make(map[*EVD]bool)
	adapters.Range(func(k, _ any) bool {
		other := k.(*IA)
		to := other.asyncEVD
		if to.object().alive() && !told[to] && ia.obj.alive() && other.deviceName() == ia.deviceName() {
			told[to] = true
			to.post(ev)
		}
		return true
	})
}

func (ia *IA) deviceName() string { return ia.device.Attr().Info.Name }

// post queues an event that is no completion.
func (e *EVD) post(ev *Event) {
	if e == nil {
		return
	}
	e.mu.Lock()
	e.postLocked(ev)
}

// postLocked is post on a locked dispatcher, which it unlocks.
func (e *EVD) postLocked(ev *Event) {
	e.push(ev, true)
	e.rouse()
	e.unlock()
}

// reserve takes a place on the queue for postReserved; completions of the device take places too.
// It returns false if there is none, which is no overflow.
func (e *EVD) reserve() bool {
	e.mu.Lock()
	defer e.unlockLater()
	e.drain()
	e.rouse()
	if e.dead || e.ring.n+e.reserved >= e.qlen {
		return false
	}
	e.reserved++
	return true
}

// unreserve returns a reserved place.
func (e *EVD) unreserve() {
	e.mu.Lock()
	e.reserved--
	e.mu.Unlock()
}

// postReserved queues an event on a reserved place. It returns false if the dispatcher has been
// destroyed.
func (e *EVD) postReserved(ev *Event) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.reserved--
	if e.dead {
		return false
	}
	e.push(ev, true)
	e.rouse()
	return true
}

// poll drains the completion queue for callers that do not wait on the dispatcher. They may hold
// locks of an endpoint: failures are reported in the background.
func (e *EVD) poll() {
	e.mu.Lock()
	e.drain()
	e.rouse() // the device may not notify of it: see FailuresNotify
	e.unlockLater()
}

// rouse wakes a parked call if a notification event has come; e.mu is held.
func (e *EVD) rouse() {
	if e.waiting.notified {
		e.wake()
	}
}

// wake makes a parked call check again; e.mu is held. A call that is not parked checks before it
// parks.
func (e *EVD) wake() {
	if e.waiting.waiter != waiterParked {
		return
	}
	if e.cq != nil {
		e.cq.Wake()
		return
	}
	select {
	case e.waiting.kick <- struct{}{}:
	default:
	}
}

// rearm notes that the completion queue may not be armed any more: not every device keeps a resized
// queue armed.
func (e *EVD) rearm() {
	e.waiting.armed = false
	if e.waiting.parked() {
		e.cq.Wake()
	}
}

// fit makes the completion queue at least depth entries deep, and never shrinks it; e.mu is held.
func (e *EVD) fit(op string, depth int) error {
	if e.cq == nil || depth <= e.cq.Depth() {
		return nil
	}
	limit := e.obj.ia.device.Attr().MaxCQE
	if depth > limit {
		return fail(op, InsufficientResources, SubResourceTEVD, "the completion queue needs %d entries, the limit is %d",
			depth, limit)
	}
	now := e.cq.Depth()
	err := e.cq.Resize(min(limit, max(depth, now+max(now/4, min(now, 4096)))))
	switch {
	case errors.Is(err, fabric.ErrNotSupported):
		return fail(op, InsufficientResources, SubResourceTEVD,
			"the completion queue needs %d entries, has %d, and this device cannot resize one: "+
				"create the dispatcher for at least %d events: %w",
			depth, e.cq.Depth(), depth, err)
	case err != nil:
		return failAs(op, err, SubResourceTEVD)
	}
	e.rearm()
	return nil
}

// release takes back the room for n completions; e.mu is held. The ring gives memory back, the
// completion queue stays as deep as it is.
func (e *EVD) release(n int) {
	e.capacity -= n
	e.ring.trim(max(e.qlen, e.capacity))
}

// growShare makes room for a shared queue that is about to grow.
func (e *EVD) growShare(op string, queue sharedQueue, depth int) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	sh := e.shares[queue]
	if sh == nil || sh.depth >= depth {
		return nil
	}
	if err := e.fit(op, e.capacity+depth-sh.depth); err != nil {
		return err
	}
	e.capacity += depth - sh.depth
	sh.depth = depth
	return nil
}
