// Package verbsfabric implements package fabric with package cverbs, for the RDMA devices of this
// host.
//
// Queue pairs are created on an ordinary context, not by rdma_cm, so that receives can be posted
// before the queue pair is connected. The fabric itself moves them through INIT, RTR and RTS, with
// the attributes that rdma_init_qp_attr returns.
//
// Each open device has two goroutines, which park in Go's poller. The goroutine of package cm reads
// the connection manager's events and calls every handler. The other goroutine reads the
// asynchronous events and passes them to the goroutine of package cm. A soft-RoCE device has a
// third goroutine, which reads changes of routes. Package soft supplies what software devices lack.
package verbsfabric

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/godat/godat/cverbs"
	"github.com/godat/godat/internal/softroce"
	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/verbsfabric/errmap"
	"github.com/godat/godat/udat/internal/verbsfabric/soft"
)

// Fabric provides the verbs devices of this host.
type Fabric struct{}

var _ fabric.Fabric = (*Fabric)(nil)

// New returns the verbs fabric. On platforms without verbs it has no devices.
func New() *Fabric { return new(Fabric) }

// Name returns "verbs".
func (f *Fabric) Name() string { return "verbs" }

// Devices lists the ports of all devices. Port 1 has the device's own name. Any other port n has
// the name "NAME/n", where NAME is the device's own name.
func (f *Fabric) Devices() ([]fabric.DeviceInfo, error) {
	devs, err := cverbs.Devices()
	if err != nil {
		return nil, errmap.Wrap(err)
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
	return nil, errmap.Wrap(errors.Join(errs...))
}

// noDevices returns the reason why libibverbs lists no devices. libibverbs leaves out a device
// whose file is missing. The parameter folder lists all devices of the kernel.
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
// RNRRetry and Retry apply to what this end sends, whatever the peer proposes. A CMWait of 0 means
// 4 s.
func (f *Fabric) Open(name string, opts fabric.Options, async func(fabric.AsyncEvent)) (fabric.Device, error) {
	if opts.RNRRetry > 7 {
		return nil, errmap.Invalid("option RNRRetry is %d, more than 7", opts.RNRRetry)
	}
	if opts.Retry > softroce.MaxRetry && opts.Retry != fabric.DefaultRetry {
		return nil, errmap.Invalid("option Retry is %d, more than %d", opts.Retry, softroce.MaxRetry)
	}
	if opts.CMWait < 0 {
		return nil, errmap.Invalid("option CMWait is negative: %v", opts.CMWait)
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
	if opts.BufferMemory != 0 {
		return nil, fmt.Errorf("%w: the device has buffers of its own", fabric.ErrNotSupported)
	}
	if opts.Checksums != nil {
		return nil, fmt.Errorf("%w: a verbs device decides on checksums itself", fabric.ErrNotSupported)
	}
	if opts.TLS != nil {
		return nil, fmt.Errorf("%w: a verbs device sends past the processor, so it has no TLS: encrypt the network "+
			"below it (IPsec or MACsec in the NIC), or use the device tcp", fabric.ErrNotSupported)
	}
	if opts.Retry == fabric.DefaultRetry {
		opts.Retry = softroce.DefaultRetry(p.dev.VendorID)
	}
	d, err := open(p, opts, async)
	if err != nil {
		return nil, err
	}
	if p.siw {
		return soft.NewSIW(d)
	}
	return d, nil
}

// inspectDevice describes every port of a device. If it returns an error, the ports that it returns
// are valid too.
func inspectDevice(dev cverbs.DeviceInfo) (ports []port, err error) {
	ctx, err := cverbs.OpenDevice(dev.Name)
	if err != nil {
		return nil, fmt.Errorf("device %s: %w", dev.Name, err)
	}
	defer func() { err = errors.Join(err, ctx.Close()) }()
	attr, err := ctx.QueryDevice()
	if err != nil {
		return nil, fmt.Errorf("device %s: %w", dev.Name, err)
	}
	for num := 1; num <= max(attr.PhysPortCnt, 1) && num < 256; num++ {
		p := port{device: dev.Name, num: uint8(num), dev: attr, iwarp: dev.NodeType == cverbs.NodeRNIC}
		p.siw = p.iwarp && attr.VendorID == vendorSIW
		if p.attr, err = ctx.QueryPort(p.num); err != nil {
			return ports, fmt.Errorf("device %s port %d: %w", dev.Name, num, err)
		}
		p.describe(ctx)
		ports = append(ports, p)
	}
	return ports, nil
}

func (p *port) describe(ctx *cverbs.Context) {
	gid, why, err := ctx.BestGID(p.num)
	if err != nil {
		why = "no GID: " + err.Error()
	}
	p.gid, p.gidText = gid, why
	if all, err := ctx.GIDTable(); err == nil {
		p.table = slices.DeleteFunc(all, func(e cverbs.GIDEntry) bool { return e.Port != p.num })
	}
	p.addrs = p.findAddrs()
	p.info = fabric.DeviceInfo{
		Name:   p.device,
		Fabric: "verbs",
		Active: p.attr.State == cverbs.PortActive,
	}
	if p.num != 1 {
		p.info.Name = fmt.Sprintf("%s/%d", p.device, p.num)
	}
	addr := "no IP address"
	if len(p.addrs) > 0 {
		p.info.Addr, p.info.Addrs = p.addrs[0], p.addrs
		addr = "IP " + p.addrs[0].String()
	}
	p.info.Detail = strings.Join([]string{p.transport() + " over " + p.attr.LinkLayer.String(),
		"port " + p.attr.State.String(), addr, why}, ", ")
}

// find returns a port by its name or address.
func find(name string) (port, error) {
	devs, err := cverbs.Devices()
	switch err := errmap.Wrap(err); {
	case errors.Is(err, fabric.ErrResources): // the device may exist
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
			return port{}, errmap.Wrap(err)
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
