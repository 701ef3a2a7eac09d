package udat

import (
	"sync/atomic"

	"github.com/godat/godat/udat/internal/fabric"
)

// completionSink is the owner of the work whose completions a dispatcher drains.
type completionSink interface {
	// complete handles one completion and fills in its event. If the completion makes no event, ev is
	// nil; otherwise ev is empty at the call. The dispatcher is locked. If the result after is not
	// nil, the dispatcher calls this function later, without locks.
	complete(en *inflightEntry, wc *fabric.WC, ev *Event) (after func())
}

// sharedQueue is a receive queue from which several sources take their receives.
type sharedQueue interface {
	// claim returns the cookie of a receive that has completed, and the counter to decrement when
	// the receive's event is dequeued. ok is false if id belongs to an earlier receive.
	claim(id uint64) (cookie Cookie, places *atomic.Int32, ok bool)
}

// source is one queue of an endpoint, as the dispatcher of its completions sees it. The
// dispatcher's lock guards the fields that change, except inflight.
type source struct {
	inflight inflight
	receive  bool
	muted    bool // completions make no events
	ep       *EP  // the endpoint that the events name
	evd      *EVD
	sink     completionSink

	deferring bool // events are appended to deferred until the connection is established
	deferred  []deferredEvent
}

type deferredEvent struct {
	ev     Event
	notify bool
}

// newSource makes the source of a queue whose completions come to e. The queue has limit entries of
// up to stride segments each.
func newSource(e *EVD, limit, stride int, receive bool) *source {
	spare := spareEntries
	if receive {
		spare = 0
	}
	return &source{inflight: newInflight(limit, spare, stride, &e.mu), evd: e, receive: receive}
}

// setOwner sets the owner of the work. It is called before the first completion comes.
func (s *source) setOwner(ep *EP, sink completionSink) {
	s.evd.mu.Lock()
	s.ep, s.sink = ep, sink
	s.evd.mu.Unlock()
}

// mute makes later completions of the source produce no events. They are still drained.
func (s *source) mute() {
	s.evd.mu.Lock()
	s.muted = true
	s.evd.mu.Unlock()
}

// forget removes the entries of the work in flight, whose completions may still come. It returns
// the number of the first of these entries. The poster's lock is held.
func (s *source) forget() (head uint32) {
	s.evd.mu.Lock()
	defer s.evd.mu.Unlock()
	head = s.inflight.completed
	s.inflight.clear()
	return head
}

// deferEvents makes the source defer its events until releaseDeferred.
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

func (s *source) deferredCount() int {
	s.evd.mu.Lock()
	defer s.evd.mu.Unlock()
	return len(s.deferred)
}

// streams counts the completion streams that feed a dispatcher. All of them have the same
// completion flags, which a new stream must have too. Streams that Modify is replacing do not count
// for this rule.
type streams struct {
	n, replaced int
	flags       CompletionFlags
}

// consumerControlled reports whether the Consumer chooses which completions notify a waiting call.
// If so, Wait cannot wait for a number of events.
func (s streams) consumerControlled() bool {
	return s.n > 0 && s.flags&(CompletionUnsignalled|CompletionSolicitedWait) != 0
}

// solicitedOnly reports whether the device itself decides which completions notify a waiting call.
func (s streams) solicitedOnly() bool { return s.n > 0 && s.flags == CompletionSolicitedWait }

// config returns the config part of the dispatcher's state.
func (s streams) config() EVDState {
	switch {
	case s.solicitedOnly():
		return EVDConfigSolicited
	case s.n > 0 && s.flags == CompletionEVDThreshold:
		return EVDConfigThreshold
	}
	return EVDConfigNotify
}

// configSubtype returns the subtype of InvalidState for the config part of the state.
func (s streams) configSubtype() Subtype {
	if s.solicitedOnly() {
		return SubStateEVDConfigSolicited
	}
	return SubStateEVDConfigNotify
}

// sourceTable maps the upper half of a work request id to a source. That half contains an index and
// a generation, which distinguishes the source from earlier sources with the same index.
type sourceTable struct {
	sources []*source
	free    []uint32
	gen     uint32
}

// The upper half of a work request id has 20 bits of index and 11 bits of generation. Its highest
// bit, sharedID, is set in the ids of shared queues, which have no source.
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

// find returns the source of a work request id, or nil if the source has been removed.
func (t *sourceTable) find(id uint64) *source {
	index := uint32(id>>32) & sourceIndexMask
	if int(index) >= len(t.sources) {
		return nil
	}
	if s := t.sources[index]; s != nil && s.inflight.owns(id) {
		return s
	}
	return nil
}

// share is the room that a dispatcher reserves for the receives of a shared queue. There is one
// share for all sources that receive from the queue.
type share struct {
	sources int
	depth   int
}

// sharedSource is a source whose receives come from a shared queue.
type sharedSource struct {
	*source
	queue sharedQueue
}
