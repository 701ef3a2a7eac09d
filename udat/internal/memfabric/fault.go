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

// Faults makes faults on one open device. All of it is safe for concurrent use and takes effect at once.
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

// Faults is the handle by which tests break the device.
func (d *Device) Faults() *Faults { return &d.faults }

// nth makes one of the operations to come fail.
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

// FailOp makes the n-th send work request (binds and invalidations too) that this device executes from now on end
// with status st, without being sent; 1 is the next, 0 takes it back.
func (f *Faults) FailOp(n int, st fabric.Status) { f.op.set(n, st) }

// FailRecv makes the n-th receive that a message takes on this device from now on end with status st; the sender
// gets StatusRemoteOp. 1 is the next, 0 takes it back.
func (f *Faults) FailRecv(n int, st fabric.Status) { f.recv.set(n, st) }

// FailPost makes the n-th work request that is posted to a queue pair of this device from now on be refused with
// ErrResources; 1 is the next, 0 takes it back.
func (f *Faults) FailPost(n int) { f.post.set(n, fabric.StatusGeneral) }

// TakeAhead makes the queue pairs of this device take n receives more from their SRQ than messages have come for, as
// devices may that place messages before their turn. They take them with the next message, and flush them in the end.
func (f *Faults) TakeAhead(n int) { f.ahead.Store(int32(n)) }

// Delay holds every work request and every message of connection management that this device starts from now on
// back by d. Order is kept; reads and atomics beyond the depth of their connection wait for earlier ones.
func (f *Faults) Delay(d time.Duration) { f.delay.Store(int64(d)) }

// Delayed is the delay in force.
func (f *Faults) Delayed() time.Duration { return time.Duration(f.delay.Load()) }

// due is when something that is started now takes effect; zero is at once.
func (f *Faults) due() time.Time {
	if d := f.Delayed(); d > 0 {
		return time.Now().Add(d)
	}
	return time.Time{}
}

// Kill cuts the device off as if its host had lost power: nothing that it sends arrives, and it answers nobody.
func (f *Faults) Kill() { f.setDead(true) }

// Revive undoes Kill. What has not run out of retries goes on.
func (f *Faults) Revive() { f.setDead(false) }

func (f *Faults) setDead(dead bool) {
	f.dead.Store(dead)
	f.dev.nudge()
}

// silent tells whether messages of the device are lost both ways.
func (f *Faults) silent() bool { return f.dead.Load() || f.removed.Load() }

// nudge makes the engines of the device and of its peers look again.
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

// Drop breaks the path of the connection of one queue pair for ever: both ends run out of retries, and no event
// of connection management tells.
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

// Remove takes the device away: AsyncDeviceFatal, EventRemoved on every connection, everything posted is flushed,
// and all that is left to do with it is Close.
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

// Lose makes the next n messages of kind m that this device sends disappear.
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

// Overrun puts a completion queue into the state after an overrun: AsyncCQError, and its queue pairs in error.
func (f *Faults) Overrun(c fabric.CQ) { c.(*cq).fail() }

// Report raises an asynchronous event that has no effect on the device. One that names no queue, such as AsyncPortError,
// concerns the whole adapter: every open of it gets the event.
func (f *Faults) Report(ev fabric.AsyncEvent) {
	if ev.CQ != nil || ev.QP != nil || ev.SRQ != nil {
		f.dev.report(ev)
		return
	}
	for _, d := range f.dev.f.Opened() {
		d.report(ev)
	}
}
