package udat

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/godat/godat/udat/internal/fabric"
)

// The code of this file is the queue of a dispatcher. It uses endpoints only through three types:
// source, completionSink and sharedQueue.

// drain moves the events of all completions that the queue has to the ring; e.mu is held.
func (e *EVD) drain() { e.drainInto(nil, 0) }

// drainInto drains all completions. The parameter polls is that of fabric.CQ.Poll. The first events
// fill the caller's slice (to), the others go to the ring. If the slice has slots, the ring must be
// empty. drainInto returns the number of slots filled; e.mu is held.
func (e *EVD) drainInto(to []Event, polls int) int {
	if e.cq == nil || e.dead {
		return 0
	}
	to = to[:min(len(to), e.qlen)] // further events would be an overflow
	for ; ; polls = min(polls, 1) {
		n, err := e.cq.Poll(e.wcs[:], polls)
		e.completeAll(e.wcs[:n], to)
		if n < len(e.wcs) || err != nil {
			n, e.taken = e.taken, 0
			return n
		}
	}
}

// completeAll handles completions in order. It handles the most frequent case itself: an event for
// a send, an RDMA operation or a receive that succeeded. For other completions it calls complete.
func (e *EVD) completeAll(wcs []fabric.WC, to []Event) {
	var s *source // the source of the previous completion
	plain := false
	for i := range wcs {
		wc := &wcs[i]
		if s == nil || !s.inflight.owns(wc.ID) {
			if wc.ID&sharedID != 0 {
				e.completeShared(wc)
				continue
			}
			if s = e.sources.find(wc.ID); s == nil {
				continue // the endpoint has been freed
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

// complete handles one completion. If the completion makes an event, complete puts the event in the
// next slot of the caller's slice (to) or on the ring; e.mu is held.
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

// completeShared handles the completion of a receive that came from a shared queue.
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

// deliver makes the event of a completion; see complete. Until the connection's ESTABLISHED event
// is queued, deliver only stores the event, for releaseDeferred. If places is not nil, it is a
// counter to decrement when the event is dequeued.
func (e *EVD) deliver(s *source, en *inflightEntry, wc *fabric.WC, places *atomic.Int32, to []Event) {
	notify := en.flags&entryUnsignalled == 0 || wc.Status != fabric.StatusSuccess
	var ev, slot *Event
	if s.deferring {
		s.deferred = append(s.deferred, deferredEvent{notify: notify})
		ev, notify = &s.deferred[len(s.deferred)-1].ev, false
	} else if slot = e.callerSlot(to); slot != nil {
		ev = &e.scratch // because the caller's slot would escape to the heap through the interface
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
		notify = !(e.streams.solicitedOnly() && e.waiting.armed) // false if the device itself notifies of this completion
	}
	if slot != nil {
		*slot, e.scratch = e.scratch, Event{}
	}
	e.notify(notify)
}

// settle passes a completion to the owner of the work. If the owner returns a function that reports
// a failure, settle keeps the function until the dispatcher is unlocked.
func (e *EVD) settle(s *source, en *inflightEntry, wc *fabric.WC, ev *Event) {
	if after := s.sink.complete(en, wc, ev); after != nil {
		e.after = append(e.after, after)
	}
}

// callerSlot empties the next unused slot of the caller's slice and returns it. It returns nil if
// no slot is left, or if the ring has earlier events.
func (e *EVD) callerSlot(to []Event) *Event {
	if e.taken >= len(to) || e.ring.n > 0 {
		return nil
	}
	ev := &to[e.taken]
	e.taken++
	*ev = Event{}
	return ev
}

// ringSlot appends an empty event to the ring and returns it. It returns nil if the dispatcher has
// overflowed and has no room left; e.mu is held.
func (e *EVD) ringSlot() *Event {
	if e.full() && e.overflow() {
		return nil
	}
	return e.ring.push()
}

// full reports whether a further event is an overflow.
func (e *EVD) full() bool { return e.ring.n+e.taken+e.reserved >= e.qlen }

// overflowRoom is the least number of events that an overflowed dispatcher can hold beyond its
// length.
const overflowRoom = 4096

// overflow reports the overflow to the asynchronous dispatcher, once per overflow. The result full
// is true if the room beyond the queue's length is used up too. That room is for overflowRoom
// events, or for twice as many as the depth of the completion queue if that is more: each endpoint
// has the events of its connection too. When the room is used up, events of freed endpoints go.
func (e *EVD) overflow() (full bool) {
	if !e.overflowed {
		e.overflowed = true
		e.obj.ia.async(e, e.overflowEvent(fmt.Errorf("udat: more than the %d events of the dispatcher's queue are queued; "+
			"dequeue sooner, or enlarge the queue with Resize", e.qlen)))
	}
	room := overflowRoom
	if e.cq != nil {
		room = max(room, 2*e.cq.Depth())
	}
	return e.ring.n >= e.qlen+room && !e.dropFreed()
}

// dropFreed removes the events of freed endpoints from the ring. It returns false if it has removed
// none; it looks only if an endpoint of the adapter has been freed since the last call.
func (e *EVD) dropFreed() bool {
	freed := e.obj.ia.freed.Load()
	if freed == e.freed {
		return false
	}
	e.freed = freed
	before := e.ring.n
	e.ring.filter(func(ev *Event) bool {
		stays := ev.EP == nil || ev.EP.obj.live.Load()
		if !stays {
			ev.freePlace()
		}
		return stays
	})
	return e.ring.n < before
}

func (e *EVD) overflowEvent(why error) *Event {
	return &Event{Number: EventAsyncEVDOverflow, Object: e, Reason: ReasonEVDOverflow, conn: &connectionData{failure: why}}
}

// lostEvents is the error of the last event of an asynchronous queue that was full. EVD.mu guards n
// until the event is dequeued; after that n does not change.
type lostEvents struct{ qlen, n int }

func (l *lostEvents) Error() string {
	return fmt.Sprintf("udat: the queue of %d events was full, and %d later asynchronous events are lost; "+
		"dequeue them sooner, or enlarge the queue with Resize", l.qlen, l.n)
}

// push queues an event; e.mu is held. If notify is true, the event may wake a waiter or trigger the
// notification object. An asynchronous event is lost if the queue is full; one more event then says
// how many are lost.
func (e *EVD) push(ev *Event, notify bool) {
	lost := ev.Number&asyncStream != 0 && e.full()
	if lost && e.lost != nil {
		e.lost.n++
		return
	}
	slot := e.ringSlot()
	if slot == nil {
		ev.freePlace()
		return
	}
	if lost {
		e.lost = &lostEvents{qlen: e.qlen, n: 1}
		ev = e.overflowEvent(e.lost)
	}
	*slot = *ev
	slot.EVD = e
	e.notify(notify)
}

// notify records a notification event and triggers the notification object, but only if the
// parameter notifies is true; e.mu is held. It does not wake the waiter: rouse does so when all
// events have been queued.
func (e *EVD) notify(notifies bool) {
	if !notifies {
		return
	}
	e.waiting.notified = true
	if e.triggers() {
		e.cno.trigger(e)
	}
}

// triggers reports whether a notification event would trigger the notification object now.
func (e *EVD) triggers() bool { return e.cno != nil && !e.waiting.blocked() && !e.disabled && !e.dead }

// take dequeues up to len(to) events. If the ring has fewer, take drains the completion queue; e.mu
// is held.
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

// pop removes the first event of the ring, which must not be empty.
func (e *EVD) pop(to *Event) {
	e.ring.pop(to)
	to.freePlace()
	if e.lost != nil && to.conn != nil && to.conn.failure == error(e.lost) {
		e.lost = nil
	}
	if e.ring.n <= e.qlen/2 {
		e.overflowed = false
	}
}

// unlock unlocks the dispatcher and then reports failures. The caller must not hold the lock of an
// endpoint.
func (e *EVD) unlock() {
	if len(e.after) == 0 {
		e.mu.Unlock()
		return
	}
	for _, after := range e.unlockAfter() {
		after()
	}
}

// unlockLater unlocks the dispatcher and lets other goroutines report the failures, because its
// callers may hold the lock of an endpoint.
func (e *EVD) unlockLater() {
	for _, after := range e.unlockAfter() {
		go after()
	}
}

// unlockAfter unlocks the dispatcher. It returns the functions that report failures, which the
// caller must call.
func (e *EVD) unlockAfter() []func() {
	after := e.after
	e.after = nil
	e.mu.Unlock()
	return after
}

// async queues an event on the adapter's asynchronous dispatcher. If the adapter has none, async
// queues the event on the asynchronous dispatchers of the device's other adapters. The parameter
// locked is the dispatcher whose lock is held, or nil.
func (ia *IA) async(locked *EVD, ev *Event) {
	switch to := ia.asyncEVD; {
	case !to.object().alive() && locked == nil:
		ia.asyncElsewhere(ev)
	case !to.object().alive():
		go ia.asyncElsewhere(ev)
	case locked == nil:
		to.post(ev)
	case to != locked: // if they are equal, the asynchronous dispatcher itself has overflowed, and nothing is reported
		// This cannot deadlock, because the second lock is always that of an asynchronous
		// dispatcher, of this adapter or of an adapter that was opened earlier.
		to.mu.LockNested()
		to.postLocked(ev)
	}
}

// adapters is the set of all adapters (*IA) that are open in this process.
var adapters sync.Map

// asyncElsewhere queues an event on the asynchronous dispatchers of all other adapters of the
// device in this process; no dispatcher's lock is held.
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

// post queues an event that is not a completion. It does nothing if e is nil.
func (e *EVD) post(ev *Event) {
	if e == nil {
		return
	}
	e.mu.Lock()
	e.postLocked(ev)
}

// postLocked does the same as post, for a dispatcher that the caller has locked. It unlocks the
// dispatcher.
func (e *EVD) postLocked(ev *Event) {
	e.push(ev, true)
	e.rouse()
	e.unlock()
}

// reserve reserves a place on the queue for postReserved. It returns false if no place is free;
// this does not count as an overflow. Completions that the device has reported occupy places too.
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

// unreserve gives a reserved place back.
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

// poll drains the completion queue for callers that do not wait on the dispatcher. The callers may
// hold locks of an endpoint; therefore failures are reported on other goroutines.
func (e *EVD) poll() {
	e.mu.Lock()
	e.drainInto(nil, 1)
	e.rouse() // the device may not notify of these completions: see FailuresNotify
	e.unlockLater()
}

// rouse wakes a parked call if a notification event has come; e.mu is held.
func (e *EVD) rouse() {
	if e.waiting.notified {
		e.wake()
	}
}

// wake makes a parked call check its condition again; e.mu is held. A call that is not parked yet
// checks the condition before it parks.
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

// rearm marks the completion queue as not armed, because some devices disarm a queue that is
// resized.
func (e *EVD) rearm() {
	e.waiting.armed = false
	if e.waiting.parked() {
		e.cq.Wake()
	}
}

// fit makes the completion queue at least depth entries deep; it never shrinks the queue. e.mu is
// held.
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

// release gives back the room for n completions; e.mu is held. The ring may free memory; the
// completion queue keeps its depth.
func (e *EVD) release(n int) {
	e.capacity -= n
	e.ring.trim(max(e.qlen, e.capacity))
}

// growShare makes room for the receives of a shared queue that is about to grow.
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
