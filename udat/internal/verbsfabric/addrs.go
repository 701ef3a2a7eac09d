package verbsfabric

import (
	"net"
	"net/netip"
	"slices"

	"github.com/godat/godat/cverbs"
)

// This file finds the IP addresses of a port, and chooses the one that a connection uses.

// netDev returns the name of the interface that has addr, an address of the port. It returns "" if
// the GID table does not name the interface.
func (p *port) netDev(addr netip.Addr) string {
	for _, e := range p.table {
		if e.Addr() == addr {
			return e.NetDev
		}
	}
	return ""
}

// findAddrs returns the port's IP addresses, best first. On RoCE they come from the GID table,
// which also contains the addresses of VLANs. On other links, or if the table contains no address,
// rdma_cm says which of the host's addresses belong to the port. Link-local addresses of the GID
// table are left out, because the host may not have them.
func (p *port) findAddrs() []netip.Addr {
	var addrs []netip.Addr
	if p.roce() {
		for _, e := range p.table {
			a := e.GID.Addr()
			here := e.NetDev != "" || p.gid.NetDev == "" // else the entry is of another network namespace
			if here && !e.GID.IsZero() && !a.IsLinkLocalUnicast() && !slices.Contains(addrs, a) {
				addrs = append(addrs, a)
			}
		}
	}
	if len(addrs) == 0 {
		addrs = p.probeAddrs()
	}
	// The address of the best GID comes first, then the addresses on the same interface. Addresses
	// of the same rank keep the order of the table, because the sort is stable.
	rank := func(a netip.Addr) (r int) {
		if a == p.gid.GID.Addr() {
			return 0
		}
		if dev := p.netDev(a); dev != "" && dev != p.gid.NetDev {
			r = 3
		}
		switch {
		case a.Is4():
			return r + 1
		case !a.IsLinkLocalUnicast():
			return r + 2
		}
		return r + 3
	}
	slices.SortStableFunc(addrs, func(a, b netip.Addr) int { return rank(a) - rank(b) })
	return addrs
}

// probeAddrs finds the port's addresses by binding a connection manager id to each address of the
// host.
func (p *port) probeAddrs() (addrs []netip.Addr) {
	ifs, err := net.Interfaces()
	if err != nil {
		return nil
	}
	ch, err := cverbs.CreateEventChannel()
	if err != nil {
		return nil
	}
	defer ch.Close()
	for _, i := range ifs {
		list, err := i.Addrs()
		if err != nil || i.Flags&net.FlagUp == 0 || i.Flags&net.FlagLoopback != 0 {
			continue
		}
		for _, a := range list {
			prefix, err := netip.ParsePrefix(a.String())
			if err != nil {
				continue
			}
			addr := prefix.Addr().Unmap()
			if addr.IsLinkLocalUnicast() && addr.Is6() {
				addr = addr.WithZone(i.Name)
			}
			if p.owns(ch, addr) {
				addrs = append(addrs, addr)
			}
		}
	}
	return addrs
}

func (p *port) owns(ch *cverbs.EventChannel, addr netip.Addr) bool {
	id, err := ch.CreateID(cverbs.PortSpaceTCP)
	if err != nil {
		return false
	}
	defer id.Close()
	return id.BindAddr(netip.AddrPortFrom(addr, 0)) == nil && id.Device() == p.device && id.Port() == p.num
}

// sourceFor returns the local address for a destination. This address is of the destination's IP
// family. If the port has addresses of this family on several interfaces, the host's routes choose
// the interface.
func (p *port) sourceFor(dst netip.Addr) (netip.Addr, bool) {
	fits := func(a netip.Addr) bool { return a.Is4() == dst.Is4() && (a.Zone() != "") == dst.IsLinkLocalUnicast() }
	if i := slices.IndexFunc(p.addrs, fits); i >= 0 {
		best := p.addrs[i]
		elsewhere := func(a netip.Addr) bool { return fits(a) && p.netDev(a) != p.netDev(best) }
		if slices.ContainsFunc(p.addrs, elsewhere) {
			if a := routeSource(dst); slices.Contains(p.addrs, a) && elsewhere(a) {
				return a, true
			}
		}
		return best, true
	}
	i := slices.IndexFunc(p.addrs, func(a netip.Addr) bool { return a.Is4() == dst.Is4() })
	if i < 0 {
		return netip.Addr{}, false
	}
	return p.addrs[i], true
}

// routeSource returns the local address that the host's routes choose for a destination.
func routeSource(dst netip.Addr) netip.Addr {
	const discard = 9 // any port would do, because nothing is sent
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(dst, discard)))
	if err != nil {
		return netip.Addr{}
	}
	defer c.Close()
	return c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap()
}

// A call of use restricts the port to addr and one address of the other IP family on the same
// interface, if there is one. It returns false if the port does not have addr. A link-local addr
// need not have a zone.
func (p *port) use(addr netip.Addr) bool {
	all := slices.Clone(p.addrs)
	for _, e := range p.table {
		if a := e.Addr(); p.roce() && a.Zone() != "" {
			all = append(all, a)
		}
	}
	i := slices.IndexFunc(all, func(a netip.Addr) bool { return a == addr || a.WithZone("") == addr })
	if i < 0 {
		return false
	}
	addr = all[i]
	p.info.Addr, p.addrs = addr, []netip.Addr{addr}
	other := func(a netip.Addr) bool {
		return a.Is4() != addr.Is4() && !a.IsLinkLocalUnicast() && p.netDev(a) == p.netDev(addr)
	}
	if i := slices.IndexFunc(p.info.Addrs, other); i >= 0 {
		p.addrs = append(p.addrs, p.info.Addrs[i])
	}
	return true
}
