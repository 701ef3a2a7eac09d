package firewall

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// message describes an object of nf_tables: its address family and its attributes.
type message struct {
	family uint8
	attr   map[uint16][]byte
}

func (m *message) text(attr uint16) string { return cstring(m.attr[attr]) }

type tableKey struct {
	family uint8
	name   string
}

// nft reads the rules of nf_tables.
type nft struct {
	conn   *netlink.Conn
	chains map[tableKey]map[string]*chain
	sets   map[tableKey]map[string]*nftSet
}

// dump returns all objects of a kind.
func (n *nft) dump(kind uint16, family uint8, attr ...netlink.Attribute) ([]message, error) {
	data, err := netlink.MarshalAttributes(attr)
	if err != nil {
		return nil, err
	}
	replies, err := n.conn.Execute(netlink.Message{
		Header: netlink.Header{Type: netlink.HeaderType(unix.NFNL_SUBSYS_NFTABLES<<8 | kind),
			Flags: netlink.Request | netlink.Dump},
		Data: append([]byte{family, unix.NFNETLINK_V0, 0, 0}, data...),
	})
	if err != nil {
		return nil, err
	}
	var all []message
	for _, r := range replies {
		if len(r.Data) >= 4 {
			all = append(all, message{r.Data[0], Attributes(r.Data[4:])})
		}
	}
	return all, nil
}

// readNFT adds the rules of nf_tables to r.
func (r *Rules) readNFT() error {
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return err
	}
	defer conn.Close()
	n := &nft{conn: conn, chains: map[tableKey]map[string]*chain{}, sets: map[tableKey]map[string]*nftSet{}}
	// A dump fails with EINTR if the rules change during the dump. Then this loop reads them again.
	for range 5 {
		if err = n.read(r); !errors.Is(err, unix.EINTR) {
			break
		}
		r.hooks, r.count = [2][]hooked{}, 0
	}
	return err
}

func (n *nft) read(r *Rules) error {
	chains, err := n.dump(unix.NFT_MSG_GETCHAIN, unix.NFPROTO_UNSPEC)
	if err != nil {
		return err
	}
	for i := range chains {
		m := &chains[i]
		key := tableKey{m.family, m.text(unix.NFTA_CHAIN_TABLE)}
		if n.chains[key] == nil {
			n.chains[key], n.sets[key] = map[string]*chain{}, map[string]*nftSet{}
		}
		name := m.text(unix.NFTA_CHAIN_NAME)
		c := &chain{name: fmt.Sprintf("nft, table %s %s, chain %s", familyName(key.family), key.name, name)}
		n.chains[key][name] = c
		if m.attr[unix.NFTA_CHAIN_HOOK] != nil {
			n.hook(r, m, c)
		}
	}
	if len(chains) == 0 {
		return nil
	}
	if err := n.readSets(); err != nil {
		return err
	}
	rules, err := n.dump(unix.NFT_MSG_GETRULE, unix.NFPROTO_UNSPEC)
	if err != nil {
		return err
	}
	for i := range rules {
		m := &rules[i]
		key := tableKey{m.family, m.text(unix.NFTA_RULE_TABLE)}
		if c := n.chains[key][m.text(unix.NFTA_RULE_CHAIN)]; c != nil {
			r.count++
			c.rules = append(c.rules, n.rule(m, key, c))
		}
	}
	for way := range r.hooks {
		slices.SortStableFunc(r.hooks[way], func(a, b hooked) int {
			if a.hook != b.hook {
				return a.hook - b.hook
			}
			return a.prio - b.prio
		})
	}
	return nil
}

func familyName(family uint8) string {
	return map[uint8]string{unix.NFPROTO_INET: "inet", unix.NFPROTO_IPV4: "ip", unix.NFPROTO_IPV6: "ip6",
		unix.NFPROTO_NETDEV: "netdev", unix.NFPROTO_BRIDGE: "bridge", unix.NFPROTO_ARP: "arp"}[family]
}

func (n *nft) rule(m *message, key tableKey, c *chain) rule {
	var exprs []expression
	for _, b := range list(m.attr[unix.NFTA_RULE_EXPRESSIONS]) {
		a := Attributes(b)
		exprs = append(exprs, expression{cstring(a[unix.NFTA_EXPR_NAME]), Attributes(a[unix.NFTA_EXPR_DATA])})
	}
	handle := uint64(0)
	if b := m.attr[unix.NFTA_RULE_HANDLE]; len(b) == 8 {
		handle = binary.BigEndian.Uint64(b)
	}
	sets, chains := n.sets[key], n.chains[key]
	return rule{fmt.Sprintf("%s, handle %d", c.name, handle), func(p *Packet) (tri, action) {
		return nftEval(exprs, sets, chains, p)
	}}
}

// hook adds a base chain to r.hooks. It skips chains that packets from and to this host do not go
// through, and chains of type nat, which do not drop packets.
func (n *nft) hook(r *Rules, m *message, c *chain) {
	h := Attributes(m.attr[unix.NFTA_CHAIN_HOOK])
	number := func(b []byte) int {
		if len(b) != 4 {
			return 0
		}
		return int(int32(binary.BigEndian.Uint32(b)))
	}
	hook, family := number(h[unix.NFTA_HOOK_HOOKNUM]), m.family
	var netdevs []string
	const devices = 4 // NFTA_HOOK_DEVS
	for _, b := range append(list(h[devices]), h[unix.NFTA_HOOK_DEV]) {
		if name := cstring(b); name != "" {
			netdevs = append(netdevs, name)
		}
	}
	const inetIngress = 5
	way, first := 0, -1 // ingress is before the hooks of IP, egress after them
	switch {
	case m.text(unix.NFTA_CHAIN_TYPE) == "nat":
		return
	case family == unix.NFPROTO_NETDEV && hook == unix.NF_NETDEV_INGRESS,
		family == unix.NFPROTO_INET && hook == inetIngress:
		hook = first
	case family == unix.NFPROTO_NETDEV:
		way, hook = 1, inetIngress
	case hook == unix.NF_INET_PRE_ROUTING || hook == unix.NF_INET_LOCAL_IN:
	case hook == unix.NF_INET_LOCAL_OUT || hook == unix.NF_INET_POST_ROUTING:
		way = 1
	default:
		return
	}
	policy, known := m.attr[unix.NFTA_CHAIN_POLICY]
	r.hooks[way] = append(r.hooks[way], hooked{
		chain: c, hook: hook, prio: number(h[unix.NFTA_HOOK_PRIORITY]), drops: known && number(policy) == 0,
		covers: func(p *Packet) bool {
			switch {
			case len(netdevs) > 0:
				return slices.Contains(netdevs, p.Netdev)
			case family == unix.NFPROTO_IPV4:
				return p.Dst.Is4()
			case family == unix.NFPROTO_IPV6:
				return p.Dst.Is6()
			}
			return family == unix.NFPROTO_INET
		},
	})
}

// readSets reads all sets and their elements.
func (n *nft) readSets() error {
	sets, err := n.dump(unix.NFT_MSG_GETSET, unix.NFPROTO_UNSPEC)
	if err != nil {
		return err
	}
	for i := range sets {
		m := &sets[i]
		table, name := m.text(unix.NFTA_SET_TABLE), m.text(unix.NFTA_SET_NAME)
		key := tableKey{m.family, table}
		if n.sets[key] == nil {
			continue
		}
		s := &nftSet{}
		if b := m.attr[unix.NFTA_SET_FLAGS]; len(b) == 4 {
			const concat = 0x80
			flags := binary.BigEndian.Uint32(b)
			s.interval, s.fields = flags&unix.NFT_SET_INTERVAL != 0, flags&concat != 0
		}
		parts, err := n.dump(unix.NFT_MSG_GETSETELEM, m.family,
			netlink.Attribute{Type: unix.NFTA_SET_ELEM_LIST_TABLE, Data: append([]byte(table), 0)},
			netlink.Attribute{Type: unix.NFTA_SET_ELEM_LIST_SET, Data: append([]byte(name), 0)})
		if err != nil {
			return err
		}
		for j := range parts {
			for _, b := range list(parts[j].attr[unix.NFTA_SET_ELEM_LIST_ELEMENTS]) {
				s.add(Attributes(b), n.chains[key])
			}
		}
		if s.interval {
			s.sortIntervals()
		}
		n.sets[key][name] = s
	}
	return nil
}

func (s *nftSet) add(a map[uint16][]byte, chains map[string]*chain) {
	const catchAll = 2
	data := Attributes(a[unix.NFTA_SET_ELEM_DATA])
	e := nftElement{key: Attributes(a[unix.NFTA_SET_ELEM_KEY])[unix.NFTA_DATA_VALUE],
		data: data[unix.NFTA_DATA_VALUE], verdict: verdict(data, chains)}
	flags := uint32(0)
	if b := a[unix.NFTA_SET_ELEM_FLAGS]; len(b) == 4 {
		flags = binary.BigEndian.Uint32(b)
	}
	e.end = flags&unix.NFT_SET_ELEM_INTERVAL_END != 0
	if flags&catchAll != 0 {
		s.fallback = &e
		return
	}
	s.elements = append(s.elements, e)
}
