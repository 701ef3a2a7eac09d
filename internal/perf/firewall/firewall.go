// Package firewall finds out whether the kernel's packet filters drop a packet. It reads the rules
// of nf_tables, which include those of iptables-nft, over netlink, and the rules of iptables-legacy
// through socket options. It changes nothing and runs no other program. Package doctor imports this
// package.
//
// Read reads the rules once. Then Rules.Ask evaluates them for any number of packets. Some
// conditions depend on more than the packet, for example on a rate or on the owner of a socket. The
// package treats such a condition as uncertain, and the verdict may then be uncertain too. A Rules
// may be used concurrently.
package firewall

import (
	"fmt"
	"net/netip"
)

// Packet is the first packet of a flow, from or to this host.
type Packet struct {
	Out      bool   // this host sends the packet; otherwise it receives the packet
	Netdev   string // network device that receives or sends the packet
	Src, Dst netip.Addr
	Proto    uint8  // ProtoTCP or ProtoUDP
	Port     uint16 // destination
}

// Protocols.
const (
	ProtoTCP = 6
	ProtoUDP = 17
)

// Verdict is the result of evaluating the rules for a packet.
type Verdict struct {
	Dropped bool   // the packet is dropped or rejected
	Certain bool   // false: the result depends on more than the packet
	Rule    string // description of the rule that drops the packet; empty if the packet passes
	Packets uint64 // number of packets that the rule has dropped; 0 if it does not count them
}

// Rules are the packet filters of this network namespace.
type Rules struct {
	hooks [2][]hooked // base chains in the order of their execution; index 0: for received packets, 1: for sent ones
	count int
}

// Count returns the number of rules that were read.
func (r *Rules) Count() int { return r.count }

// hooked is a base chain: a chain that the kernel runs at a hook.
type hooked struct {
	chain *chain
	hook  int // number of the hook; chains with a smaller number run first
	prio  int
	// covers reports whether the chain applies to the packet's address family and network device.
	covers func(*Packet) bool
	drops  bool // the chain's policy is drop
}

type chain struct {
	name  string // description that includes the table
	rules []rule
}

// rule is one rule of nf_tables or of iptables-legacy.
type rule struct {
	name string // description
	eval func(*Packet) (tri, action)
}

// tri is the truth of a condition.
type tri int8

const (
	no tri = iota
	maybe
	yes
)

func truth(b bool) tri {
	if b {
		return yes
	}
	return no
}

// action is what a rule does with a packet that matches.
type action struct {
	kind    kind
	to      *chain // target of jump and hop
	packets uint64 // number of packets that the rule has counted
}

type kind int8

const (
	next     kind = iota // continue with the next rule
	accept               // the packet passes this base chain
	drop                 // drop or reject the packet
	jump                 // continue in another chain, and come back
	hop                  // continue in another chain, without coming back
	comeBack             // go back to the rule after the jump
)

// Ask evaluates the rules for a packet.
func (r *Rules) Ask(p Packet) Verdict {
	way := 0
	if p.Out {
		way = 1
	}
	w := walk{p: &p}
	for _, base := range r.hooks[way] {
		if !base.covers(&p) {
			continue
		}
		w.accepts = false
		end := w.chain(base.chain, 0, yes)
		if end == next && base.drops {
			w.recordDrop(base.chain.name+", policy drop", 0, yes)
			end = drop
		}
		if end == drop {
			break
		}
	}
	return w.verdict
}

// walk is the evaluation of all rules for one packet.
type walk struct {
	p       *Packet
	accepts bool // a rule of this base chain may have accepted the packet
	steps   int
	verdict Verdict
}

// maxDepth limits how deep the jumps of a walk may be nested. maxSteps limits the number of rules
// that a walk evaluates. The kernel permits 16 nested jumps and no loops.
const (
	maxDepth = 16
	maxSteps = 1 << 20
)

// chain returns how the packet leaves a chain: next, accept or drop. The argument sure is yes if
// the packet certainly reaches the chain, and maybe if that is uncertain.
func (w *walk) chain(c *chain, depth int, sure tri) kind {
	if depth > maxDepth {
		return next
	}
	for _, r := range c.rules {
		if w.steps++; w.steps > maxSteps {
			return next
		}
		matches, a := r.eval(w.p)
		matches = min(matches, sure)
		if matches == no {
			continue
		}
		switch a.kind {
		case accept:
			if matches == yes {
				return accept
			}
			w.accepts = true
		case drop:
			w.recordDrop(r.name, a.packets, matches)
			if matches == yes {
				return drop
			}
		case comeBack:
			if matches == yes {
				return next
			}
			w.accepts = true // perhaps the packet does not reach the following rules
		case jump, hop:
			if a.to == nil {
				continue
			}
			end := w.chain(a.to, depth+1, matches)
			if end != next || a.kind == hop && matches == yes {
				return end
			}
		}
	}
	return next
}

// recordDrop sets the verdict to a drop by the named rule. It replaces an earlier drop only if that
// drop is uncertain and the new one is certain.
func (w *walk) recordDrop(name string, packets uint64, matches tri) {
	certain := matches == yes && !w.accepts
	if w.verdict.Dropped && (w.verdict.Certain || !certain) {
		return
	}
	w.verdict = Verdict{true, certain, name, packets}
}

// String describes the packet for people.
func (p *Packet) String() string {
	proto := map[uint8]string{ProtoTCP: "tcp", ProtoUDP: "udp"}[p.Proto]
	if p.Out {
		return fmt.Sprintf("%s port %d out of %s", proto, p.Port, p.Netdev)
	}
	return fmt.Sprintf("%s port %d into %s", proto, p.Port, p.Netdev)
}
