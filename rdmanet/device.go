package rdmanet

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"

	"github.com/godat/godat/udat"
)

// ErrNoDevice is in the chain of an error if this host has no RDMA device for the address.
var ErrNoDevice = errors.New("rdmanet: no RDMA device for this address")

// memDevice is the device inside this process.
const memDevice = "mem0"

// tcpDevice is the device for RDMA over TCP that has all addresses of the host. tcpPrefix followed
// by an address is the device that has only this address.
const (
	tcpDevice = "tcp"
	tcpPrefix = tcpDevice + ":"
)

const tcpAdvice = `the device "tcp", named at both ends, needs no hardware`

func isTCP(device string) bool { return device == tcpDevice || strings.HasPrefix(device, tcpPrefix) }

// devicesFor returns the devices to listen on for a local address, as names or addresses. The
// parameter device is the device that the program named, or empty. The parameter fallback is true
// if the program has set Fallback. A host without RDMA devices then uses TCP instead of mem0.
func devicesFor(device string, local netip.Addr, fallback bool) ([]string, error) {
	only, hasOnly := strings.CutPrefix(device, tcpPrefix)
	switch {
	case device == tcpDevice && !local.IsUnspecified():
		return []string{tcpPrefix + local.String()}, nil // the device tcpDevice would listen on all addresses
	case hasOnly && !local.IsUnspecified() && !isAddr(only, local):
		return nil, fmt.Errorf("rdmanet: the device %s has no other address than its own: %w", device,
			syscall.EADDRNOTAVAIL)
	case device != "":
		return []string{device}, nil
	}
	list, none := verbsDevices()
	switch {
	case none && !fallback && isOwn(local):
		return []string{memDevice}, nil
	case len(list) == 0:
		return nil, noDevice("no RDMA device of this host can be used")
	case local.IsUnspecified():
		names := make([]string, len(list))
		for i, p := range list {
			names[i] = p.Name
		}
		return names, nil
	case local.IsLoopback():
		return []string{list[0].Name}, nil
	case slices.ContainsFunc(list, has(local)):
		return []string{local.String()}, nil
	}
	return nil, noDevice("no RDMA device has the address %v", local)
}

// isAddr reports whether text is the address a.
func isAddr(text string, a netip.Addr) bool {
	b, err := netip.ParseAddr(text)
	return err == nil && b.Unmap() == a
}

// deviceTo returns the device that reaches the peer, as a name or address. If the program has named
// a device, deviceTo returns this name. The parameter fallback means the same as for devicesFor.
func deviceTo(device string, peer netip.Addr, fallback bool) (string, error) {
	if device != "" {
		return device, nil
	}
	list, none := verbsDevices()
	switch {
	case none && !fallback && isOwn(peer):
		return memDevice, nil
	case len(list) == 0:
		return "", noDevice("no RDMA device of this host can be used")
	case peer.IsLoopback() || peer.IsUnspecified():
		return list[0].Name, nil
	case slices.ContainsFunc(list, has(peer)):
		return peer.String(), nil
	}
	local, err := sourceTo(peer)
	if err != nil {
		return "", err
	}
	if !slices.ContainsFunc(list, has(local)) {
		return "", noDevice("the route to %v starts at %v, which is no address of an RDMA device", peer, local)
	}
	return local.String(), nil
}

// noDevice returns ErrNoDevice with a reason and advice.
func noDevice(format string, args ...any) error {
	text := fmt.Sprintf(format, args...)
	advice := "datperf doctor examines the host"
	if why := udat.WhyNoDevices(); why != nil {
		advice = strings.ReplaceAll(why.Error(), "\n", "; ")
	}
	return fmt.Errorf("%w: %s (%s; %s)", ErrNoDevice, text, advice, tcpAdvice)
}

// verbsDevices returns the verbs devices of this host that are active and have an address. The
// result absent reports whether the host has no verbs devices at all.
func verbsDevices() (usable []udat.ProviderInfo, absent bool) {
	return choose(udat.Providers(), udat.WhyNoDevices())
}

// choose does the work of verbsDevices on a given list of devices. The parameter why is the error
// that made the list empty or incomplete, or nil. If a device file is missing or forbidden, as in a
// container, the host has a device that this process cannot use, so absent is false.
func choose(all []udat.ProviderInfo, why error) (usable []udat.ProviderInfo, absent bool) {
	absent = !errors.Is(why, fs.ErrPermission) && !errors.Is(why, fs.ErrNotExist)
	for _, p := range all {
		if p.Fabric == "verbs" {
			absent = false
			if p.Active && p.Addr != "" {
				usable = append(usable, p)
			}
		}
	}
	return usable, absent
}

func has(a netip.Addr) func(udat.ProviderInfo) bool {
	return func(p udat.ProviderInfo) bool { return p.Addr == a.String() || slices.Contains(p.Addrs, a.String()) }
}

// target translates the peer's address into the address that the adapter's device must connect to.
// The unspecified address becomes the address of the device. On "tcp", which has all addresses of
// the host, it becomes the loopback address instead. A loopback address becomes the address of the
// device, except on TCP. On mem0 each address of this host becomes the address of the device.
func (a *adapter) target(to netip.Addr) netip.Addr {
	name := a.key.name
	switch {
	case name == tcpDevice && to.IsUnspecified() && to.Is4():
		return netip.AddrFrom4([4]byte{127, 0, 0, 1})
	case name == tcpDevice && to.IsUnspecified():
		return netip.IPv6Loopback()
	case to.IsUnspecified(), name == memDevice && isOwn(to),
		to.IsLoopback() && !isTCP(name):
		return a.Addr()
	}
	return to
}

// isOwn reports whether the address is an address of this host.
func isOwn(a netip.Addr) bool {
	if a.IsLoopback() || a.IsUnspecified() {
		return true
	}
	list, _ := net.InterfaceAddrs()
	return slices.ContainsFunc(list, func(own net.Addr) bool {
		p, err := netip.ParsePrefix(own.String())
		return err == nil && p.Addr().Unmap() == a
	})
}

// sourceTo returns the local address that the route to peer selects. It sends no packet.
func sourceTo(peer netip.Addr) (netip.Addr, error) {
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(peer, 9)))
	if err != nil {
		if errno := syscall.Errno(0); errors.As(err, &errno) {
			err = errno // without the text, which is about UDP
		}
		return netip.Addr{}, fmt.Errorf("%v has no route: %w", peer, err)
	}
	defer c.Close()
	return c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap(), nil
}
