package doctor

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/godat/godat/internal/perf/firewall"
)

// Ports that a firewall must let through.
const (
	rocePort    = 4791
	controlPort = 18516
)

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

// filters evaluates this host's packet filters for the packets that RDMA needs: RoCE packets in
// both directions, and incoming packets of the control connection. It assumes that the peer is
// another host of the subnet. Packets of hardware devices bypass the kernel's filters.
func (d *doctor) filters(device, netdev string) {
	if d.rules == nil {
		rules, err := d.kernel.rules()
		if err != nil {
			d.find(Note, "run doctor as root; doctor HOST tests it with messages",
				"the packet filters (nft, iptables) may not be read by this user: %v", err)
			rules = &firewall.Rules{}
		}
		d.rules = rules
	}
	subnets := prefixes(netdev)
	if len(subnets) == 0 {
		return
	}
	soft := d.rdma.devices[device].inSoftware()
	clean := true
	for _, subnet := range subnets {
		for _, c := range []struct {
			packet firewall.Packet
			needs  string
			level  Level
		}{
			{firewall.Packet{Proto: firewall.ProtoUDP, Port: rocePort}, "RoCE v2", Fail},
			{firewall.Packet{Proto: firewall.ProtoUDP, Port: rocePort, Out: true}, "RoCE v2", Fail},
			{firewall.Packet{Proto: firewall.ProtoTCP, Port: controlPort}, "a datperf server's control connection", Note},
		} {
			p := c.packet
			p.Netdev, p.Src, p.Dst = netdev, neighbour(subnet), subnet.Addr()
			if p.Out {
				p.Src, p.Dst = p.Dst, p.Src
			}
			v := d.rules.Ask(p)
			if !v.Dropped {
				continue
			}
			clean = false
			d.dropped(&p, &v, c.needs, c.level, soft, device)
		}
	}
	if clean && d.rules.Count() > 0 {
		d.find(OK, "", "the %d rules of the packet filters let RoCE v2 (UDP port %d) and TCP port %d through %s",
			d.rules.Count(), rocePort, controlPort, netdev)
	}
}

func (d *doctor) dropped(p *firewall.Packet, v *firewall.Verdict, needs string, level Level, soft bool, device string) {
	what := fmt.Sprintf("a packet filter drops %s, %v: %s", needs, p, v.Rule)
	if v.Packets > 0 {
		what += fmt.Sprintf("; it has dropped %d packets", v.Packets)
	}
	advice := "delete that rule or let the port pass before it: nft -a list ruleset; iptables -L -v --line-numbers"
	switch {
	case !v.Certain:
		level = Note
		what = strings.Replace(what, "drops", "may drop", 1)
	case p.Port == rocePort && !soft:
		level = Note
		what += fmt.Sprintf(". %s moves its packets itself, past the filter: only other programs and soft devices are "+
			"concerned",
			device)
	}
	d.find(level, advice, "%s", what)
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

// neighbour returns another address of the subnet.
func neighbour(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	b[len(b)-1] ^= 1
	a, _ := netip.AddrFromSlice(b)
	if host := b[len(b)-1]; a.Is4() && (host == 0 || host == 255) { // the network address or the broadcast address
		b[len(b)-1] ^= 3
		a, _ = netip.AddrFromSlice(b)
	}
	return a
}
