package udat

import (
	"math"

	"github.com/godat/godat/udat/internal/fabric"
)

// inflight is the work of one queue of an endpoint that is posted and not completed: a ring of
// entries between a head and a tail. The poster moves the tail, under the lock of its queue; the
// dispatcher that drains the completions moves the head, under its own lock. The poster reads the
// head only when the queue seems full, so that most posts take one lock. Work completes in the
// order of posting.
//
// A suppressed request that succeeds makes no completion. A later completion proves it done, so the
// head may move over several entries.
type inflight struct {
	id      uint64 // upper half of the work request ids
	entries []inflightEntry
	limit   uint32 // MaxRecvDTOs or MaxRequestDTOs; the ring of requests has spareEntries more

	// Guarded by the poster's lock.
	tail   uint32 // number of the next entry to be posted
	freed  uint32 // completed, as the poster last saw it
	stride uint32

	headMu   *ranked[rankEVD] // the dispatcher's lock
	segments []fabric.SGE     // stride for each entry; nil until saveSGEs needs them

	// Guarded by the dispatcher's lock, and in another cache line than the poster's fields.
	completed uint32 // number of the first entry that has not completed
}

// inflightEntry is one piece of work in flight.
type inflightEntry struct {
	cookie Cookie
	lmr    *LMR   // of the first segment that is not empty
	length uint64 // of a bind: its serial
	rmr    *RMR   // of a bind
	op     DTOOperation
	flags  entryFlags

	segments uint16 // of a receive, where saveSGEs has saved them
}

// set fills in the entry of a data transfer. It skips redundant pointer stores: no write barrier.
func (en *inflightEntry) set(cookie Cookie, length uint64, op DTOOperation, flags entryFlags, l *LMR) {
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
	entryUnsignalled                        // the event does not notify
	entryInternal                           // posted by the library: no event
)

// spareEntries is the number of entries beyond the Consumer's limit: one, for the request that the
// library posts to learn that the suppressed requests before it are done.
const spareEntries = 1

// newInflight makes the ring of a queue of limit entries and some spare ones, with up to stride
// saved segments each.
func newInflight(limit, spare, stride int, headMu *ranked[rankEVD]) inflight {
	size := 1
	for size < limit+spare {
		size *= 2
	}
	return inflight{limit: uint32(limit), entries: make([]inflightEntry, size), headMu: headMu, stride: uint32(stride)}
}

// most is the largest number of completions that may be on the way.
func (q *inflight) most() int { return int(q.limit) + spareEntries }

func (q *inflight) entry(seq uint32) *inflightEntry { return &q.entries[seq&uint32(len(q.entries)-1)] }

// head is the number of the first entry that has not completed. It takes the dispatcher's lock.
func (q *inflight) head() uint32 {
	q.headMu.Lock()
	head := q.completed
	q.headMu.Unlock()
	return head
}

// count is the number posted and not completed; the poster's lock is held.
func (q *inflight) count() int {
	q.freed = q.head()
	return int(q.tail - q.freed)
}

// full reports whether the posted entries and a batch of more leave no room for another; the
// poster's lock is held.
func (q *inflight) full(more int) bool {
	return q.mayBeFull(more) && q.count()+more >= int(q.limit)
}

// mayBeFull is full without a look at what has completed since the last one, which takes the
// dispatcher's lock.
func (q *inflight) mayBeFull(more int) bool { return q.tail+uint32(more)-q.freed >= q.limit }

// workID is the id of the work request of entry seq, and of its completion: the id of the source,
// and seq in the lower half.
func (q *inflight) workID(seq uint32) uint64 { return q.id | uint64(seq) }

// owns reports whether a completion with this id is of this queue's work.
func (q *inflight) owns(id uint64) bool { return id&^math.MaxUint32 == q.id }

// done reports whether all work before seq has completed.
func (q *inflight) done(seq uint32) bool { return int32(q.head()-seq) >= 0 }

// complete moves the head behind the completed entry and returns the entry, or nil if clear has
// forgotten it; the dispatcher's lock is held.
func (q *inflight) complete(seq uint32) *inflightEntry {
	if int32(seq-q.completed) < 0 {
		return nil
	}
	q.completed = seq + 1
	return q.entry(seq)
}

// clear forgets all work in flight; completions of it that still come are dropped. Both locks are
// held.
func (q *inflight) clear() { q.completed, q.freed = q.tail, q.tail }

// saveSGEs saves the segments of a receive that is posted outside a connection: Modify may have to
// post it again.
func (q *inflight) saveSGEs(seq uint32, sges []fabric.SGE) []fabric.SGE {
	if q.segments == nil {
		q.segments = make([]fabric.SGE, len(q.entries)*int(q.stride))
	}
	q.entry(seq).segments = uint16(len(sges))
	saved := q.savedSGEs(seq)
	copy(saved, sges)
	return saved
}

// savedSGEs returns the segments that saveSGEs has saved.
func (q *inflight) savedSGEs(seq uint32) []fabric.SGE {
	first := int(seq&uint32(len(q.entries)-1)) * int(q.stride)
	return q.segments[first : first+int(q.entry(seq).segments)]
}
