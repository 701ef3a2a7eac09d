package doctor

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
)

// Unreached returns a finding about a server to which no control connection could be made. The
// argument err is the error of connecting to the host and port.
func Unreached(err error, host, port string) Finding {
	var name *net.DNSError
	var late net.Error
	advice := ""
	switch {
	case errors.As(err, &name):
		advice = "give the IP address; or mend the name service: getent hosts " + host
	case errors.Is(err, syscall.ECONNREFUSED) && isOwn(host):
		advice = host + " is an address of this host: give that of the server, or start datperf server here"
	case errors.Is(err, syscall.ECONNREFUSED):
		advice = "start a server there: datperf server"
	case errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.EINVAL),
		errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EADDRNOTAVAIL):
		advice = fmt.Sprintf("a route: ip route get %s; ip neigh show %s", host, host)
	case errors.As(err, &late) && late.Timeout():
		advice = fmt.Sprintf("if the host is up (ping %s), a packet filter drops TCP port %s, or the answers have no "+
			"way back: ip route get, and rp_filter, at both ends", host, port)
	}
	return Finding{Level: Fail, What: err.Error(), Advice: advice}
}

// isOwn reports whether host is an IP address of this host.
func isOwn(host string) bool {
	a, err := netip.ParseAddr(host)
	addrs, _ := net.InterfaceAddrs()
	for _, own := range addrs {
		if p, e := netip.ParsePrefix(own.String()); err == nil && e == nil && p.Addr() == a.WithZone("") {
			return true
		}
	}
	return false
}
