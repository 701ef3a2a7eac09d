package softnic

import (
	"fmt"
	"os"
	"slices"
	"sync"

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

const (
	FirstQPN = 0x11
	MaxQPN   = 1<<24 - 1
)

// Adapter is the state that all openings of one device share.
type Adapter struct {
	Attr fabric.Attr
	keys keyTable

	Atomics sync.Mutex // makes RDMA atomics atomic among all queue pairs

	Mu      sync.Mutex          // guards the fields below, those of Device that say so, and the state of connections
	opened  []*Device           // oldest first
	QPNs    map[uint32]struct{} // the numbers in use
	NextQPN uint32
}

// Device is one opening of an adapter, with its objects and connections. The transport sends and
// receives the messages that make and end a connection.
type Device struct {
	HW     *Adapter
	Opts   fabric.Options
	async  func(fabric.AsyncEvent)
	Hook   *Hook // nil in a program
	Events Dispatcher
	link   func(*QP) Link

	// Guarded by Adapter.Mu.
	closed    bool
	count     [numResources]int
	qps       map[*QP]struct{}
	Conns     map[*Conn]struct{}
	Listeners map[*Listener]struct{}
	Requests  map[*Request]struct{} // delivered and not answered
}

// Init initializes the adapter with the attributes attr.
func (a *Adapter) Init(attr fabric.Attr) {
	a.Attr, a.QPNs, a.NextQPN = attr, make(map[uint32]struct{}), FirstQPN
	a.keys.byKey = make(map[uint32]*span)
}

// Openings lists the current openings, oldest first.
func (a *Adapter) Openings() []*Device {
	a.Mu.Lock()
	defer a.Mu.Unlock()
	return slices.Clone(a.opened)
}

// Closed reports whether the device is closed; Adapter.Mu is held.
func (d *Device) Closed() bool { return d.closed }

// Attr returns the limits and abilities of the device.
func (d *Device) Attr() fabric.Attr { return d.HW.Attr }

func (d *Device) limit(r Resource) int {
	a := &d.HW.Attr
	return [numResources]int{a.MaxPD, a.MaxMR, a.MaxMW, a.MaxCQ, a.MaxSRQ, a.MaxQP, 1 << 16, a.MaxQP}[r]
}

// Usable returns an error if the device is closed. Adapter.Mu is held.
func (d *Device) Usable(op string) error {
	if d.closed {
		return Failed(op, fabric.ErrClosed)
	}
	return nil
}

// take counts one more object of kind r. It returns an error if no such object can be created.
// Adapter.Mu is held.
func (d *Device) take(op string, r Resource) error {
	if err := d.Usable(op); err != nil {
		return err
	}
	if h := d.Hook; h != nil {
		if err := h.Create(r); err != nil {
			return Failed(op, err)
		}
	}
	switch {
	case d.limit(r) == 0:
		return Failed(op, fabric.ErrNotSupported)
	case d.count[r] >= d.limit(r):
		return fmt.Errorf("%s: the device has %d: %w", op, d.limit(r), fabric.ErrResources)
	}
	d.count[r]++
	return nil
}

// drop undoes take; Adapter.Mu is held.
func (d *Device) drop(r Resource) { d.count[r]-- }

// admit counts a new object of kind r, and a user of each of its parents. The parents cannot be
// closed before the object is released.
func (d *Device) admit(op string, r Resource, parents ...*object) error {
	d.HW.Mu.Lock()
	defer d.HW.Mu.Unlock()
	for _, p := range parents {
		if p.closed {
			return Failed(op, fabric.ErrClosed)
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

// object is embedded in every object that can be closed. Adapter.Mu guards it.
type object struct {
	closed bool
	refs   int
}

// retire marks o as closed, so that it gets no new users. It returns an error if o is closed
// already or in use.
func (d *Device) retire(op string, o *object) error {
	d.HW.Mu.Lock()
	defer d.HW.Mu.Unlock()
	switch {
	case o.closed:
		return Failed(op, fabric.ErrClosed)
	case o.refs > 0:
		return fmt.Errorf("%s: %d objects use it: %w", op, o.refs, fabric.ErrInUse)
	}
	o.closed = true
	return nil
}

// release undoes admit.
func (d *Device) release(r Resource, parents ...*object) {
	d.HW.Mu.Lock()
	defer d.HW.Mu.Unlock()
	d.count[r]--
	for _, p := range parents {
		p.refs--
	}
}

// Report queues an asynchronous event for the handler.
func (d *Device) Report(ev fabric.AsyncEvent) {
	if d.async != nil {
		d.Events.Add(func() { d.async(ev) })
	}
}

// NIC returns d, for packages that have only a device of a transport.
func (d *Device) NIC() *Device { return d }

// mayPost returns an error if the hook refuses a post.
func (d *Device) mayPost(op string) error {
	if d.Hook != nil {
		if err := d.Hook.Post(); err != nil {
			return Failed(op, err)
		}
	}
	return nil
}

// Started is called for each request that the transport starts. If the hook makes the request fail,
// it returns the status of its completion, else StatusSuccess.
func (d *Device) Started() fabric.Status {
	if d.Hook == nil {
		return fabric.StatusSuccess
	}
	return d.Hook.Start()
}

// Attr returns the limits and abilities of a software device. The transport then changes the limits
// and abilities that depend on the transport.
func Attr(info fabric.DeviceInfo) fabric.Attr {
	return fabric.Attr{
		Info:           info,
		VendorName:     "godat",
		HWVersion:      1,
		FWVersion:      "1.0.0",
		MaxQP:          1 << 16,
		MaxQPWR:        1 << 15,
		MaxSGE:         32,
		MaxReadSGE:     32,
		MaxCQ:          1 << 16,
		MaxCQE:         1 << 20,
		MaxMR:          1 << 20,
		MaxMRSize:      1 << 40,
		MaxPD:          1 << 15,
		MaxMW:          1 << 20,
		MaxSRQ:         1 << 15,
		MaxSRQWR:       1 << 15,
		MaxSRQSGE:      32,
		MaxReadIn:      16,
		MaxReadOut:     16,
		MaxReadTotal:   16 << 16,
		MaxMessage:     1 << 31,
		MaxInline:      256,
		MaxConnData:    256,
		MaxAcceptData:  256,
		MaxRejectData:  256,
		PageSize:       os.Getpagesize(),
		MWType2:        true,
		SRQResize:      true,
		Atomics:        true,
		SendInvalidate: true,
		WriteImmediate: true,
		SRQExactCounts: true,
		SRQOtherPD:     true,
		PeerToPeer:     true,
		ExactBounds:    true,
		TellsTarget:    true,
		EnforcesRNR:    true,
		Acknowledged:   true,
		SolicitedArm:   true,
		FailuresNotify: true,
	}
}
