package udat

import (
	"sync/atomic"
	"time"

	"github.com/godat/godat/udat/internal/fabric"
)

// DeviceAttr gives tests the limits and abilities of the adapter's device.
func DeviceAttr(ia *IA) fabric.Attr { return ia.device.Attr() }

// CompletionQueue gives tests the dispatcher's completion queue.
func CompletionQueue(e *EVD) fabric.CQ { return e.cq }

// FabricSRQ is the device's queue behind a shared receive queue.
func FabricSRQ(s *SRQ) fabric.SRQ { return s.hw }

// CNOWaiters gives tests the number of calls that are blocked on the object.
func CNOWaiters(c *CNO) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.waiters
}

// Queued gives tests the number of events on the dispatcher, without taking what the device has for it.
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

// BeforeArm calls do once, before the dispatcher's completion queue is armed the next time.
func BeforeArm(e *EVD, do func()) { hook(e, &hookedCQ{beforeArm: do}) }

// AfterPark calls do once, when a call that is parked in the dispatcher's completion queue the next time is woken.
func AfterPark(e *EVD, do func()) { hook(e, &hookedCQ{afterWait: do}) }

func hook(e *EVD, c *hookedCQ) {
	e.mu.Lock()
	defer e.mu.Unlock()
	c.CQ = e.cq
	e.cq = c
}

// FailArm makes the dispatcher's completion queue fail when it is armed the next time.
func FailArm(e *EVD, err error) { hook(e, &hookedCQ{armErr: err}) }

// FailWait makes the next call that parks in the dispatcher's completion queue fail there.
func FailWait(e *EVD, err error) { hook(e, &hookedCQ{waitErr: err}) }

// FailResize makes the next attempt to resize the dispatcher's completion queue fail.
func FailResize(e *EVD, err error) { hook(e, &hookedCQ{resizeErr: err}) }

// Deafen keeps the dispatcher's completion queue from telling of completions.
func Deafen(e *EVD) { hook(e, &hookedCQ{deaf: true}) }

// Arms tells how often the dispatcher's completion queue has been armed since.
func Arms(e *EVD) func() int {
	c := &hookedCQ{}
	hook(e, c)
	return func() int { return int(c.arms.Load()) }
}

// Hide keeps the completions on the dispatcher's completion queue from it, until the function that it gives is called.
func Hide(e *EVD) (show func()) {
	c := &hookedCQ{}
	c.hidden.Store(true)
	hook(e, c)
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.cq = c.CQ           // a queue pair can be made with no other,
		c.hidden.Store(false) // and may be as soon as the completions show
	}
}

// Looks tells how often the dispatcher has asked its completion queue to look, the latest time.
func Looks(e *EVD) func() int {
	c := &hookedCQ{}
	hook(e, c)
	return func() int { return int(c.looks.Load()) }
}

// WithProcessors runs do as on a machine with n processors.
func WithProcessors(n int, do func()) {
	defer func(was int) { processors = was }(processors)
	processors = n
	do()
}

type hookedCQ struct {
	fabric.CQ
	beforeArm, afterWait func()
	hidden               atomic.Bool
	deaf                 bool

	armErr, waitErr, resizeErr error

	looks atomic.Int32 // of the latest Poll
	arms  atomic.Int32
}

func (c *hookedCQ) Poll(wcs []fabric.WC, looks int) (int, error) {
	c.looks.Store(int32(looks))
	if c.hidden.Load() {
		return 0, nil
	}
	return c.CQ.Poll(wcs, looks)
}

func (c *hookedCQ) Arm(solicitedOnly bool) error {
	if do := c.beforeArm; do != nil {
		c.beforeArm = nil
		do()
	}
	if err := c.armErr; err != nil {
		c.armErr = nil
		return err
	}
	c.arms.Add(1)
	if c.deaf {
		return nil
	}
	return c.CQ.Arm(solicitedOnly)
}

func (c *hookedCQ) Resize(depth int) error {
	if err := c.resizeErr; err != nil {
		c.resizeErr = nil
		return err
	}
	return c.CQ.Resize(depth)
}

func (c *hookedCQ) Wait(deadline time.Time) (bool, error) {
	if err := c.waitErr; err != nil {
		c.waitErr = nil
		return false, err
	}
	fired, err := c.CQ.Wait(deadline)
	if do := c.afterWait; do != nil {
		c.afterWait = nil
		do()
	}
	return fired, err
}

// Unkept keeps the adapter from looking after its dispatchers by itself.
func Unkept(ia *IA) {
	ia.mu.Lock()
	defer ia.mu.Unlock()
	ia.keeping = true
}

const SpinLooks = spinLooks

// OverflowRoom is how many events beyond its length a dispatcher keeps at least.
const OverflowRoom = overflowRoom

// SpinScore gives tests whether spinning has paid on the dispatcher, and the lowest score, at which it does not spin.
func SpinScore(e *EVD) (score, lowest int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.spinScore, -spinTrust
}

// Made reports whether the handle was ever an object, freed or not.
func Made(h Handle) bool { return h.object() != nil && h.object().ia != nil }
