// Package verbsfabric is package fabric over package cverbs: the RDMA devices of this host.
//
// Queue pairs are created on an ordinary context and unknown to rdma_cm: the fabric moves them
// through INIT, RTR and RTS with the attributes of rdma_init_qp_attr. So a queue pair takes
// receives before any connection.
//
// Each open device has two goroutines, both parked in Go's poller: one reads the connection
// manager's events and calls every handler, the other reads the asynchronous events and hands them
// to the first.
package verbsfabric

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/godat/godat/cverbs"
	"github.com/godat/godat/udat/internal/fabric"
)

// Fabric is the verbs devices of this host.
type Fabric struct{}

var _ fabric.Fabric = (*Fabric)(nil)

// New returns the verbs fabric. On platforms without verbs it has no devices.
func New() *Fabric { return new(Fabric) }

// Name is "verbs".
func (f *Fabric) Name() string { return "verbs" }

// Devices lists the ports of all devices: port 1 under the device's own name, port n as "name/n".
func (f *Fabric) Devices() ([]fabric.DeviceInfo, error) {
	devs, err := cverbs.Devices()
	if err != nil {
		return nil, wrap(err)
	}
	if len(devs) == 0 {
		return nil, noDevices("/sys/class/infiniband")
	}
	var infos []fabric.DeviceInfo
	var errs []error
	for _, dev := range devs {
		ports, err := inspectDevice(dev)
		for _, p := range ports {
			infos = append(infos, p.info)
		}
		errs = append(errs, err)
	}
	if len(infos) > 0 {
		return infos, nil
	}
	return nil, wrap(errors.Join(errs...))
}

// noDevices is why libibverbs lists no devices. It leaves out those whose file is missing; folder
// has all that the kernel has.
func noDevices(folder string) error {
	if all, _ := os.ReadDir(folder); len(all) > 0 {
		return fmt.Errorf("/dev/infiniband/uverbs* of %s is missing: load the kernel module ib_uverbs, or pass the device "+
			"to the container (%w)", all[0].Name(), fs.ErrNotExist)
	}
	return fmt.Errorf("%w: this host has no RDMA device; without hardware: "+
		"rdma link add rxe0 type rxe netdev NAME; datperf doctor examines the host", fabric.ErrNoDevice)
}

// Open opens a port of a device by its name or by one of its IP addresses.
//
// RNRRetry and Retry apply to what this end sends, whatever the peer proposes. A CMWait of 0 is 4
// s.
func (f *Fabric) Open(name string, opts fabric.Options, async func(fabric.AsyncEvent)) (fabric.Device, error) {
	if opts.RNRRetry > 7 {
		return nil, invalid("option RNRRetry is %d, more than 7", opts.RNRRetry)
	}
	if opts.Retry > 7 {
		return nil, invalid("option Retry is %d, more than 7", opts.Retry)
	}
	if opts.CMWait < 0 {
		return nil, invalid("option CMWait is negative: %v", opts.CMWait)
	}
	if opts.CMWait == 0 {
		opts.CMWait = 4 * time.Second
	}
	p, err := find(name)
	if err != nil {
		return nil, err
	}
	if err := p.restrict(opts.Path); err != nil {
		return nil, err
	}
	d, err := open(p, opts, async)
	if err != nil {
		return nil, err
	}
	if p.siw {
		return newSIW(d)
	}
	return d, nil
}

// find returns a port by its name or address.
func find(name string) (port, error) {
	devs, err := cverbs.Devices()
	switch err := wrap(err); {
	case errors.Is(err, fabric.ErrResources): // the device may well be there
		return port{}, err
	case err != nil:
		return port{}, fmt.Errorf("%w: %s: %w", fabric.ErrNoDevice, name, err)
	}
	if addr, err := netip.ParseAddr(name); err == nil {
		return findAddr(devs, addr.Unmap())
	}
	base, num := name, uint64(1)
	if b, n, ok := strings.Cut(name, "/"); ok {
		if num, err = strconv.ParseUint(n, 10, 8); err != nil || num == 0 {
			return port{}, fmt.Errorf("%w: %s", fabric.ErrNoDevice, name)
		}
		base = b
	}
	for _, dev := range devs {
		if dev.Name != base {
			continue
		}
		ports, err := inspectDevice(dev)
		for _, p := range ports {
			if uint64(p.num) == num {
				return p, nil
			}
		}
		if err != nil {
			return port{}, wrap(err)
		}
	}
	return port{}, fmt.Errorf("%w: %s", fabric.ErrNoDevice, name)
}

func findAddr(devs []cverbs.DeviceInfo, addr netip.Addr) (port, error) {
	var errs []error
	for _, dev := range devs {
		ports, err := inspectDevice(dev)
		errs = append(errs, err)
		for _, p := range ports {
			if p.use(addr) {
				return p, nil
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return port{}, fmt.Errorf("%w: none with address %v, but some could not be asked: %w", fabric.ErrNoDevice, addr, err)
	}
	return port{}, fmt.Errorf("%w: none has the address %v", fabric.ErrNoDevice, addr)
}
