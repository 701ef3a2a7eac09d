// Package memfabric implements RDMA inside one process, in pure Go and on every platform: reliable
// connections that behave like those of real devices. The package is for machines without RDMA, and
// for tests, which inject faults by package nicfault.
//
// All devices that are opened on one Fabric share one network. Each device has an engine, a
// goroutine that executes the requests posted on the device. The engine copies payload directly
// from the registered memory of one end to that of the other, and makes the completions. The race
// detector does not see the copy, just as it does not see what a NIC does.
//
// The package waits only by channels, locks and package time, so that it works under
// testing/synctest, where an idle fabric is durably blocked.
//
// Package softnic implements the device and most of a connection. This package adds the transport:
// requests and payload in wire_*.go, the messages of connections in cm*.go. A goroutine that holds
// locks of softnic may acquire the lock of an engine's list. A goroutine that holds the lock of a
// list acquires no other lock.
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

// New returns a fabric with a network of its own.
func New() *Fabric {
	f := &Fabric{network: network{listeners: make(map[uint16]*listener), nextPort: firstFreePort}}
	f.Init(softnic.Attr(fabric.DeviceInfo{
		Name:   deviceName,
		Fabric: "mem",
		Addr:   addr4,
		Active: true,
		Detail: "embedded fabric inside this process",
	}))
	f.Attr.Transport, f.Attr.MTU = "mem", 4096
	return f
}

// Default returns the fabric that the whole process shares.
var Default = sync.OnceValue(New)

// Name returns "mem".
func (f *Fabric) Name() string { return "mem" }

// Devices lists mem0, which always exists.
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
	if opts.BufferMemory != 0 {
		return nil, fmt.Errorf("%w: %s has no buffers", fabric.ErrNotSupported, deviceName)
	}
	if opts.Checksums != nil || opts.TLS != nil {
		return nil, fmt.Errorf("%w: %s has no checksums and no TLS, because its bytes do not leave the process",
			fabric.ErrNotSupported, deviceName)
	}
	d := &Device{net: &f.network}
	d.ready.init()
	if err := d.Device.Open(&f.Adapter, d.newLink, opts, async); err != nil {
		return nil, err
	}
	go new(engine).run(&d.ready)
	return d, nil
}

// Close closes the device, and rejects the requests that nobody has answered.
func (d *Device) Close() error {
	if err := d.Retire(); err != nil {
		return err
	}
	d.ready.stop()
	d.Stop()
	return nil
}
