package udat

import "github.com/godat/godat/udat/internal/fabric"

// DeviceAttr gives tests the limits and abilities of the adapter's device.
func DeviceAttr(ia *IA) fabric.Attr { return ia.device.Attr() }

// CompletionQueue gives tests the dispatcher's completion queue.
func CompletionQueue(e *EVD) fabric.CQ { return e.cq }

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
func BeforeArm(e *EVD, do func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.cq = &hookedCQ{CQ: e.cq, do: do}
}

type hookedCQ struct {
	fabric.CQ
	do func()
}

func (c *hookedCQ) Arm(solicitedOnly bool) error {
	if do := c.do; do != nil {
		c.do = nil
		do()
	}
	return c.CQ.Arm(solicitedOnly)
}

// Unkept keeps the adapter from looking after its dispatchers by itself.
func Unkept(ia *IA) {
	ia.mu.Lock()
	defer ia.mu.Unlock()
	ia.keeping = true
}
