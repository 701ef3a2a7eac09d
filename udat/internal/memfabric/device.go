package memfabric

import (
	"fmt"
	"slices"
	"strings"

	"github.com/godat/godat/udat/internal/fabric"
)

// Resource is a kind of object that a device holds.
type Resource int

// The kinds of objects.
const (
	PDs Resource = iota
	MRs
	MWs
	CQs
	SRQs
	QPs
	Listeners
	Conns
	numResources
)

var resourceNames = [numResources]string{
	"protection domain", "memory region", "memory window", "completion queue", "shared receive queue",
	"queue pair", "listener", "connection",
}

// Device is one opening of mem0.
type Device struct {
	f      *Fabric
	opts   fabric.Options
	async  func(fabric.AsyncEvent)
	faults Faults
	events dispatcher
	engine engine

	// Guarded by f.mu.
	closed   bool
	count    [numResources]int
	qps      map[*qp]struct{}
	conns    map[*conn]struct{}
	requests map[*request]struct{} // delivered and not answered
}

// Attr tells the limits and facts.
func (d *Device) Attr() fabric.Attr { return d.f.attr }

func (d *Device) limit(r Resource) int {
	a := &d.f.attr
	return [numResources]int{a.MaxPD, a.MaxMR, a.MaxMW, a.MaxCQ, a.MaxSRQ, a.MaxQP, 1 << 16, a.MaxQP}[r]
}

// usable returns an error if the device can create nothing; f.mu is held.
func (d *Device) usable(op string) error {
	switch {
	case d.closed:
		return failed(op, fabric.ErrClosed)
	case d.faults.removed.Load():
		return failed(op, fabric.ErrDeviceRemoved)
	}
	return nil
}

// take counts one more object of kind r; f.mu is held.
func (d *Device) take(op string, r Resource) error {
	if err := d.usable(op); err != nil {
		return err
	}
	switch {
	case d.limit(r) == 0:
		return failed(op, fabric.ErrNotSupported)
	case d.faults.exhaust[r] > 0:
		d.faults.exhaust[r]--
		return failed(op, fabric.ErrResources)
	case d.count[r] >= d.limit(r):
		return fmt.Errorf("%s: %s: the device has %d: %w", deviceName, op, d.limit(r), fabric.ErrResources)
	}
	d.count[r]++
	return nil
}

// admit takes an object of kind r, whose parent is p where it has one.
func (d *Device) admit(op string, r Resource, parents ...*object) error {
	d.f.mu.Lock()
	defer d.f.mu.Unlock()
	for _, p := range parents {
		if p.closed {
			return failed(op, fabric.ErrClosed)
		}
	}
	if err := d.take(op, r); err != nil {
		return err
	}
	for _, p := range parents {
		p.refs++
	}
	return nil
}

// object is what every object with a life of its own embeds; guarded by Fabric.mu.
type object struct {
	closed bool
	refs   int
}

// retire starts the end of o: it refuses if o is closed or in use, and then refuses new users.
func (d *Device) retire(op string, o *object) error {
	d.f.mu.Lock()
	defer d.f.mu.Unlock()
	switch {
	case o.closed:
		return failed(op, fabric.ErrClosed)
	case o.refs > 0:
		return fmt.Errorf("%s: %s: %d objects use it: %w", deviceName, op, o.refs, fabric.ErrInUse)
	}
	o.closed = true
	return nil
}

// release ends the counting of an object of kind r.
func (d *Device) release(r Resource, parents ...*object) {
	d.f.mu.Lock()
	defer d.f.mu.Unlock()
	d.count[r]--
	for _, p := range parents {
		p.refs--
	}
}

// report queues an asynchronous event.
func (d *Device) report(ev fabric.AsyncEvent) {
	if d.async != nil {
		d.events.add(0, func() { d.async(ev) })
	}
}

// Close ends the device. Requests that nobody answered are rejected.
func (d *Device) Close() error {
	f := d.f
	f.mu.Lock()
	if d.closed {
		f.mu.Unlock()
		return failed("close", fabric.ErrClosed)
	}
	var left []string
	for r, n := range d.count {
		if n > 0 {
			left = append(left, fmt.Sprintf("%d %s(s)", n, resourceNames[r]))
		}
	}
	if len(left) > 0 {
		f.mu.Unlock()
		return fmt.Errorf("%s: close: still open: %s: %w", deviceName, strings.Join(left, ", "), fabric.ErrInUse)
	}
	d.closed = true
	f.opened = slices.DeleteFunc(f.opened, func(o *Device) bool { return o == d })
	for r := range d.requests {
		r.refuse()
	}
	f.mu.Unlock()
	d.engine.stop()
	d.events.stop()
	d.events.turnAway()
	return nil
}
