package rdmanet_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/rdmanet"
)

// reaches dials address on a device and returns the address of the peer.
func reaches(t *testing.T, device, address string) netip.AddrPort {
	t.Helper()
	c, err := (&rdmanet.Dialer{Device: device, Timeout: patience}).Dial(t.Context(), "rdma", address)
	assert.NilError(t, err)
	defer c.Close()
	return addrOf(c.RemoteAddr())
}

// listenAt listens on an address of the device tcp until the test ends, and returns the address.
func listenAt(t *testing.T, device, address string) netip.AddrPort {
	t.Helper()
	l, err := (&rdmanet.ListenConfig{Device: device}).Listen(t.Context(), "rdma", address)
	assert.NilError(t, err)
	t.Cleanup(func() { l.Close() })
	return addrOf(l.Addr())
}

// TestNoHost: on tcp an address without a host, and the unspecified one, is this host's loopback
// address, as in package net.
func TestNoHost(t *testing.T) {
	at := listenAt(t, "tcp", "127.0.0.1:0")
	for _, host := range []string{"", "0.0.0.0"} {
		assert.Equal(t, reaches(t, "tcp", fmt.Sprintf("%s:%d", host, at.Port())), at)
	}
	if _, err := net.ResolveTCPAddr("tcp", "[::1]:0"); err == nil && hasAddr("::1") {
		at = listenAt(t, "tcp", "[::1]:0")
		assert.Equal(t, reaches(t, "tcp", fmt.Sprintf("[::]:%d", at.Port())), at)
	}
	if runtime.GOOS == "linux" { // where this is an address too
		at = listenAt(t, "tcp:127.0.0.2", ":0")
		assert.Equal(t, reaches(t, "tcp:127.0.0.2", fmt.Sprintf(":%d", at.Port())), at, "the device's own address")
	}
}

// hasAddr reports whether this host has the address.
func hasAddr(a string) bool {
	l, err := net.Listen("tcp", net.JoinHostPort(a, "0"))
	if err == nil {
		l.Close()
	}
	return err == nil
}

// TestOneAddress: a device of one address connects to the address that Dial is given, and listens
// on no other than its own.
func TestOneAddress(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("127.0.0.1 is the only loopback address here")
	}
	at := listenAt(t, "tcp:127.0.0.5", ":0")
	assert.Equal(t, reaches(t, "tcp:127.0.0.1", at.String()), at)
	lc := rdmanet.ListenConfig{Device: "tcp:127.0.0.1"}
	_, err := lc.Listen(t.Context(), "rdma", "127.0.0.2:0")
	assert.ErrorIs(t, err, syscall.EADDRNOTAVAIL)
	assert.ErrorContains(t, err, "tcp:127.0.0.1")
	listenAt(t, "tcp:127.0.0.1", "127.0.0.1:0")
}

// TestForeignAddress: to listen on an address of another host is EADDRNOTAVAIL, and no lack of RDMA
// devices.
func TestForeignAddress(t *testing.T) {
	_, err := (&rdmanet.ListenConfig{Device: "tcp"}).Listen(t.Context(), "rdma", "192.0.2.1:0")
	assert.ErrorIs(t, err, syscall.EADDRNOTAVAIL)
	assert.ErrorContains(t, err, "address cannot be used")
	assert.Assert(t, !strings.Contains(err.Error(), "rdma link add"), err)
}

// TestLinkLocal: an address with a zone is listened on and dialed.
func TestLinkLocal(t *testing.T) {
	at := netip.AddrPortFrom(linkLocal(t), 0)
	served := listenAt(t, "tcp", at.String())
	assert.Equal(t, served.Addr(), at.Addr())
	assert.Equal(t, reaches(t, "tcp", served.String()), served)
}

// linkLocal returns a link-local IPv6 address of this host, with its zone.
func linkLocal(t *testing.T) netip.Addr {
	list, err := net.Interfaces()
	assert.NilError(t, err)
	for _, i := range list {
		addrs, _ := i.Addrs()
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is6() && p.Addr().IsLinkLocalUnicast() {
				if own := p.Addr().WithZone(i.Name); hasAddr(own.String()) {
					return own
				}
			}
		}
	}
	t.Skip("this host has no link-local IPv6 address")
	panic("not reached")
}

// TestInvalidAddress: an address to which this host's TCP refuses to connect is an error at once,
// as in package net. Dial does not try again, and does not blame a firewall.
func TestInvalidAddress(t *testing.T) {
	const nowhere = "[fe80::1]:9" // without a zone
	if _, err := net.Dial("tcp", nowhere); !errors.Is(err, syscall.EINVAL) {
		t.Skipf("here this is %v", err)
	}
	_, err := (&rdmanet.Dialer{Device: "tcp"}).Dial(t.Context(), "rdma", nowhere)
	assert.ErrorIs(t, err, syscall.EINVAL)
	assert.Assert(t, !errors.Is(err, context.DeadlineExceeded), err)
	assert.Assert(t, !strings.Contains(err.Error(), "firewall"), err)
}

// TestListenErrors: an error of Listen has an address only if there was one.
func TestListenErrors(t *testing.T) {
	for _, lc := range []rdmanet.ListenConfig{{Device: "mem0", Backlog: -1}, {Device: "mem0", ReadBuffer: -1},
		{Device: "mem0"}} {
		for _, address := range []string{"no.such.host.invalid:0", "127.0.0.1:no-such-port", "127.0.0.1"} {
			_, err := lc.Listen(t.Context(), "rdma", address)
			var op *net.OpError
			assert.Assert(t, errors.As(err, &op) && op.Addr == nil, "%v", err)
			assert.Assert(t, !strings.Contains(err.Error(), "invalid AddrPort"), err)
		}
	}
}
