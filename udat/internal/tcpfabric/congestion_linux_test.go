//go:build !portablesocket

package tcpfabric

import (
	"net"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat/internal/fabric"
)

// TestNoPacing: a connection within the host has a congestion control that does not pace, whatever
// the host's own is.
func TestNoPacing(t *testing.T) {
	control := func(set string) (name string) {
		c := loopback(t)
		if set == "" {
			openDevice(t, fabric.Options{RNRRetry: 7, Retry: 7}, nil).(*Device).keep(c)
		}
		raw, err := c.SyscallConn()
		assert.NilError(t, err)
		assert.NilError(t, raw.Control(func(fd uintptr) {
			if set != "" {
				err = unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, set)
			}
			name, _ = unix.GetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION)
		}))
		if err != nil {
			t.Skipf("no process may choose it here: %v", err)
		}
		return name
	}
	assert.Equal(t, control(""), control("reno"))
}

// TestTOS: the packets of both ends have the type of service of the device, over IPv4 and IPv6; by
// default it is the host's.
func TestTOS(t *testing.T) {
	tos := func(c *net.TCPConn) (v4, v6 int) {
		raw, err := c.SyscallConn()
		assert.NilError(t, err)
		assert.NilError(t, raw.Control(func(fd uintptr) {
			v4, _ = unix.GetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_TOS)
			v6, _ = unix.GetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_TCLASS)
		}))
		return v4, v6
	}
	for _, set := range []*uint8{nil, new(uint8(0xB8))} {
		d := openDevice(t, fabric.Options{RNRRetry: 7, Retry: 7, Path: fabric.PathOptions{TOS: set}}, nil).(*Device)
		ln, err := d.listenTCP(0)
		assert.NilError(t, err)
		_, port, _ := net.SplitHostPort(ln.Addr().String())
		for _, host := range []string{"127.0.0.1", "::1"} {
			dialer := net.Dialer{Control: d.control}
			c, err := dialer.Dial("tcp", net.JoinHostPort(host, port))
			if err != nil && host == "::1" {
				continue // this host has no IPv6
			}
			assert.NilError(t, err)
			s, err := ln.AcceptTCP()
			assert.NilError(t, err)
			for _, end := range []*net.TCPConn{c.(*net.TCPConn), s} {
				v4, v6 := tos(end)
				if got := map[string]int{"127.0.0.1": v4, "::1": v6}[host]; set == nil {
					assert.Equal(t, got, 0, host)
				} else {
					assert.Equal(t, got, 0xB8, host)
				}
				end.Close()
			}
		}
		ln.Close()
	}
}
