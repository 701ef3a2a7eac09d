package memfabric

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/godat/godat/udat/internal/fabric"
)

// Message is a kind of message of connection management.
type Message int

// The messages.
const (
	MsgRequest    Message = iota // of a connect
	MsgReply                     // of an accept
	MsgReady                     // of the active end, after the reply: the acceptor's EventEstablished
	MsgReject                    // of a reject, also by the fabric
	MsgDisconnect                // of a disconnect
	numMessages
)

// Faults injects faults into one open device. All methods are safe for concurrent use and take
// effect at once.
type Faults struct {
	dev     *Device
	delay   atomic.Int64 // nanoseconds
	dead    atomic.Bool
	removed atomic.Bool
	op      nth
	recv    nth
	post    nth
	ahead   atomic.Int32

	// Guarded by Fabric.mu.
	exhaust [numResources]int
	lose    [numMessages]int
}

// Faults returns the faults of the device.
func (d *Device) Faults() *Faults { return &d.faults }

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

// Delay delays every work request and connection message that this device starts from now on by d.
// Order is kept; reads and atomics beyond the depth of their connection wait for earlier ones.
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

// Kill disconnects the device as a power failure would: nothing that it sends arrives, and it
// answers nothing.
func (f *Faults) Kill() { f.setDead(true) }

// Revive undoes Kill. Requests with retries left continue.
func (f *Faults) Revive() { f.setDead(false) }

func (f *Faults) setDead(dead bool) {
	f.dead.Store(dead)
	f.dev.nudge()
}

// silent reports whether messages of the device are lost in both directions.
func (f *Faults) silent() bool { return f.dead.Load() || f.removed.Load() }

// nudge wakes the engines of the device and of its peers.
func (d *Device) nudge() {
	d.f.mu.Lock()
	defer d.f.mu.Unlock()
	for q := range d.qps {
		q.nudge()
	}
}

func (q *qp) nudge() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.wake()
	if q.peer != nil {
		q.peer.wake()
	}
}

// Drop breaks the path of one queue pair's connection for good: both ends run out of retries, and
// there is no connection event.
func (f *Faults) Drop(qpn uint32) {
	fab := f.dev.f
	fab.mu.Lock()
	defer fab.mu.Unlock()
	for q := range f.dev.qps {
		if q.num == qpn {
			q.cut.Store(true)
			q.nudge()
		}
	}
}

// Remove removes the device: AsyncDeviceFatal, EventRemoved on every connection, and all work is
// flushed. Only Close is left.
func (f *Faults) Remove() {
	d := f.dev
	d.f.mu.Lock()
	defer d.f.mu.Unlock()
	if f.removed.Swap(true) {
		return
	}
	d.report(fabric.AsyncEvent{Kind: fabric.AsyncDeviceFatal})
	for q := range d.qps {
		q.fail()
	}
	for port, l := range d.f.listeners {
		if l.dev == d {
			delete(d.f.listeners, port)
		}
	}
	for c := range d.conns {
		c.removed()
	}
}

// Lose drops the next n messages of kind m that this device sends.
func (f *Faults) Lose(m Message, n int) {
	f.dev.f.mu.Lock()
	defer f.dev.f.mu.Unlock()
	f.lose[m] = n
}

// Exhaust makes the next n objects of kind r fail with ErrResources.
func (f *Faults) Exhaust(r Resource, n int) {
	f.dev.f.mu.Lock()
	defer f.dev.f.mu.Unlock()
	f.exhaust[r] = n
}

// Overrun fails a completion queue as an overrun does: AsyncCQError, and its queue pairs in error.
func (f *Faults) Overrun(c fabric.CQ) { c.(*cq).fail() }

// Report raises an asynchronous event that has no effect on the device. One that names no queue,
// such as AsyncPortError, concerns the whole adapter: every open of it gets the event.
func (f *Faults) Report(ev fabric.AsyncEvent) {
	if ev.CQ != nil || ev.QP != nil || ev.SRQ != nil {
		f.dev.report(ev)
		return
	}
	for _, d := range f.dev.f.Opened() {
		d.report(ev)
	}
}
