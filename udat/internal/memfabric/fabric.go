// Package memfabric is RDMA inside one process: reliable connections with the semantics of the
// wire, in pure Go, on every platform. It is what a machine without RDMA runs, and the bench on
// which faults are made on demand.
//
// The devices that are opened on one Fabric share one network. Payload is copied straight from the
// registered memory of one end to that of the other by the engine goroutine of the device that it
// is posted on, so completions come from another goroutine than the poster's. The copy is invisible
// to the race detector, as a NIC's would be.
//
// It uses channels, locks and package time only, so that everything works under testing/synctest,
// where an idle fabric is durably blocked.
//
// Locks are taken in this order: Fabric.mu, qp.in, qp.mu, then those of queues, completion queues,
// keys and engines, which are leaves. No handler is called under any of them.
package memfabric

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sync"

	"github.com/godat/godat/udat/internal/fabric"
)

// deviceName is the only device of a Fabric; it may be opened any number of times.
const deviceName = "mem0"

var (
	addr4 = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	addr6 = netip.IPv6Loopback()
)

// Fabric is one network inside this process.
type Fabric struct {
	attr fabric.Attr
	keys keyTable

	atomics sync.Mutex // makes RDMA atomics atomic among all queue pairs

	mu        sync.Mutex // guards everything below, what the devices count, and the state of connections
	opened    []*Device
	listeners map[uint16]*listener
	nextPort  uint16
	qpns      map[uint32]struct{}
	nextQPN   uint32
}

// Option changes a new Fabric.
type Option func(*Fabric)

// WithAttr lets edit change the limits and abilities of the fabric's device; what is switched off
// is refused.
func WithAttr(edit func(*fabric.Attr)) Option {
	return func(f *Fabric) { edit(&f.attr) }
}

// New makes a network of its own.
func New(opts ...Option) *Fabric {
	f := &Fabric{
		attr:      defaultAttr(),
		listeners: make(map[uint16]*listener),
		nextPort:  firstFreePort,
		qpns:      make(map[uint32]struct{}),
		nextQPN:   firstQPN,
	}
	f.keys.init()
	for _, o := range opts {
		o(f)
	}
	return f
}

// Default is the process-wide network.
var Default = sync.OnceValue(func() *Fabric { return New() })

func defaultAttr() fabric.Attr {
	return fabric.Attr{
		Info: fabric.DeviceInfo{
			Name:   deviceName,
			Fabric: "mem",
			Addr:   addr4,
			Active: true,
			Detail: "embedded fabric inside this process",
		},
		VendorName:     "godat",
		HWVersion:      1,
		FWVersion:      "1.0.0",
		Transport:      "mem",
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
		MTU:            4096,
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
	}
}

// Name is "mem".
func (f *Fabric) Name() string { return "mem" }

// Devices lists mem0, which is always there.
func (f *Fabric) Devices() ([]fabric.DeviceInfo, error) {
	return []fabric.DeviceInfo{f.attr.Info}, nil
}

// Open opens mem0 by its name only, so that an IP address never opens this fabric by accident.
func (f *Fabric) Open(name string, opts fabric.Options, async func(fabric.AsyncEvent)) (fabric.Device, error) {
	if name != deviceName {
		return nil, fmt.Errorf("the embedded fabric has %s only, not %q: %w", deviceName, name, fabric.ErrNoDevice)
	}
	if opts.RNRRetry > 7 || opts.Retry > 7 {
		return nil, invalid("open", "retry counts %d and %d must be 0 to 7", opts.RNRRetry, opts.Retry)
	}
	if !opts.Path.IsZero() {
		return nil, fmt.Errorf("%w: %s has no packets, so no type of service, service level, path MTU, GID index or "+
			"acknowledgement timeout", fabric.ErrNotSupported, deviceName)
	}
	d := &Device{
		f:        f,
		opts:     opts,
		async:    async,
		qps:      make(map[*qp]struct{}),
		conns:    make(map[*conn]struct{}),
		requests: make(map[*request]struct{}),
	}
	d.faults.dev = d
	d.events.start()
	d.engine.start()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.opened = append(f.opened, d)
	return d, nil
}

// Opened lists the open devices, oldest first: how a test finds the device behind an interface
// adapter.
func (f *Fabric) Opened() []*Device {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.opened)
}

// invalid is an error about an argument of op.
func invalid(op, format string, args ...any) error {
	return fmt.Errorf("%s: %s: %s: %w", deviceName, op, fmt.Sprintf(format, args...), fabric.ErrInvalid)
}

// failed is one of package fabric's errors in the words of op.
func failed(op string, err error) error {
	return fmt.Errorf("%s: %s: %w", deviceName, op, err)
}
