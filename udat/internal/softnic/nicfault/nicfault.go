// Package nicfault injects faults into software NICs, for tests. Importing it gives every device of
// softnic that is opened from then on a hook:
//
//	nicfault.Of(dev).FailOp(1, fabric.StatusRemoteOp)
//
// All methods of [Faults] are safe for concurrent use and take effect at once. Package faultfabric,
// which works with every fabric, changes calls and events instead.
package nicfault

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/softnic"
)

func init() {
	softnic.NewHook = func(d *softnic.Device) *softnic.Hook {
		f := &Faults{dev: d, exhausted: make(map[softnic.Resource]int), lost: make(map[softnic.Message]int),
			cut: make(map[*softnic.QP]bool)}
		return &softnic.Hook{Maker: f, Create: f.create, Post: f.post, Holds: f.holds, Start: f.start,
			Request: f.delayRequest, Receive: f.receive, Ahead: f.ahead, Send: f.send, Reaches: f.reaches}
	}
}

// Of returns the faults of a device.
func Of(dev interface{ NIC() *softnic.Device }) *Faults { return dev.NIC().Hook.Maker.(*Faults) }

// Faults injects faults into one open device.
type Faults struct {
	dev                        *softnic.Device
	more                       atomic.Int32
	delay                      atomic.Int64 // nanoseconds
	dead, removed              atomic.Bool
	failOp, failRecv, failPost nth
	held                       sync.Map // from queue pairs to the delays of their requests

	mu        sync.Mutex
	cut       map[*softnic.QP]bool
	exhausted map[softnic.Resource]int
	lost      map[softnic.Message]int
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

// A call of hit counts one operation, and returns the status of the one that fails.
func (n *nth) hit() fabric.Status {
	if !n.armed.Load() {
		return fabric.StatusSuccess
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.left == 0 {
		return fabric.StatusSuccess
	}
	if n.left--; n.left > 0 {
		return fabric.StatusSuccess
	}
	n.armed.Store(false)
	return n.status
}

// FailOp fails the n-th send work request, bind or invalidation that this device starts from now
// on. The request completes with status st and is not sent. With n = 1 the next request fails; n =
// 0 cancels the fault.
func (f *Faults) FailOp(n int, st fabric.Status) { f.failOp.set(n, st) }

func (f *Faults) start() fabric.Status { return f.failOp.hit() }

// FailRecv fails the n-th receive that a message takes on this device from now on. The receive
// completes with status st, and the sender's request completes with StatusRemoteOp. With n = 1 the
// next receive fails; n = 0 cancels the fault.
func (f *Faults) FailRecv(n int, st fabric.Status) { f.failRecv.set(n, st) }

func (f *Faults) receive() fabric.Status { return f.failRecv.hit() }

// FailPost makes the n-th post on this device from now on return ErrResources. Each request, each
// bind, and each call that posts receives, counts as one. With n = 1 the next post fails; n = 0
// cancels the fault.
func (f *Faults) FailPost(n int) { f.failPost.set(n, fabric.StatusGeneral) }

func (f *Faults) post() error {
	if f.removed.Load() {
		return fabric.ErrDeviceRemoved
	}
	if f.failPost.hit() != fabric.StatusSuccess {
		return fabric.ErrResources
	}
	return nil
}

// TakeAhead makes each queue pair of this device take n more receives from its SRQ than messages
// have arrived for it, as real devices may do. A queue pair takes these receives when its next
// message arrives, and flushes them when it moves to the error state.
func (f *Faults) TakeAhead(n int) { f.more.Store(int32(n)) }

func (f *Faults) ahead() int { return int(f.more.Load()) }

// Exhaust makes the next n attempts to create an object of kind r fail with ErrResources.
func (f *Faults) Exhaust(r softnic.Resource, n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.exhausted[r] = n
}

func (f *Faults) create(r softnic.Resource) error {
	if f.removed.Load() {
		return fabric.ErrDeviceRemoved
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.exhausted[r] > 0 {
		f.exhausted[r]--
		return fabric.ErrResources
	}
	return nil
}

// Lose drops the next n messages of kind m that this device sends.
func (f *Faults) Lose(m softnic.Message, n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lost[m] = n
}

func (f *Faults) send(m softnic.Message, to *softnic.Device, arrive func()) func() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.lost[m] > 0 {
		f.lost[m]--
		return nil
	}
	if f.silent() {
		return nil
	}
	due := f.due()
	return func() {
		time.Sleep(time.Until(due)) // in the dispatcher: later messages wait
		if !Of(to).silent() {
			arrive()
		}
	}
}

// Kill cuts the device off, as a power failure would: no message from it or to it arrives.
func (f *Faults) Kill() { f.setDead(true) }

// Revive undoes Kill. Requests with retries left continue.
func (f *Faults) Revive() { f.setDead(false) }

// setDead cuts the device off, or connects it again, and wakes the links of the device and of its
// peers.
func (f *Faults) setDead(dead bool) {
	f.dead.Store(dead)
	for _, q := range f.dev.QPs() {
		q.Link().Failed()
	}
}

// A call of silent reports whether all messages from and to the device are lost.
func (f *Faults) silent() bool { return f.dead.Load() || f.removed.Load() }

// Drop breaks the path of one queue pair's connection for good. Both ends run out of retries, and
// neither gets a connection event.
func (f *Faults) Drop(qpn uint32) {
	for _, q := range f.dev.QPs() {
		if q.Num() == qpn {
			f.mu.Lock()
			f.cut[q] = true
			f.mu.Unlock()
			q.Link().Failed()
		}
	}
}

func (f *Faults) reaches(q, peer *softnic.QP) bool {
	return f.passes(q) && Of(peer.Device()).passes(peer)
}

func (f *Faults) passes(q *softnic.QP) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.silent() && !f.cut[q]
}

// Remove simulates the removal of the device. It reports AsyncDeviceFatal, ends every connection
// with EventRemoved, and flushes all posted requests. From then on nothing can be created or
// posted.
func (f *Faults) Remove() {
	d := f.dev
	if f.removed.Swap(true) {
		return
	}
	d.Report(fabric.AsyncEvent{Kind: fabric.AsyncDeviceFatal})
	for _, q := range d.QPs() {
		q.Fail()
	}
	d.HW.Mu.Lock()
	for c := range d.Conns {
		if c.State < softnic.Over {
			c.Finish(fabric.EventRemoved, fabric.ErrDeviceRemoved)
		}
	}
	var ended []func()
	for l := range d.Listeners {
		ended = append(ended, l.Ended)
	}
	d.HW.Mu.Unlock()
	for _, end := range ended {
		end()
	}
}

// Overrun simulates an overrun of a completion queue. It reports AsyncCQError, and moves the queue
// pairs of the queue to the error state.
func (f *Faults) Overrun(c fabric.CQ) { c.(*softnic.CQ).Overrun() }

// Report raises an asynchronous event without any other effect on the device. An event that names
// no CQ, QP or SRQ, such as AsyncPortError, is reported to every opening of the adapter.
func (f *Faults) Report(ev fabric.AsyncEvent) {
	if ev.CQ != nil || ev.QP != nil || ev.SRQ != nil {
		f.dev.Report(ev)
		return
	}
	for _, d := range f.dev.HW.Openings() {
		d.Report(ev)
	}
}

// delays are the requests of one queue pair that Delay holds back.
type delays struct {
	mu     sync.Mutex
	due    []time.Time // a ring as long as the send queue; zero: not delayed
	placed uint64      // the number of the latest request that is counted in reads, plus 1
	reads  int
	done   []time.Time // a ring as long as the read depth: when the delays of the latest reads end
	timer  *time.Timer
}

// Delay delays by d every work request that is posted on this device from now on. On mem0 it also
// delays every message of connection management. The order stays the same. Reads and atomics beyond
// the read depth of their connection also wait for earlier ones.
func (f *Faults) Delay(d time.Duration) { f.delay.Store(int64(d)) }

// A call of due returns the earliest time at which a request that is posted now may start. The zero
// time means at once.
func (f *Faults) due() time.Time {
	if d := time.Duration(f.delay.Load()); d > 0 {
		return time.Now().Add(d)
	}
	return time.Time{}
}

// delayRequest records until when the request that is about to be posted to q is held back. A queue
// pair whose requests were never delayed has no record.
func (f *Faults) delayRequest(q *softnic.QP) {
	due := f.due()
	v, delayed := f.held.Load(q)
	if !delayed {
		if due.IsZero() {
			return
		}
		v = &delays{due: make([]time.Time, q.Sends().Depth())}
		f.held.Store(q, v)
	}
	d := v.(*delays)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.due[q.Sends().Tail()%uint64(len(d.due))] = due
}

// Holds holds requests back until their delays have ended. The delay of a read or an atomic begins
// only when the read depth allows one more to be in flight.
func (f *Faults) holds(q *softnic.QP, n uint64) bool {
	v, delayed := f.held.Load(q)
	if !delayed {
		return false
	}
	d := v.(*delays)
	d.mu.Lock()
	defer d.mu.Unlock()
	due := &d.due[n%uint64(len(d.due))]
	if due.IsZero() {
		return false
	}
	if _, out := q.ReadDepths(); softnic.Sinks(q.Sends().Slot(n).WR.Opcode) && out > 0 && d.placed != n+1 {
		d.placed = n + 1
		if d.done == nil {
			d.done = make([]time.Time, out)
		}
		oldest := &d.done[d.reads%len(d.done)]
		d.reads++
		if start := oldest.Add(time.Duration(f.delay.Load())); due.Before(start) {
			*due = start
		}
		*oldest = *due
	}
	wait := time.Until(*due)
	if wait <= 0 {
		return false
	}
	if d.timer == nil {
		d.timer = time.AfterFunc(wait, func() { q.Link().Wake() })
	} else {
		d.timer.Reset(wait)
	}
	return true
}
