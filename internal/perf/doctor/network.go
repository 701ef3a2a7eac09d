package doctor

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
)

// rocePort is the UDP port of RoCE v2.
const rocePort = 4791

// listRules lists the rules of a host's packet filters.
const listRules = "nft -a list ruleset, and iptables -L -v --line-numbers,"

// prefixes returns the addresses of a network device, each with its subnet. It omits link-local
// addresses and subnets without room for another host.
func prefixes(netdev string) (all []netip.Prefix) {
	i, err := net.InterfaceByName(netdev)
	if err != nil {
		return nil
	}
	addrs, _ := i.Addrs()
	for _, a := range addrs {
		p, err := netip.ParsePrefix(a.String())
		if err == nil && p.Bits() < p.Addr().BitLen()-1 && !p.Addr().IsLinkLocalUnicast() {
			all = append(all, p)
		}
	}
	return all
}

// subnets adds a finding if another network device of this host is in the same subnet as netdev.
// Linux then answers ARP requests for the address of either device on both devices, and sends
// through the device that comes first in the routing table. So packets arrive at the wrong device,
// which drops them if they are RoCE packets.
func (d *doctor) subnets(name, netdev string) {
	others, _ := net.Interfaces()
	for _, other := range others {
		if other.Name == netdev || other.Flags&net.FlagUp == 0 || other.Flags&net.FlagLoopback != 0 ||
			d.exists("sys/class/net/"+netdev+"/upper_"+other.Name) || d.exists("sys/class/net/"+netdev+"/lower_"+other.Name) {
			continue
		}
		for _, p := range prefixes(netdev) {
			shared := slices.IndexFunc(prefixes(other.Name), func(o netip.Prefix) bool { return o.Overlaps(p) })
			if shared < 0 || p.Addr().Is4() && d.arpApart(netdev) && d.arpApart(other.Name) {
				continue
			}
			d.find(Fail, fmt.Sprintf("give %s a subnet of its own; or, for IPv4, sysctl net.ipv4.conf.all.arp_ignore=1 and "+
				"arp_announce=2, with a routing table for each address", netdev),
				"%s: %s and %s are in one subnet, %v: the host answers for the address of each on both, and what is meant for "+
					"one arrives at the other", name, netdev, other.Name, p.Masked())
			return
		}
	}
}

// arpApart reports whether a network device answers ARP requests only for its own addresses, and
// uses only its own addresses in the ARP requests that it sends. There is a setting for "all" and
// one for the device, and the kernel uses the larger of the two.
func (d *doctor) arpApart(netdev string) bool {
	of := func(name string) int {
		most := 0
		for _, scope := range []string{"all", netdev} {
			n, _ := strconv.Atoi(d.line("proc/sys/net/ipv4/conf/" + scope + "/" + name))
			most = max(most, n)
		}
		return most
	}
	return of("arp_ignore") >= 1 && of("arp_announce") >= 2
}

// loopback reports a loopback device that is down.
func (d *doctor) loopback(netdevs []net.Interface) {
	for _, n := range netdevs {
		if n.Flags&net.FlagLoopback != 0 && n.Flags&net.FlagUp == 0 {
			d.find(Note, fmt.Sprintf("ip link set %s up", n.Name),
				"%s is down: programs on this host cannot reach one another by TCP, nor can the device %s reach itself", n.Name,
				Software)
		}
	}
}
