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
// The device is that of package softnic, and most of a connection. The wire is in wire_*.go, the
// messages of connections in cm*.go. Locks: engines' lists are leaves below those of softnic.
package memfabric

import (
	"fmt"
	"sync"

	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/softnic"
)

// Fabric is one network inside this process.
type Fabric struct {
	softnic.Adapter
	network
}

// Option changes a new Fabric.
type Option func(*Fabric)

// WithAttr lets edit change the limits and abilities of the fabric's device; what is switched off
// is refused.
func WithAttr(edit func(*fabric.Attr)) Option {
	return func(f *Fabric) { edit(&f.Attr) }
}

// New makes a network of its own.
func New(opts ...Option) *Fabric {
	f := &Fabric{network: network{listeners: make(map[uint16]*listener), nextPort: firstFreePort}}
	f.Init(softnic.Attr(fabric.DeviceInfo{
		Name:   deviceName,
		Fabric: "mem",
		Addr:   addr4,
		Active: true,
		Detail: "embedded fabric inside this process",
	}), false)
	f.Attr.Transport, f.Attr.MTU = "mem", 4096
	for _, o := range opts {
		o(f)
	}
	return f
}

// Default is the process-wide network.
var Default = sync.OnceValue(func() *Fabric { return New() })

// Name is "mem".
func (f *Fabric) Name() string { return "mem" }

// Devices lists mem0, which is always there.
func (f *Fabric) Devices() ([]fabric.DeviceInfo, error) {
	return []fabric.DeviceInfo{f.Attr.Info}, nil
}

// Open opens mem0 by its name only, so that an IP address never opens this fabric by accident.
func (f *Fabric) Open(name string, opts fabric.Options, async func(fabric.AsyncEvent)) (fabric.Device, error) {
	if name != deviceName {
		return nil, fmt.Errorf("the embedded fabric has %s only, not %q: %w", deviceName, name, fabric.ErrNoDevice)
	}
	if !opts.Path.IsZero() {
		return nil, fmt.Errorf("%w: %s has no packets, so no type of service, service level, path MTU, GID index or "+
			"acknowledgement timeout", fabric.ErrNotSupported, deviceName)
	}
	if opts.Checksums != nil {
		return nil, fmt.Errorf("%w: %s has no checksums", fabric.ErrNotSupported, deviceName)
	}
	d := &Device{net: &f.network}
	d.faults.Faults, d.faults.dev = &d.Device.Faults, d
	d.ready.init()
	if err := d.Device.Open(&f.Adapter, d.newLink, d, opts, async); err != nil {
		return nil, err
	}
	go new(engine).run(&d.ready)
	return d, nil
}

// Opened lists the open devices, oldest first: how a test finds the device behind an interface
// adapter.
func (f *Fabric) Opened() []*Device {
	var list []*Device
	for _, o := range f.Openings() {
		list = append(list, o.(*Device))
	}
	return list
}

// Close ends the device. Requests that nobody answered are rejected.
func (d *Device) Close() error {
	if err := d.Retire(); err != nil {
		return err
	}
	d.ready.stop()
	d.Stop()
	return nil
}
