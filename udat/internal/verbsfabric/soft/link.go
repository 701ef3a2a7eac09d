package soft

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync/atomic"

	"github.com/godat/godat/udat/internal/verbsfabric/errmap"
)

// This file is what soft-RoCE needs when a link goes down, or an address or a route is removed. The
// driver of Linux 6.1 may then forget a request that finds no route, and sends those before it
// never again: so connections that are lost must break. That of Linux 7.2 breaks them itself when
// the link goes down.

// Link is the network below a port of soft-RoCE.
type Link struct {
	Device string
	Port   uint8
	NetDev func(local netip.Addr) string // the interface of one of the port's addresses
}

// NoRoute reports whether messages about a connection have to wait, because the link is down or the
// host has no route from its address to the peer's. Soft-RoCE of Linux 6.1 connects no more once it
// has tried to send one, and the kernel may never destroy the id.
func (l *Link) NoRoute(local netip.Addr, remote netip.AddrPort) bool {
	// When the link goes down, the interface is the first to know. When it comes up, the port is the
	// last.
	if text, err := os.ReadFile("/sys/class/net/" + l.NetDev(local) + "/flags"); err == nil {
		const up = 1 // IFF_UP
		if flags, err := strconv.ParseUint(string(bytes.TrimSpace(text)), 0, 32); err == nil && flags&up == 0 {
			return true
		}
	}
	// A file, because the verbs of a device that closes are closed already.
	state, err := os.ReadFile(fmt.Sprintf("/sys/class/infiniband/%s/ports/%d/state", l.Device, l.Port))
	if err == nil && !bytes.HasPrefix(state, []byte("4:")) {
		return true
	}
	from := net.UDPAddrFromAddrPort(netip.AddrPortFrom(local, 0))
	c, err := net.DialUDP("udp", from, net.UDPAddrFromAddrPort(remote))
	if err == nil {
		c.Close() // it has sent nothing
	}
	return errmap.Unreachable(err)
}

// Routes are the kernel's reports about the IPv6 routes of the host.
type Routes struct{ file *os.File }

// OpenRoutes opens them.
func OpenRoutes() (Routes, error) {
	f, err := openRoutes()
	return Routes{f}, err
}

// Close closes the reports, if Watch is not called.
func (r Routes) Close() error { return r.file.Close() }

// Watch has lost called, by post, whenever routes may have gone; several changes make one call. It
// returns when stop ends, and closes the reports.
func (r Routes) Watch(stop context.Context, post func(func()), lost func()) {
	end := context.AfterFunc(stop, func() { r.file.Close() })
	defer r.file.Close()
	defer end()
	var posted atomic.Bool
	readRoutes(r.file, func() {
		if !posted.Swap(true) {
			post(func() {
				posted.Store(false)
				lost()
			})
		}
	})
}
