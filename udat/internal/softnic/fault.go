package softnic

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/godat/godat/udat/internal/fabric"
)

// Faults injects faults into one open device. All methods are safe for concurrent use and take
// effect at once.
type Faults struct {
	dev     *Device
	delay   atomic.Int64 // nanoseconds
	removed atomic.Bool
	op      nth
	recv    nth
	post    nth
	ahead   atomic.Int32

	// Guarded by Adapter.Mu.
	exhaust [numResources]int
}

// nth makes the n-th of the following operations fail.
type nth struct {
	armed  atomic.Bool
	mu     sync.Mutex
	left   int
	status fabric.Status
}

func (n *nth) set(left int, st fabric.Status) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.left, n.status = left, st
	n.armed.Store(left > 0)
}

// A call of hit counts one operation and reports whether it is the one that fails.
func (n *nth) hit() (fabric.Status, bool) {
	if !n.armed.Load() {
		return 0, false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.left == 0 {
		return 0, false
	}
	if n.left--; n.left > 0 {
		return 0, false
	}
	n.armed.Store(false)
	return n.status, true
}

// FailOp fails the n-th send work request, bind or invalidation that this device starts from now
// on. The request completes with status st and is not sent. With n = 1 the next request fails; n =
// 0 cancels the fault.
func (f *Faults) FailOp(n int, st fabric.Status) { f.op.set(n, st) }

// FailRecv fails the n-th receive that a message takes on this device from now on. The receive
// completes with status st, and the sender's request completes with StatusRemoteOp. With n = 1 the
// next receive fails; n = 0 cancels the fault.
func (f *Faults) FailRecv(n int, st fabric.Status) { f.recv.set(n, st) }

// FailPost makes the post of a send or receive to a queue pair of this device return ErrResources:
// the n-th such post from now on. Binds do not count. With n = 1 the next post fails; n = 0 cancels
// the fault.
func (f *Faults) FailPost(n int) { f.post.set(n, fabric.StatusGeneral) }

// TakeAhead makes each queue pair of this device take n more receives from its SRQ than messages
// have arrived for it, as real devices may do. A queue pair takes these receives when its next
// message arrives, and flushes them when it moves to the error state.
func (f *Faults) TakeAhead(n int) { f.ahead.Store(int32(n)) }

// Delay delays by d every work request that is posted on this device from now on. On mem0 it also
// delays every message of connection management. The order stays the same. Reads and atomics beyond
// the read depth of their connection also wait for earlier ones.
func (f *Faults) Delay(d time.Duration) { f.delay.Store(int64(d)) }

// Delayed returns the delay in force.
func (f *Faults) Delayed() time.Duration { return time.Duration(f.delay.Load()) }

// A call of due returns the earliest time at which a request that is posted now may start. The zero
// time means at once.
func (f *Faults) due() time.Time {
	if d := f.Delayed(); d > 0 {
		return time.Now().Add(d)
	}
	return time.Time{}
}

// Exhaust makes the next n attempts to create an object of kind r fail with ErrResources.
func (f *Faults) Exhaust(r Resource, n int) {
	f.dev.HW.Mu.Lock()
	defer f.dev.HW.Mu.Unlock()
	f.exhaust[r] = n
}

// Removed reports whether the device has been removed.
func (f *Faults) Removed() bool { return f.removed.Load() }

// FailsNow counts a request that the transport starts. If FailOp has selected this request, it
// returns the status of the request's completion and true.
func (f *Faults) FailsNow() (fabric.Status, bool) { return f.op.hit() }

// The functions in this file are for tests of a transport.

// NIC returns the faults of the device. They do not include the faults of its transport.
func (d *Device) NIC() *Faults { return &d.Faults }

// Number sets the next queue pair number.
func (a *Adapter) Number(qpn uint32) {
	a.Mu.Lock()
	defer a.Mu.Unlock()
	a.nextQPN = qpn
}

// Numbers returns how many queue pair numbers are in use.
func (a *Adapter) Numbers() int {
	a.Mu.Lock()
	defer a.Mu.Unlock()
	return len(a.qpns)
}

// Connections returns the number of connections and unanswered connection requests together.
func (d *Device) Connections() int {
	d.HW.Mu.Lock()
	defer d.HW.Mu.Unlock()
	return len(d.conns) + len(d.requests)
}

// Pin pins the memory of a key, as a transfer does, until unpin is called. The result unpin is nil
// if the key is invalid.
func (a *Adapter) Pin(key uint32) (unpin func()) {
	if s := a.keys.enter(key); s != nil {
		return s.leave
	}
	return nil
}

// StartAt makes the queue count as if n requests had been posted and completed.
func (s *SendQueue) StartAt(n uint64) {
	s.head.Store(n)
	s.tail.Store(n)
}

// SRQ returns the shared receive queue of the queue pair, or nil if it has none.
func (q *QP) SRQ() fabric.SRQ {
	if q.srq == nil {
		return nil
	}
	return q.srq
}
