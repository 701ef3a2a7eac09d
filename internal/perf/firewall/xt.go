package firewall

import (
	"bytes"
	"encoding/binary"
	"slices"
)

// ctNew is the bit of the state "new" in the masks of nf_tables and xtables. RoCE packets are
// always new: the two directions of a connection use the same destination port and different source
// ports, so connection tracking sees two flows without answers.
const ctNew = 1 << 3

// xtMatch evaluates a match extension of xtables, for iptables-legacy and iptables-nft. For an
// unknown extension it returns the value maybe.
func xtMatch(name string, revision int, info []byte, p *Packet) tri {
	order := binary.NativeEndian
	switch {
	case name == "comment":
		return yes
	case (name == "udp" || name == "tcp") && len(info) >= 9:
		at := 8 // offset of the flags that invert conditions
		if name == "tcp" {
			at = 11
		}
		if (name == "udp") != (p.Proto == ProtoUDP) {
			return no
		}
		if len(info) <= at {
			return maybe
		}
		within := func(from, to uint16) bool { return from <= p.Port && p.Port <= to }
		port := within(order.Uint16(info[4:]), order.Uint16(info[6:])) != (info[at]&2 != 0)
		if name == "tcp" { // the TCP flags: a first packet has only SYN
			const syn, invert = 2, 4
			port = port && (syn&info[9] == info[10]) != (info[at]&invert != 0)
		}
		switch source := order.Uint16(info) != 0 || order.Uint16(info[2:]) != 0xFFFF; {
		case !port:
			return no
		case source: // a condition on the source port, which is not known
			return maybe
		}
		return yes
	case name == "multiport" && revision == 1 && len(info) >= 48:
		return multiport(info, p)
	case name == "state" && len(info) >= 4:
		return truth(order.Uint32(info)&ctNew != 0)
	case name == "conntrack" && revision >= 2 && len(info) >= 152:
		const onlyState, alias = 1, 1 << 13
		if flags := order.Uint16(info[146:]); flags&^alias != onlyState {
			return maybe
		}
		return truth((order.Uint16(info[150:])&ctNew != 0) != (order.Uint16(info[148:])&onlyState != 0))
	case name == "pkttype" && len(info) >= 8:
		const host = 0
		return truth((order.Uint32(info) == host) != (order.Uint32(info[4:]) != 0))
	}
	return maybe
}

// multiport evaluates revision 1 of the extension multiport. The parameter info contains, in this
// order: the kind of port, the number of ports, 15 ports, 15 flags that mark the beginnings of
// ranges, and a flag that inverts the result.
func multiport(info []byte, p *Packet) tri {
	const source, destination, either = 0, 1, 2
	kind, n, invert := info[0], int(info[1]), info[47] != 0
	found := false
	for i := 0; i < min(n, 15); i++ {
		from := binary.NativeEndian.Uint16(info[2+2*i:])
		to := from
		if info[32+i] != 0 && i+1 < min(n, 15) {
			i++
			to = binary.NativeEndian.Uint16(info[2+2*i:])
		}
		found = found || from <= p.Port && p.Port <= to
	}
	switch {
	case kind == source || kind == either && !found:
		return maybe
	case kind == destination || kind == either:
		return truth(found != invert)
	}
	return maybe
}

// xtTarget returns the action of a target extension of xtables.
func xtTarget(name string) action {
	if name == "REJECT" {
		return action{kind: drop}
	}
	if slices.Contains([]string{"SNAT", "DNAT", "MASQUERADE", "REDIRECT", "TPROXY", "NFQUEUE", "NETMAP"}, name) {
		return action{kind: accept}
	}
	return action{} // LOG, MARK, CT, ...
}

func cstring(b []byte) string {
	b, _, _ = bytes.Cut(b, []byte{0})
	return string(b)
}
