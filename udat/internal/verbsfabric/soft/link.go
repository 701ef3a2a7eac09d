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

// This file finds the connections of soft-RoCE that are lost because a link went down, or because
// an address or a route was removed. These connections must be broken, because the driver of Linux
// 6.1 may forget a request for which it finds no route. It then never resends the requests that
// were posted before that one. The driver of Linux 7.2 breaks such connections itself, if the link
// has gone down.

// Link is the network below a port of soft-RoCE.
type Link struct {
	Device string
	Port   uint8
	NetDev func(local netip.Addr) string // the interface of one of the port's addresses
}

// NoRoute reports whether messages about a connection have to wait, because the link is down or the
// host has no route from its address to the peer's. If such a message is sent nevertheless,
// soft-RoCE of Linux 6.1 can make no more connections, and the kernel may never destroy the id of
// this connection.
func (l *Link) NoRoute(local netip.Addr, remote netip.AddrPort) bool {
	// When the link goes down, the state of the interface changes first. When it comes up, the
	// state of the port changes last.
	if text, err := os.ReadFile("/sys/class/net/" + l.NetDev(local) + "/flags"); err == nil {
		const up = 1 // IFF_UP
		if flags, err := strconv.ParseUint(string(bytes.TrimSpace(text)), 0, 32); err == nil && flags&up == 0 {
			return true
		}
	}
	// The state is read from a file, because the verbs context may be closed already.
	state, err := os.ReadFile(fmt.Sprintf("/sys/class/infiniband/%s/ports/%d/state", l.Device, l.Port))
	if err == nil && !bytes.HasPrefix(state, []byte("4:")) {
		return true
	}
	from := net.UDPAddrFromAddrPort(netip.AddrPortFrom(local, 0))
	c, err := net.DialUDP("udp", from, net.UDPAddrFromAddrPort(remote))
	if err == nil {
		c.Close() // the socket has sent nothing
	}
	return errmap.Unreachable(err)
}

// Routes are the kernel's reports about the IPv6 routes of the host.
type Routes struct{ file *os.File }

// OpenRoutes opens the reports.
func OpenRoutes() (Routes, error) {
	f, err := openRoutes()
	return Routes{f}, err
}

// Close closes the reports. It is needed only if Watch is not called.
func (r Routes) Close() error { return r.file.Close() }

// Watch calls schedule whenever routes may have been removed, and passes to it a function that
// calls onRemoved. It does not call schedule again until that function runs. When stop is done,
// Watch closes r and returns.
func (r Routes) Watch(stop context.Context, schedule func(func()), onRemoved func()) {
	end := context.AfterFunc(stop, func() { r.file.Close() })
	defer r.file.Close()
	defer end()
	var posted atomic.Bool
	readRoutes(r.file, func() {
		if !posted.Swap(true) {
			schedule(func() {
				posted.Store(false)
				onRemoved()
			})
		}
	})
}
