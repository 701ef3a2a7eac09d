package udat

import (
	"math"
	"sync/atomic"

	"github.com/godat/godat/udat/internal/fabric"
)

// This file is the queue of a dispatcher: completions and other events in, events out. It knows what it drains only as
// sources, and their owners only as completionSink and sharedQueue.

// completionSink owns the work whose completions a dispatcher drains.
type completionSink interface {
	// complete settles one completion, and fills in its event, which is empty; a nil ev means that there is none. The
	// dispatcher is locked: complete takes no lock that ranks above it. after, unless nil, is called without locks.
	complete(en *inflightEntry, wc *fabric.WC, ev *Event) (after func())
}

// sharedQueue is a receive queue that several sources take their receives from.
type sharedQueue interface {
	// claim returns the cookie of a receive that has completed, and the count that its place is part of until its event
	// is taken; false for the id of an earlier receive.
	claim(id uint64) (cookie Cookie, places *atomic.Int32, ok bool)
}

// source is one queue of an endpoint as the dispatcher of its completions sees it. All but inflight is guarded by the
// dispatcher's lock, or does not change.
type source struct {
	inflight *inflight
	evd      *EVD
	receive  bool
	ep       *EP // that its events name
	sink     completionSink
	muted    bool // its completions make no events any more

	deferring bool // events wait in deferred until the connection is established
	deferred  []deferredEvent
}

type deferredEvent struct {
	ev     Event
	notify bool
}

// newSource makes the source of a queue of limit entries, of stride segments each, that completes on e.
func (e *EVD) newSource(limit, stride int, receive bool) *source {
	return &source{inflight: newInflight(limit, stride, &e.mu), evd: e, receive: receive}
}

// setOwner sets whose work the source is; no completion has come yet.
func (s *source) setOwner(ep *EP, sink completionSink) {
	s.evd.mu.Lock()
	s.ep, s.sink = ep, sink
	s.evd.mu.Unlock()
}

// mute ends the events of the source; its completions are still taken.
func (s *source) mute() {
	s.evd.mu.Lock()
	s.muted = true
	s.evd.mu.Unlock()
}

// forget forgets the work in flight, whose completions may still come, and returns the number of its first entry. The
// poster's lock is held.
func (s *source) forget() (head uint32) {
	s.evd.mu.Lock()
	defer s.evd.mu.Unlock()
	head = s.inflight.completed
	s.inflight.clear()
	return head
}

// deferEvents makes events wait for releaseDeferred.
func (s *source) deferEvents() {
	s.evd.mu.Lock()
	s.deferring = true
	s.evd.mu.Unlock()
}

// dropDeferred drops the deferred events; the dispatcher's lock is held.
func (s *source) dropDeferred() {
	for i := range s.deferred {
		s.deferred[i].ev.freePlace()
	}
	s.deferring, s.deferred = false, nil
}

// deferredCount is the number of events that wait.
func (s *source) deferredCount() int {
	s.evd.mu.Lock()
	defer s.evd.mu.Unlock()
	return len(s.deferred)
}

// streams are the completion streams that feed a dispatcher. They all have the same completion flags.
type streams struct {
	n     int
	flags CompletionFlags
}

// consumerControlled reports whether the Consumer chooses which completions notify, so that a waiter may not count.
func (s streams) consumerControlled() bool {
	return s.n > 0 && s.flags&(CompletionUnsignalled|CompletionSolicitedWait) != 0
}

// solicitedOnly reports whether the device itself tells notification events from others.
func (s streams) solicitedOnly() bool { return s.n > 0 && s.flags == CompletionSolicitedWait }

// config is that part of the dispatcher's state word.
func (s streams) config() EVDState {
	switch {
	case s.solicitedOnly():
		return EVDConfigSolicited
	case s.n > 0 && s.flags == CompletionEVDThreshold:
		return EVDConfigThreshold
	}
	return EVDConfigNotify
}

// configSubtype is the subtype of INVALID_STATE for it.
func (s streams) configSubtype() Subtype {
	if s.solicitedOnly() {
		return SubStateEVDConfigSolicited
	}
	return SubStateEVDConfigNotify
}

// sourceTable finds a source by the upper half of a work request id: an index, and a generation that tells a source
// from earlier ones at the same index.
type sourceTable struct {
	sources []*source
	free    []uint32
	gen     uint32
}

// The upper half of a work request id: 20 bits of index, 11 of generation, and the bit that is set in the ids of shared
// queues, which have no source.
const (
	sharedID        = 1 << 63
	sourceIndexBits = 20
	sourceIndexMask = 1<<sourceIndexBits - 1
	sourceGenMask   = 1<<11 - 1
)

func (t *sourceTable) add(s *source) {
	var index uint32
	if n := len(t.free); n > 0 {
		index, t.free = t.free[n-1], t.free[:n-1]
	} else {
		index = uint32(len(t.sources))
		t.sources = append(t.sources, nil)
	}
	t.gen = (t.gen + 1) & sourceGenMask
	s.inflight.id = uint64(t.gen<<sourceIndexBits|index) << 32
	t.sources[index] = s
}

func (t *sourceTable) remove(s *source) {
	index := uint32(s.inflight.id>>32) & sourceIndexMask
	t.sources[index] = nil
	t.free = append(t.free, index)
}

// find returns the source of a work request id, nil if it is gone.
func (t *sourceTable) find(id uint64) *source {
	index := uint32(id>>32) & sourceIndexMask
	if int(index) >= len(t.sources) {
		return nil
	}
	if s := t.sources[index]; s != nil && s.inflight.id == id&^math.MaxUint32 {
		return s
	}
	return nil
}

// share is the room that a dispatcher keeps for a shared queue: once for all sources that take from the queue.
type share struct {
	sources int
	depth   int
}

// sharedSource is a source whose receives come from a shared queue.
type sharedSource struct {
	*source
	queue sharedQueue
}

// drain moves all completions into the ring; e.mu is held.
func (e *EVD) drain() { e.drainInto(nil, 1) }

// drainInto takes all completions, and polls up to polls times for the first. Their events go to the slots of to, as
// far as there are any, then into the ring, which must be empty if there are. It returns the number of slots filled;
// e.mu is held.
func (e *EVD) drainInto(to []Event, polls int) int {
	if e.cq == nil || e.dead {
		return 0
	}
	to = to[:min(len(to), e.qlen)] // more are an overflow
	for ; ; polls = 1 {
		n, err := e.cq.Poll(e.wcs[:], polls)
		for i := 0; i < n; i++ {
			wc := &e.wcs[i]
			if wc.ID&sharedID != 0 {
				e.completeShared(wc)
			} else if s := e.sources.find(wc.ID); s != nil { // nil: of an endpoint that has been freed
				if k := e.completeFast(s, e.wcs[i:n], to); k > 0 {
					i += k - 1
				} else {
					e.complete(s, wc, to)
				}
			}
		}
		if n < len(e.wcs) || err != nil {
			n, e.taken = e.taken, 0
			return n
		}
	}
}

// completeFast is complete for the most frequent completions: of requests that succeed and make an event. It takes the
// completions up to the first of another kind or queue, and returns their number.
func (e *EVD) completeFast(s *source, wcs []fabric.WC, to []Event) int {
	if s.receive || e.discard {
		return 0
	}
	q := s.inflight
	for i := range wcs {
		wc := &wcs[i]
		seq := uint32(wc.ID)
		en := q.entry(seq)
		if wc.ID&^math.MaxUint32 != q.id || wc.Status != fabric.StatusSuccess || int32(seq-q.completed) < 0 || en.flags != 0 || en.rmr != nil {
			return i
		}
		q.completed = seq + 1
		ev := e.callerSlot(to)
		if ev == nil {
			if ev = e.ringSlot(); ev == nil {
				continue
			}
		}
		ev.Number, ev.EVD, ev.EP = EventDTOCompletion, e, s.ep
		ev.Cookie, ev.Length, ev.Operation = en.cookie, en.length, en.op
		e.waiting.notified = true
		if e.cno != nil {
			e.notify(true)
		}
	}
	return len(wcs)
}

// complete settles a completion and makes its event, if it makes one, in the next slot of to or on the ring; e.mu is held.
func (e *EVD) complete(s *source, wc *fabric.WC, to []Event) {
	en := s.inflight.complete(uint32(wc.ID))
	if en == nil {
		return
	}
	failed := wc.Status != fabric.StatusSuccess
	if en.flags&entryInternal != 0 || (!failed && en.flags&entrySuppressed != 0) || e.discard {
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

// deliver makes the event of a completion, or defers it until the connection's own event is queued; see complete.
// places, unless nil, counts the event until it is taken.
func (e *EVD) deliver(s *source, en *inflightEntry, wc *fabric.WC, places *atomic.Int32, to []Event) {
	notify := en.flags&entryUnsignalled == 0 || wc.Status != fabric.StatusSuccess
	var ev, slot *Event
	if s.deferring {
		s.deferred = append(s.deferred, deferredEvent{notify: notify})
		ev, notify = &s.deferred[len(s.deferred)-1].ev, false
	} else if slot = e.callerSlot(to); slot != nil {
		ev = &e.scratch // given to an interface, the caller's own slot would have to be on the heap
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
		notify = !(e.streams.solicitedOnly() && e.waiting.armed) // the device will tell
	}
	if slot != nil {
		*slot, e.scratch = e.scratch, Event{}
	}
	e.notify(notify)
}

// settle passes a completion to the owner of its work, and keeps its report for when the dispatcher is unlocked.
func (e *EVD) settle(s *source, en *inflightEntry, wc *fabric.WC, ev *Event) {
	if after := s.sink.complete(en, wc, ev); after != nil {
		e.after = append(e.after, after)
	}
}

// callerSlot returns the next unused slot of the caller's slice, empty, or nil if there is none or if the ring has
// earlier events.
func (e *EVD) callerSlot(to []Event) *Event {
	if e.taken >= len(to) || e.ring.n > 0 {
		return nil
	}
	ev := &to[e.taken]
	e.taken++
	*ev = Event{}
	return ev
}

// ringSlot returns an empty slot of the ring, nil if the dispatcher has overflowed and has no room for more; e.mu is held.
func (e *EVD) ringSlot() *Event {
	if e.ring.n+e.taken+e.reserved >= e.qlen && e.overflow() {
		return nil
	}
	return e.ring.push()
}

// overflowRoom is how many events beyond its length an overflowed dispatcher keeps at least.
const overflowRoom = 4096

// overflow reports the overflow, once, and whether there is no room beyond the queue's length either.
func (e *EVD) overflow() (full bool) {
	if !e.overflowed {
		e.overflowed = true
		e.obj.ia.async(e, &Event{Number: EventAsyncEVDOverflow, Object: e, Reason: ReasonEVDOverflow})
	}
	return e.ring.n >= e.qlen+max(e.capacity, overflowRoom)
}

// push queues an event; e.mu is held. notify says whether it may wake a waiter or trigger the notification object.
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

// notify tells of an event that has just come, if it is a notification event; e.mu is held. A waiter is woken by whoever
// has locked the dispatcher, when all events have come: see rouse.
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

// take takes up to len(to) events and drains the completion queue if the ring has fewer; e.mu is held.
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

// unlock unlocks the dispatcher and reports what has failed. No lock of an endpoint may be held.
func (e *EVD) unlock() {
	for _, after := range e.unlockAfter() {
		after()
	}
}

// unlockLater is unlock for callers who may hold the lock of an endpoint: it reports in the background.
func (e *EVD) unlockLater() {
	for _, after := range e.unlockAfter() {
		go after()
	}
}

// unlockAfter unlocks the dispatcher and returns the reports of failures, which the caller must make.
func (e *EVD) unlockAfter() []func() {
	after := e.after
	if len(after) > 0 {
		e.after = nil
	}
	e.mu.Unlock()
	return after
}
