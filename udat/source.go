package udat

import (
	"sync/atomic"

	"github.com/godat/godat/udat/internal/fabric"
)

// completionSink is the owner of work whose completions a dispatcher drains.
type completionSink interface {
	// complete settles one completion and fills in its empty event; ev is nil if there is no event.
	// The dispatcher is locked. after, unless nil, is called later, without locks.
	complete(en *inflightEntry, wc *fabric.WC, ev *Event) (after func())
}

// sharedQueue is a receive queue from which several sources take their receives.
type sharedQueue interface {
	// claim returns the cookie of a receive that has completed, and the counter to decrement when its
	// event is taken; ok is false for the id of an earlier receive.
	claim(id uint64) (cookie Cookie, places *atomic.Int32, ok bool)
}

// source is one queue of an endpoint, as the dispatcher of its completions sees it. All but
// inflight is guarded by the dispatcher's lock, or does not change.
type source struct {
	inflight inflight
	receive  bool
	muted    bool // completions make no events
	ep       *EP  // named in the events
	evd      *EVD
	sink     completionSink

	deferring bool // events go to deferred until the connection is established
	deferred  []deferredEvent
}

type deferredEvent struct {
	ev     Event
	notify bool
}

// newSource makes the source of a queue of limit entries, of stride segments each, that completes
// on e.
func newSource(e *EVD, limit, stride int, receive bool) *source {
	spare := spareEntries
	if receive {
		spare = 0
	}
	return &source{inflight: newInflight(limit, spare, stride, &e.mu), evd: e, receive: receive}
}

// setOwner sets the owner of the work; no completion has come yet.
func (s *source) setOwner(ep *EP, sink completionSink) {
	s.evd.mu.Lock()
	s.ep, s.sink = ep, sink
	s.evd.mu.Unlock()
}

// mute ends the events of the source; its completions are still drained.
func (s *source) mute() {
	s.evd.mu.Lock()
	s.muted = true
	s.evd.mu.Unlock()
}

// forget forgets the work in flight, whose completions may still come, and returns the number of
// its first entry; the poster's lock is held.
func (s *source) forget() (head uint32) {
	s.evd.mu.Lock()
	defer s.evd.mu.Unlock()
	head = s.inflight.completed
	s.inflight.clear()
	return head
}

// deferEvents defers events until releaseDeferred.
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

// deferredCount is the number of deferred events.
func (s *source) deferredCount() int {
	s.evd.mu.Lock()
	defer s.evd.mu.Unlock()
	return len(s.deferred)
}

// streams counts the completion streams that feed a dispatcher. All have the same completion flags,
// except those that are being replaced, which do not restrict new ones.
type streams struct {
	n, replaced int
	flags       CompletionFlags
}

// consumerControlled reports whether the Consumer chooses which completions notify; a waiter then
// cannot count.
func (s streams) consumerControlled() bool {
	return s.n > 0 && s.flags&(CompletionUnsignalled|CompletionSolicitedWait) != 0
}

// solicitedOnly reports whether the device itself distinguishes notification events.
func (s streams) solicitedOnly() bool { return s.n > 0 && s.flags == CompletionSolicitedWait }

// config is the config part of the dispatcher's state word.
func (s streams) config() EVDState {
	switch {
	case s.solicitedOnly():
		return EVDConfigSolicited
	case s.n > 0 && s.flags == CompletionEVDThreshold:
		return EVDConfigThreshold
	}
	return EVDConfigNotify
}

// configSubtype is the subtype of INVALID_STATE for the config.
func (s streams) configSubtype() Subtype {
	if s.solicitedOnly() {
		return SubStateEVDConfigSolicited
	}
	return SubStateEVDConfigNotify
}

// sourceTable finds a source by the upper half of a work request id: an index, and a generation
// that distinguishes a source from earlier ones of the same index.
type sourceTable struct {
	sources []*source
	free    []uint32
	gen     uint32
}

// The upper half of a work request id: 20 bits of index, 11 of generation, and the bit that is set
// in the ids of shared queues, which have no source.
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
	if s := t.sources[index]; s != nil && s.inflight.owns(id) {
		return s
	}
	return nil
}

// share is the room that a dispatcher keeps for a shared queue, once for all sources that take from
// it.
type share struct {
	sources int
	depth   int
}

// sharedSource is a source whose receives come from a shared queue.
type sharedSource struct {
	*source
	queue sharedQueue
}
