package udat

import (
	"time"

	"github.com/godat/godat/udat/internal/fabric"
)

// takesShared reports whether the queue pair of a connection that has ended may still complete
// receives of the shared queue; ep.mu is held.
func (ep *EP) takesShared() bool {
	c := ep.conn.Load()
	if ep.srq == nil || c == nil || c.ended.IsZero() {
		return false
	}
	ep.requests.mu.Lock()
	defer ep.requests.mu.Unlock()
	return ep.requests.qp != nil && hasTaken(ep.requests.qp, c.ended)
}

// hasTaken reports whether a queue pair may still complete receives of a shared queue. The
// parameter since is the time when the queue pair entered the error state.
func hasTaken(qp fabric.QP, since time.Time) bool {
	switch n := qp.Taken(); {
	case n == 0:
		return false
	case n < 0:
		return time.Now().Before(since.Add(sharedWait))
	}
	return time.Now().Before(since.Add(flushWait))
}

// sharedWait is for devices that do not report how many receives a queue pair has taken from a
// shared queue. On such a device these receives count as completed when the queue pair has been in
// the error state for sharedWait.
const sharedWait = 20 * time.Millisecond

// completeTaken waits, before an endpoint is freed, until the device has completed the receives
// that the endpoint has taken from the shared queue. If the queue pair were destroyed in the middle
// of a message, the receive would be lost. No lock of the endpoint is held.
func (ep *EP) completeTaken(since time.Time) {
	ep.requests.mu.Lock()
	qp := ep.requests.qp
	if qp != nil {
		qp.SetError()
	}
	ep.requests.mu.Unlock()
	if qp != nil {
		pollUntil(since.Add(flushWait), func() bool { return !hasTaken(qp, since) })
	}
}

// tellsTaken reports whether the device counts the receives that an endpoint takes from a shared
// queue.
func (ep *EP) tellsTaken() bool { return ep.obj.ia.device.Attr().SRQExactCounts }

// armTaken sets the high watermarks of a queue pair that has a shared receive queue. It has no
// effect if the device does not count the receives that are taken. ep.mu is held, or the endpoint
// is not published yet.
func (ep *EP) armTaken(qp fabric.QP) {
	w := &ep.wmark
	soft := WatermarkInfinite
	if w.softArmed {
		soft = w.soft
	}
	qp.SetTakenLimits(soft, w.hard)
}

func (w *watermarks) set(soft, hard int) {
	w.soft, w.softArmed = soft, soft != WatermarkInfinite
	w.hard, w.passed = hard, false
	w.rearm()
}

func (w *watermarks) rearm() { w.armed.Store(w.softArmed || w.hard != WatermarkInfinite) }

// aboveHard reports whether the endpoint holds more receives than the hard watermark allows; ep.mu
// is held.
func (ep *EP) aboveHard() bool {
	w := &ep.wmark
	if ep.srq != nil {
		return w.passed
	}
	return w.hard != WatermarkInfinite && ep.recvs.inFlight() > w.hard
}

func (q *recvQueue) inFlight() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.inflight.count()
}

// allocated returns the number of receives that the endpoint holds: posted to it or taken from a
// shared queue, and not completed. It returns ValueUnknown if the device does not count them;
// recvs.mu is held.
func (ep *EP) allocated() int {
	taken := 0
	if ep.srq != nil {
		if !ep.tellsTaken() {
			return ValueUnknown
		}
		if qp := ep.recvs.qp; qp != nil {
			taken = qp.Taken() // before the poll: a receive that completes between Taken and the poll still counts
		}
	}
	s := ep.recvs.source
	s.evd.poll()
	return taken + s.inflight.count() + s.deferredCount()
}

// recvsIdle reports whether the endpoint holds no receives, as far as the device can say; no lock
// of the endpoint is held.
func (ep *EP) recvsIdle() bool {
	ep.recvs.mu.Lock()
	n := ep.allocated()
	ep.recvs.mu.Unlock()
	if n != ValueUnknown {
		return n == 0
	}
	ep.mu.Lock()
	defer ep.mu.Unlock()
	switch ep.getState() {
	case EPActiveConnectionPending, EPCompletionPending, EPConnected, EPDisconnectPending:
		return false
	}
	return !ep.takesShared()
}
