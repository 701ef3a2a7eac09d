package udat

import (
	"math"

	"github.com/godat/godat/udat/internal/fabric"
)

// inflight is the work of one queue of an endpoint that is posted and not completed: a ring of
// entries between a head and a tail. The poster moves the tail, under the lock of its queue. The
// dispatcher that drains the completions moves the head, under its own lock. The poster reads the
// head only when the queue seems full, so that most posts acquire only one lock. Work completes in
// the order of posting.
//
// A suppressed request that succeeds makes no completion. The completion of a later request proves
// that the suppressed request is done, so the head may advance by several entries at once.
type inflight struct {
	id      uint64 // upper half of the ids of the work requests
	entries []inflightEntry
	limit   uint32 // MaxRecvDTOs or MaxRequestDTOs; a ring of requests has spareEntries more entries

	// Guarded by the poster's lock.
	tail   uint32 // number of the next entry to post
	freed  uint32 // the value of completed when the poster last read it
	stride uint32

	headMu   *ranked[rankEVD] // the dispatcher's lock
	segments []fabric.SGE     // stride segments for each entry; nil until the first saveSGEs

	// The dispatcher's lock guards this field, which is in another cache line than the poster's
	// fields.
	completed uint32 // number of the first entry that has not completed
}

// inflightEntry is the entry of one request or receive in flight.
type inflightEntry struct {
	cookie Cookie
	length uint64 // length in bytes; the serial of a bind
	rmr    *RMR   // the window of a bind, else nil
	lkey   uint32 // context of the region of the first segment that is not empty; 0: none
	op     DTOOperation
	flags  entryFlags

	segments uint16 // number of segments that saveSGEs has saved for a receive
}

// set fills in the entry of a data transfer. It skips a redundant pointer store, which would cost a
// write barrier.
func (en *inflightEntry) set(cookie Cookie, length uint64, op DTOOperation, flags entryFlags, lkey uint32) {
	en.cookie, en.length, en.op, en.flags, en.lkey = cookie, length, op, flags, lkey
	if en.rmr != nil {
		en.rmr = nil
	}
}

type entryFlags uint8

const (
	entrySuppressed  entryFlags = 1 << iota // a success makes no event
	entryUnsignalled                        // the event does not notify
	entryInternal                           // posted by the library; makes no event
)

// spareEntries is the number of request entries beyond the Consumer's limit. The one spare entry is
// for the request that the library posts to prove that earlier suppressed requests are done.
const spareEntries = 1

// newInflight makes a ring for limit+spare entries. saveSGEs can save up to stride segments for
// each entry.
func newInflight(limit, spare, stride int, headMu *ranked[rankEVD]) inflight {
	size := 1
	for size < limit+spare {
		size *= 2
	}
	return inflight{limit: uint32(limit), entries: make([]inflightEntry, size), headMu: headMu, stride: uint32(stride)}
}

// The method most returns the largest possible number of completions that wait to be drained.
func (q *inflight) most() int { return int(q.limit) + spareEntries }

func (q *inflight) entry(seq uint32) *inflightEntry { return &q.entries[seq&uint32(len(q.entries)-1)] }

// head returns the number of the first entry that has not completed. It acquires the dispatcher's
// lock.
func (q *inflight) head() uint32 {
	q.headMu.Lock()
	head := q.completed
	q.headMu.Unlock()
	return head
}

// count returns the number of entries that are posted and not completed; the poster's lock is held.
func (q *inflight) count() int {
	q.freed = q.head()
	return int(q.tail - q.freed)
}

// full reports whether the queue has no room for one more entry. The parameter batched is the
// number of entries in the caller's batch. They are not posted yet, but they need room. The
// poster's lock is held.
func (q *inflight) full(batched int) bool {
	return q.mayBeFull(batched) && q.count()+batched >= int(q.limit)
}

// mayBeFull is a cheap form of full. It uses the field freed and not the method head, so that it
// does not acquire the dispatcher's lock. It may return true although the queue is not full.
func (q *inflight) mayBeFull(more int) bool { return q.tail+uint32(more)-q.freed >= q.limit }

// workID returns the id of the work request of entry seq. The completion of the request has the
// same id. The upper half of the id is the id of the source, and the lower half is seq.
func (q *inflight) workID(seq uint32) uint64 { return q.id | uint64(seq) }

// owns reports whether a completion with this id belongs to work of this queue.
func (q *inflight) owns(id uint64) bool { return id&^math.MaxUint32 == q.id }

// done reports whether all entries before seq have completed.
func (q *inflight) done(seq uint32) bool { return int32(q.head()-seq) >= 0 }

// complete advances the head past entry seq and returns the entry. It returns nil if the method
// clear has removed the entry. The dispatcher's lock is held.
func (q *inflight) complete(seq uint32) *inflightEntry {
	if int32(seq-q.completed) < 0 {
		return nil
	}
	q.completed = seq + 1
	return q.entry(seq)
}

// clear forgets all work in flight. Completions of that work are dropped. The poster's lock and the
// dispatcher's lock are held.
func (q *inflight) clear() { q.completed, q.freed = q.tail, q.tail }

// strip releases the memory of a ring whose endpoint has been destroyed. The poster's lock and the
// dispatcher's lock are held.
func (q *inflight) strip() {
	q.clear()
	q.entries, q.segments = nil, nil
}

// saveSGEs saves the segments of a receive that is posted outside a connection, because Modify may
// have to post the receive again. It returns the saved segments.
func (q *inflight) saveSGEs(seq uint32, sges []fabric.SGE) []fabric.SGE {
	if q.segments == nil {
		q.segments = make([]fabric.SGE, len(q.entries)*int(q.stride))
	}
	q.entry(seq).segments = uint16(len(sges))
	saved := q.savedSGEs(seq)
	copy(saved, sges)
	return saved
}

func (q *inflight) savedSGEs(seq uint32) []fabric.SGE {
	first := int(seq&uint32(len(q.entries)-1)) * int(q.stride)
	return q.segments[first : first+int(q.entry(seq).segments)]
}
