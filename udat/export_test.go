package udat

import (
	"math"
	"time"

	"github.com/godat/godat/udat/internal/fabric"
)

// DeviceAttr gives tests the limits and abilities of the adapter's device.
func DeviceAttr(ia *IA) fabric.Attr { return ia.device.Attr() }

// CompletionQueue gives tests the dispatcher's completion queue.
func CompletionQueue(e *EVD) fabric.CQ { return e.cq }

// FabricSRQ returns the device's queue of a shared receive queue.
func FabricSRQ(s *SRQ) fabric.SRQ { return s.hw }

// CNOWaiters gives tests the number of calls that are blocked on the object.
func CNOWaiters(c *CNO) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.waiters
}

// Queued returns the number of events on the dispatcher, without draining the device.
func Queued(e *EVD) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.ring.n
}

// SetGeneration sets the generation of the dispatcher's latest stream.
func SetGeneration(e *EVD, generation uint32) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.sources.gen = generation
}

// Through opens the adapter on the fabrics that wrap decorates. Package faultfabric is used through
// it.
func Through(wrap func(fabric.Fabric) fabric.Fabric) Option {
	return func(o *openOptions) error { o.wrap = wrap; return nil }
}

// WithoutPolling opens the adapter so that it does not poll its dispatchers.
func WithoutPolling() Option {
	return func(o *openOptions) error { o.pollEvery, o.keepAlive = math.MaxInt64, 0; return nil }
}

// WithPollInterval opens the adapter so that it polls its dispatchers this often.
func WithPollInterval(d time.Duration) Option {
	return func(o *openOptions) error { o.pollEvery = d; return nil }
}

// Idle reports whether the arm loop waits for the next completion of the dispatcher.
func Idle(e *EVD) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.idle() && e.waiting.loop == loopParked
}

// Looping reports whether the dispatcher has an arm loop.
func Looping(e *EVD) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.waiting.loop != loopNone
}

// Polled reports whether the adapter polls the dispatcher.
func Polled(e *EVD) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.waiting.polled
}

// WithQuickKeepAlive is WithKeepAlive without a lower limit.
func WithQuickKeepAlive(d time.Duration) Option {
	return func(o *openOptions) error { o.keepAlive = d; return nil }
}

// WithAcceptWait opens the adapter so that an accept waits this long for its confirmation.
func WithAcceptWait(d time.Duration) Option {
	return func(o *openOptions) error { o.acceptWait = d; return nil }
}

// WithProcessors opens the adapter as on a machine with n processors.
func WithProcessors(n int) Option {
	return func(o *openOptions) error { o.processors = n; return nil }
}

// FlushWait bounds how long Reset waits for queues that others still post to.
const FlushWait = flushWait

const SpinPolls = spinPolls

// OverflowRoom is how many events beyond its length a dispatcher keeps at least.
const OverflowRoom = overflowRoom

// SpinRound is the number of calls that a dispatcher measures before it decides whether calls spin.
const SpinRound = spinRound

// Parks reports whether calls on the dispatcher park at once, without spinning.
func Parks(e *EVD) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.waiting.spins.parks
}

// Made reports whether the handle was ever an object, freed or not.
func Made(h Handle) bool { return h.object() != nil && h.object().ia != nil }

// CountOf returns the number of the adapter's objects of a kind.
func CountOf(ia *IA, kind HandleType) int {
	ia.mu.Lock()
	defer ia.mu.Unlock()
	return len(ia.objects[kind])
}

// Lost returns the number of asynchronous events that the queued event of an overflow counts.
func Lost(e *EVD) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.lost == nil {
		return 0
	}
	return e.lost.n
}

// Unconfirmed returns the number of accepts that wait for their confirmation.
func Unconfirmed(ia *IA) int {
	ia.mu.Lock()
	defer ia.mu.Unlock()
	return len(ia.unconfirmed)
}

// Capacity returns the number of completions that may be in flight on the dispatcher's completion
// queue.
func Capacity(e *EVD) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.capacity
}

// Blocked reports whether a call is blocked in Wait.
func Blocked(e *EVD) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.waiting.blocked()
}
