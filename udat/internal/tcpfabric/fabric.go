// Package tcpfabric implements RDMA over TCP, in pure Go: software devices (package softnic) that
// use iWARP (package iwarp) over ordinary TCP sockets. It needs no driver, no C and no privilege.
// It connects to other processes that use it, to soft-iWARP and to iWARP NICs.
//
// The device "tcp" uses all addresses of the host. The device "tcp:ADDRESS" uses only that address.
// No other name opens a device. A service point is a TCP listener. A connection is a TCP
// connection, which carries MPA's set-up (setup.go) and then frames. Two ends of this fabric
// recognize each other in the set-up. Two such ends can use all operations that the device's
// attributes promise. With another peer only the operations of iWARP work, and a post of any other
// operation returns an error.
//
// A queue pair's link (link.go, link_work.go) has a transmitting half (tx*.go) and a receiving half
// (rx*.go). The file link_work.go calls the files of both halves, and is not called by them. A post
// writes to the socket at once, as much as the socket has room for. The rest is written when the
// socket has room again. A caller that waits for a completion queue or polls it serves the sockets
// of the device (progress.go), else a goroutine of the device does (sock_linux.go). On other
// systems each socket has two goroutines.
//
// A link's turn (link.go) is not a lock: a goroutine that does not get the turn leaves its work to
// the goroutine that has it. The goroutine with the turn may lock Adapter.Mu, or QP.In, and then
// leaf locks. A goroutine that holds a lock must not ask for the turn.
package tcpfabric

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/softnic"
)

const (
	anyName = "tcp"
	prefix  = anyName + ":"
)

// Fabric has the devices that use the host's TCP.
type Fabric struct {
	mu       sync.Mutex
	adapters map[string]*softnic.Adapter // by the name of the device
}

// New returns a new fabric.
func New() *Fabric { return &Fabric{adapters: make(map[string]*softnic.Adapter)} }

// Name is "tcp".
func (f *Fabric) Name() string { return "tcp" }

// Devices lists the device of all addresses, and then a device for each address.
func (f *Fabric) Devices() ([]fabric.DeviceInfo, error) {
	list := []fabric.DeviceInfo{info(anyName, netip.Addr{})}
	for _, a := range hostAddrs() {
		list = append(list, info(prefix+a.String(), a))
	}
	return list, nil
}

func info(name string, at netip.Addr) fabric.DeviceInfo {
	detail := "RDMA over TCP (iWARP in software), all addresses of this host"
	if at.IsValid() {
		detail = "RDMA over TCP (iWARP in software), one address"
	} else {
		at = hostAddr()
	}
	return fabric.DeviceInfo{Name: name, Fabric: "tcp", Addr: at, Active: true, Detail: detail}
}

// hostAddrs lists the addresses of this host that need no zone.
func hostAddrs() (list []netip.Addr) {
	for _, p := range hostPrefixes() {
		if !p.Addr().IsLinkLocalUnicast() {
			list = append(list, p.Addr().Unmap())
		}
	}
	return list
}

// hostPrefixes lists the addresses of this host, each with the length of its network's prefix.
func hostPrefixes() (list []netip.Prefix) {
	addrs, _ := net.InterfaceAddrs()
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			list = append(list, p)
		}
	}
	return list
}

// manyHosts reports whether an address is not the address of one host: it is unspecified, a
// multicast or a broadcast address. Linux lets programs listen even on such addresses.
func manyHosts(at netip.Addr) bool {
	if at.IsUnspecified() || at.IsMulticast() || at == netip.AddrFrom4([4]byte{255, 255, 255, 255}) {
		return true
	}
	for _, p := range hostPrefixes() {
		if host := 32 - p.Bits(); at.Is4() && p.Contains(at) && host > 1 { // two addresses: no broadcast address
			b := at.As4()
			if last := uint32(1)<<host - 1; binary.BigEndian.Uint32(b[:])&last == last {
				return true
			}
		}
	}
	return false
}

// hostAddr returns the address of this host that other hosts are most likely able to reach.
func hostAddr() netip.Addr { return mostGlobal(hostAddrs()) }

// mostGlobal returns the first global address of the list, IPv4 before IPv6. If there is none, it
// returns 127.0.0.1.
func mostGlobal(list []netip.Addr) netip.Addr {
	best := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	for _, a := range list {
		switch {
		case !a.IsGlobalUnicast():
		case a.Is4():
			return a
		case best.Is4():
			best = a
		}
	}
	return best
}

// Open opens "tcp", or "tcp:ADDRESS" with an address of this host.
func (f *Fabric) Open(name string, opts fabric.Options, async func(fabric.AsyncEvent)) (fabric.Device, error) {
	var at netip.Addr
	if name != anyName {
		text, found := strings.CutPrefix(name, prefix)
		if !found {
			return nil, fmt.Errorf("TCP's devices are %q and %q, not %q: %w", anyName, prefix+"ADDRESS", name,
				fabric.ErrNoDevice)
		}
		var err error
		if at, err = netip.ParseAddr(text); err != nil {
			return nil, fmt.Errorf("%q: %w: %w", name, err, fabric.ErrNoDevice)
		}
		at = at.Unmap()
		if manyHosts(at) {
			return nil, fmt.Errorf("%q: not the address of one host: %w: %w", name, fabric.ErrAddrInvalid, fabric.ErrNoDevice)
		}
		probe, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(at, 0)))
		switch {
		case err == nil:
			probe.Close()
		case isOf(err, syscall.EADDRINUSE): // no port is free, but the address is the host's
		case errors.Is(short(err), fabric.ErrResources):
			return nil, fmt.Errorf("%q: %w", name, short(err))
		default:
			return nil, fmt.Errorf("%q: %w: %w", name, short(err), fabric.ErrNoDevice)
		}
	}
	if path := opts.Path; path != (fabric.PathOptions{TOS: path.TOS}) {
		return nil, fmt.Errorf("%w: TCP sets service level, path MTU, GID index and acknowledgement timeout itself",
			fabric.ErrNotSupported)
	}
	d := &Device{at: at, links: make(map[*link]struct{}), budget: budget{limit: defaultBudget}}
	if opts.BufferMemory > 0 {
		d.budget.limit = opts.BufferMemory
	}
	var err error
	if d.poller, err = newPoller(d.tick); err != nil {
		return nil, short(err)
	}
	f.mu.Lock()
	err = d.Device.Open(f.adapter(name, at), newLink, opts, async)
	f.mu.Unlock()
	if err != nil {
		d.poller.stop()
		return nil, err
	}
	return d, nil
}

// adapter returns the adapter of the device with this name. All openings of the device share it. If
// there is no opening, it makes a new adapter, because the host's address may have changed. f.mu is
// held until the new opening is listed.
func (f *Fabric) adapter(name string, at netip.Addr) *softnic.Adapter {
	if a := f.adapters[name]; a != nil && len(a.Openings()) > 0 {
		return a
	}
	a := new(softnic.Adapter)
	attr := softnic.Attr(info(name, at))
	attr.Transport, attr.MTU = "TCP (iWARP)", 1500
	attr.Reach = "the peer's TCP port in every firewall between the two addresses, their subnets and routes"
	attr.MaxConnData, attr.MaxAcceptData, attr.MaxRejectData = maxPrivate, maxPrivate, maxReject
	attr.WatchesPeers = watchesPeers
	a.Init(attr)
	f.adapters[name] = a
	return a
}

// Close closes the device. It rejects the requests that nobody has answered, and cuts the streams
// that the peer has not ended yet.
func (d *Device) Close() error {
	if err := d.Retire(); err != nil {
		return err
	}
	for n := 1; n > 0; {
		d.HW.Mu.Lock()
		links := make([]*link, 0, len(d.links))
		for l := range d.links {
			links = append(links, l)
		}
		d.HW.Mu.Unlock()
		if n = len(links); n > 0 {
			for _, l := range links {
				l.kill()
			}
			time.Sleep(time.Millisecond / 4) // another goroutine may be closing the socket
		}
	}
	d.poller.stop()
	d.Stop()
	return nil
}
