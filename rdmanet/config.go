package rdmanet

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"time"
)

// config has the settings of a connection from a Dialer or a ListenConfig, with the defaults filled
// in.
type config struct {
	readBuffer, writeBuffer int           // 0: the default of the device, which newConn fills in
	keepAlive               time.Duration // of the adapter; 0: none
	tcpAddrs                bool
	log                     *slog.Logger
	path                    Path
	zone                    *Zone                      // nil: each connection has a protection zone of its own
	accept                  func(netip.AddrPort) error // of a Listener; nil: every peer may connect
}

const (
	defaultBuffer    = 128 << 10
	tcpBuffer        = 512 << 10   // on the device "tcp", where each exchange costs system calls
	leastKeepAlive   = time.Second // the limits of udat.WithKeepAlive
	mostKeepAlive    = time.Hour
	defaultKeepAlive = 10 * time.Second
	defaultLinger    = 5 * time.Minute
	dialTime         = 30 * time.Second
)

// newConfig checks the settings and fills in the defaults, except those of the buffers. It rounds
// the buffer sizes up to powers of two.
func newConfig(readBuffer, writeBuffer int, keepAlive time.Duration, tcpAddrs bool, log *slog.Logger) (config, error) {
	c := config{keepAlive: keepAlive, tcpAddrs: tcpAddrs, log: log}
	for _, b := range []struct {
		name string
		in   int
		out  *int
	}{{"ReadBuffer", readBuffer, &c.readBuffer}, {"WriteBuffer", writeBuffer, &c.writeBuffer}} {
		if b.in < 0 || b.in > maxRing {
			return c, fmt.Errorf("rdmanet: %s is %d bytes, must be from 0 to %d", b.name, b.in, maxRing)
		}
		if b.in == 0 {
			continue
		}
		*b.out = minRing
		for *b.out < b.in {
			*b.out *= 2
		}
	}
	switch {
	case keepAlive == 0:
		c.keepAlive = defaultKeepAlive
	case keepAlive > 0:
		c.keepAlive = min(max(keepAlive, leastKeepAlive), mostKeepAlive)
	default:
		c.keepAlive = 0
	}
	switch {
	case log == nil:
		c.log = slog.Default()
	case log.Handler() == nil: // logging would panic
		return c, errors.New("rdmanet: Logger has no handler, make it with slog.New")
	}
	return c, nil
}

// addr converts an address to a *net.TCPAddr if the settings ask for this type. Otherwise it
// returns the address unchanged.
func (c *config) addr(a Addr) net.Addr {
	if c.tcpAddrs {
		return net.TCPAddrFromAddrPort(a.AddrPort)
	}
	return a
}

// logGrowth logs that a ring could not be replaced by a larger one, so that the connection stays
// slow.
func (c *config) logGrowth(buffer string, size int, remote net.Addr, err error) {
	go c.log.Warn("rdmanet: a connection keeps its first, small buffer", "buffer", buffer, "wanted", size,
		"remote", remote, "err", err)
}
