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

// nth fails the n-th of the operations to come.
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

// hit counts one operation and reports whether it is the one that fails.
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

// FailOp fails the n-th send work request, bind or invalidation that this device executes from now
// on, with status st and without sending it. 1 is the next; 0 cancels.
func (f *Faults) FailOp(n int, st fabric.Status) { f.op.set(n, st) }

// FailRecv fails the n-th receive that a message takes on this device from now on, with status st;
// the sender's status is StatusRemoteOp. 1 is the next; 0 cancels.
func (f *Faults) FailRecv(n int, st fabric.Status) { f.recv.set(n, st) }

// FailPost makes the n-th post from now on to a queue pair of this device return ErrResources. 1 is
// the next; 0 cancels.
func (f *Faults) FailPost(n int) { f.post.set(n, fabric.StatusGeneral) }

// TakeAhead makes the queue pairs of this device take n more receives from their SRQ than messages
// have arrived, as devices may. They take them with the next message, and flush them in the end.
func (f *Faults) TakeAhead(n int) { f.ahead.Store(int32(n)) }

// Delay delays every work request that this device starts from now on by d, and on mem0 every
// connection message. Order is kept; reads and atomics beyond the depth of their connection wait
// for earlier ones.
func (f *Faults) Delay(d time.Duration) { f.delay.Store(int64(d)) }

// Delayed is the delay in force.
func (f *Faults) Delayed() time.Duration { return time.Duration(f.delay.Load()) }

// due returns when something started now takes effect; zero is at once.
func (f *Faults) due() time.Time {
	if d := f.Delayed(); d > 0 {
		return time.Now().Add(d)
	}
	return time.Time{}
}

// Exhaust makes the next n objects of kind r fail with ErrResources.
func (f *Faults) Exhaust(r Resource, n int) {
	f.dev.HW.Mu.Lock()
	defer f.dev.HW.Mu.Unlock()
	f.exhaust[r] = n
}

// Removed reports whether the device has been removed.
func (f *Faults) Removed() bool { return f.removed.Load() }

// FailsNow counts one request that the wire starts, and returns the status of the one that FailOp
// fails.
func (f *Faults) FailsNow() (fabric.Status, bool) { return f.op.hit() }
