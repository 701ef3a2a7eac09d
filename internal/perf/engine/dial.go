package engine

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// dialTime is how long connecting to a server may take.
const dialTime = 10 * time.Second

// Dial connects to a server's control port. The address is a host name or IP address. If the
// address also contains a port, that port replaces the argument port. The parameter secret is the
// result of [Secure], or nil.
func Dial(ctx context.Context, address string, port int, secret *tls.Config) (net.Conn, error) {
	conn, err := dial(ctx, "datperf server", " (start one there with: datperf server)", address, port)
	if err != nil {
		return nil, err
	}
	return secureClient(ctx, conn, secret)
}

// DialPerftest connects to one of perftest's programs.
func DialPerftest(ctx context.Context, address string, port int) (net.Conn, error) {
	return dial(ctx, "program of perftest", " (start one there, for example: ib_send_lat)", address, port)
}

// SplitAddress returns the host and the port of a server's address. If the address has no port, it
// returns the argument port.
func SplitAddress(address string, port int) (string, int, error) {
	host := address
	if h, p, err := net.SplitHostPort(address); err == nil {
		n, err := strconv.ParseUint(p, 10, 16)
		if err != nil || n == 0 {
			return "", 0, fmt.Errorf("address %q: the port must be from 1 to 65535", address)
		}
		host, port = h, int(n)
	}
	host = strings.Trim(host, "[]")
	if host == "" {
		return "", 0, fmt.Errorf("address %q: there is no host in it", address)
	}
	return host, port, nil
}

func dial(ctx context.Context, what, advice, address string, port int) (net.Conn, error) {
	host, port, err := SplitAddress(address, port)
	if err != nil {
		return nil, err
	}
	d := net.Dialer{Timeout: dialTime}
	conn, err := d.DialContext(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	if err != nil {
		return nil, fmt.Errorf("no %s to be reached at %s, port %d: %w%s", what, host, port, shortDial(err),
			dialAdvice(err, host, advice))
	}
	return conn, nil
}

// dialAdvice returns advice for the user about a failed dial, or "". The argument start is the
// advice for a host on which nothing listens.
func dialAdvice(err error, host, start string) string {
	var failed net.Error
	switch a, _ := netip.ParseAddr(host); {
	case errors.Is(err, syscall.ECONNREFUSED):
		return start
	case errors.As(err, &failed) && failed.Timeout():
		return " (a packet filter on the way drops the packets, or the host is down)"
	case a.IsLinkLocalUnicast() && a.Is6() && a.Zone() == "":
		return " (write the zone of the link-local address: " + host + "%eth0)"
	case a.Zone() != "":
		if _, missing := net.InterfaceByName(a.Zone()); missing != nil {
			return " (this host has no network interface " + a.Zone() + ")"
		}
	}
	return ""
}

// shortDial returns the cause of a dial error without the network and the address, which the
// caller's text already contains.
func shortDial(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		var sys *os.SyscallError
		if errors.As(op.Err, &sys) {
			return sys.Err
		}
		return op.Err
	}
	return err
}
