package verbsfabric

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/godat/godat/cverbs"
	"github.com/godat/godat/udat/internal/fabric"
)

// This file is what soft-RoCE needs when a link goes down, or an address or a route is removed.

// breakConns breaks connections of soft-RoCE that have lost their link or address. The driver of
// Linux 7.2 does so itself when the link goes down. That of 6.1 may forget a request that finds no
// route, and then sends those before it never again.
func (d *device) breakConns(lost func(*conn) bool) {
	if d.dev.VendorID != vendorRXE {
		return
	}
	for _, c := range d.allConns() {
		c.breakIf(lost)
	}
}

// breakIf breaks an established connection that is lost. The owner disconnects.
func (c *conn) breakIf(lost func(*conn) bool) {
	c.mu.Lock()
	hit := c.state == stUp && lost(c)
	if hit {
		c.qp.SetError() // the event tells, whatever becomes of the call
	}
	c.mu.Unlock()
	if hit {
		err := fmt.Errorf("verbs: %s has lost its link, address or route", c.dev.info.Name)
		c.tell(fabric.ConnEvent{Kind: fabric.EventFailed, Err: err})
	}
}

// watchRoutes breaks connections over IPv6 that have lost their route. Those over IPv4 go on: each
// queue pair of soft-RoCE keeps the route that it has found.
func (d *device) watchRoutes(stop context.Context, routes *os.File) {
	end := context.AfterFunc(stop, func() { routes.Close() })
	defer routes.Close()
	defer end()
	var posted atomic.Bool
	readRoutes(routes, func() {
		if posted.Swap(true) {
			return
		}
		d.post(func() {
			posted.Store(false)
			d.breakConns(func(c *conn) bool { return c.remote.Addr().Is6() && d.noRoute(c.id) })
		})
	})
}

// noRoute reports whether messages about a connection have to wait, because the link is down or the
// host has no route from its address to the peer's. Soft-RoCE of Linux 6.1 connects no more once it
// has tried to send one, and the kernel may never destroy the id.
func (d *device) noRoute(id *cverbs.CMID) bool {
	if d.dev.VendorID != vendorRXE {
		return false
	}
	local, remote := id.LocalAddr(), id.RemoteAddr()
	if !local.IsValid() || remote.Port() == 0 {
		return false
	}
	// When the link goes down, the interface is the first to know. When it comes up, the port is the
	// last.
	dev := cmp.Or(d.netDev(local.Addr()), d.gid.NetDev)
	if text, err := os.ReadFile("/sys/class/net/" + dev + "/flags"); err == nil {
		const up = 1 // IFF_UP
		if flags, err := strconv.ParseUint(string(bytes.TrimSpace(text)), 0, 32); err == nil && flags&up == 0 {
			return true
		}
	}
	// A file, because the verbs of a device that closes are closed already.
	state, err := os.ReadFile(fmt.Sprintf("/sys/class/infiniband/%s/ports/%d/state", d.device, d.num))
	if err == nil && !bytes.HasPrefix(state, []byte("4:")) {
		return true
	}
	local = netip.AddrPortFrom(local.Addr(), 0)
	c, err := net.DialUDP("udp", net.UDPAddrFromAddrPort(local), net.UDPAddrFromAddrPort(remote))
	if err == nil {
		c.Close() // it has sent nothing
	}
	return unreachable(err)
}

// awaitRoute waits until there is one.
func (d *device) awaitRoute(id *cverbs.CMID) {
	for pause := 10 * time.Millisecond; d.noRoute(id); pause = min(2*pause, time.Second) {
		time.Sleep(pause)
	}
}
