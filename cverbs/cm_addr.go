//go:build linux && cgo

package cverbs

// #include "shim.h"
import "C"

import (
	"math"
	"net"
	"net/netip"
	"strconv"
	"syscall"
	"time"
)

func millis(verb string, d time.Duration) (C.int, error) {
	ms := (d + time.Millisecond - 1) / time.Millisecond
	if ms < 1 || ms > math.MaxInt32 {
		return 0, badArg(verb, "timeout %v is not in 1ms..%v", d, math.MaxInt32*time.Millisecond)
	}
	return C.int(ms), nil
}

func cAddr(verb, arg string, ap netip.AddrPort) (a C.struct_cv_addr, err error) {
	ip := ap.Addr().Unmap()
	if !ip.IsValid() {
		return a, badArg(verb, "%s is not a valid address", arg)
	}
	a.port = C.uint16_t(ap.Port())
	if ip.Is4() {
		a.family = 4
		for i, b := range ip.As4() {
			a.ip[i] = C.uint8_t(b)
		}
		return a, nil
	}
	a.family = 6
	for i, b := range ip.As16() {
		a.ip[i] = C.uint8_t(b)
	}
	if z := ip.Zone(); z != "" {
		n, err := strconv.ParseUint(z, 10, 32)
		if err != nil {
			dev, err := net.InterfaceByName(z)
			if err != nil {
				return a, badArg(verb, "%s %v: no network interface %q", arg, ap, z)
			}
			n = uint64(dev.Index)
		}
		a.scope = C.uint32_t(n)
	}
	return a, nil
}

func goAddr(a *C.struct_cv_addr) netip.AddrPort {
	var b [16]byte
	for i := range b {
		b[i] = byte(a.ip[i])
	}
	switch a.family {
	case 4:
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[:4])), uint16(a.port))
	case 6:
		ip := netip.AddrFrom16(b)
		if a.scope != 0 {
			zone := strconv.FormatUint(uint64(a.scope), 10)
			if dev, err := net.InterfaceByIndex(int(a.scope)); err == nil {
				zone = dev.Name
			}
			ip = ip.WithZone(zone)
		}
		return netip.AddrPortFrom(ip, uint16(a.port))
	}
	return netip.AddrPort{}
}

// addrError adds advice to the error of a verb: the address, and what the errno means for this
// address.
func addrError(err error, addr netip.AddrPort) error {
	e, ok := err.(*Error)
	if !ok || e.Advice != "" {
		return err
	}
	e.Advice = addr.String()
	switch e.Errno {
	case syscall.ENODEV, syscall.EADDRNOTAVAIL:
		e.Advice += " belongs to no RDMA device of this host"
	case syscall.EINVAL:
		if addr.Addr().IsLinkLocalUnicast() && addr.Addr().Is6() && addr.Addr().Zone() == "" {
			e.Advice += ": a link-local address needs a zone, the network interface, as in fe80::1%eth0"
		}
	case syscall.EACCES:
		e.Advice += ": ports below 1024 need CAP_NET_BIND_SERVICE"
	case syscall.EADDRINUSE:
		e.Advice += " is taken"
	case syscall.ENETUNREACH, syscall.EHOSTUNREACH:
		e.Advice += " has no route"
	case syscall.EMFILE, syscall.ENFILE:
		e.Advice += ": " + filesAdvice(e.Errno)
	}
	return e
}
