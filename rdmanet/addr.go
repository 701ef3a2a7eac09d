package rdmanet

import (
	"context"
	"net"
	"net/http/httptrace"
	"net/netip"
)

// Network is the name of this package's network: the network argument of [Dial] and [Listen].
const Network = "rdma"

// Addr is the address of one end of a connection: the IP address of its RDMA device, and a port of
// the RDMA connection manager. These ports are independent of the TCP ports, except on the device
// "tcp", whose addresses are of the type *net.TCPAddr.
type Addr struct{ netip.AddrPort }

// Network returns "rdma".
func (Addr) Network() string { return Network }

// resolve returns the addresses for "host:port". Without a host it returns the unspecified address.
// The network may also be "tcp", and "tcp4" or "tcp6", which select an address family.
func resolve(ctx context.Context, network, address string) ([]netip.AddrPort, error) {
	family := ""
	switch network {
	case Network, "tcp":
	case "tcp4", "tcp6":
		family = network[3:]
	default:
		return nil, net.UnknownNetworkError(network + ` (package rdmanet has "rdma")`)
	}
	host, service, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	port, err := net.DefaultResolver.LookupPort(ctx, "tcp", service)
	if err != nil {
		return nil, err
	}
	if host == "" {
		unspecified := netip.IPv4Unspecified()
		if family == "6" {
			unspecified = netip.IPv6Unspecified()
		}
		return []netip.AddrPort{netip.AddrPortFrom(unspecified, uint16(port))}, nil
	}
	list, err := net.DefaultResolver.LookupIPAddr(lookupContext(ctx), host) // LookupNetIP drops the zones
	if err != nil {
		return nil, err
	}
	var addrs []netip.AddrPort
	for _, ip := range list {
		a, _ := netip.AddrFromSlice(ip.IP)
		if a = a.Unmap(); family == "" || a.Is4() == (family == "4") {
			addrs = append(addrs, netip.AddrPortFrom(a.WithZone(ip.Zone), uint16(port)))
		}
	}
	if len(addrs) == 0 {
		return nil, &net.DNSError{Err: "no address of the family IPv" + family, Name: host, IsNotFound: true}
	}
	return addrs, nil
}

// lookupContext returns ctx for looking up a name. If ctx has an httptrace.ClientTrace, only its
// hooks for DNS remain, because the others would be called for connections to the name server.
func lookupContext(ctx context.Context) context.Context {
	trace := httptrace.ContextClientTrace(ctx)
	if trace == nil {
		return ctx
	}
	dns := &httptrace.ClientTrace{DNSStart: func(httptrace.DNSStartInfo) {}, DNSDone: trace.DNSDone}
	if trace.DNSStart != nil {
		dns.DNSStart = trace.DNSStart
	}
	return httptrace.WithClientTrace(hidesTrace{ctx}, dns)
}

type hidesTrace struct{ context.Context }

func (c hidesTrace) Value(key any) any {
	v := c.Context.Value(key)
	if _, is := v.(*httptrace.ClientTrace); is {
		return nil
	}
	return v
}
