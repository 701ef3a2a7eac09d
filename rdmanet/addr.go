package rdmanet

import (
	"context"
	"fmt"
	"net"
	"net/netip"
)

// Network is the name of this package's network, the first argument of [Dial] and [Listen].
const Network = "rdma"

// Addr is the address of one end of a connection: that of its RDMA device, and a port of the RDMA
// connection manager. These ports are not those of TCP.
type Addr struct{ netip.AddrPort }

// Network is "rdma".
func (Addr) Network() string { return Network }

// resolve returns the addresses that "host:port" names; no host is the unspecified address.
func resolve(ctx context.Context, network, address string) ([]netip.AddrPort, error) {
	if network != Network {
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
		return []netip.AddrPort{netip.AddrPortFrom(netip.IPv4Unspecified(), uint16(port))}, nil
	}
	list, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, err
	}
	addrs := make([]netip.AddrPort, len(list))
	for i, a := range list {
		addrs[i] = netip.AddrPortFrom(a.Unmap(), uint16(port))
	}
	if len(addrs) == 0 {
		return nil, fmt.Errorf("%s has no address", host)
	}
	return addrs, nil
}
