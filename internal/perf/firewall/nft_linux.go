package firewall

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
)

// expression is one expression of an nf_tables rule, with its attributes as the kernel sends them.
// A rule keeps its unknown expressions too. Their result is uncertain.
type expression struct {
	name string
	attr map[uint16][]byte
}

func (e *expression) number(attr uint16) uint32 {
	if b := e.attr[attr]; len(b) == 4 {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

// value returns the value that is nested in an attribute.
func (e *expression) value(attr uint16) []byte { return Attributes(e.attr[attr])[unix.NFTA_DATA_VALUE] }

// nftSet is a set or a map of nf_tables.
type nftSet struct {
	interval, fields bool // interval: the elements are ends of intervals; fields: each key is a concatenation of fields
	elements         []nftElement
	fallback         *nftElement
}

type nftElement struct {
	key     []byte
	end     bool // the key is the end of an interval, exclusive
	data    []byte
	verdict action
}

// find returns the element for a key, or nil if the set has none. It does not support sets of
// intervals over several fields. For such a set, known is false.
func (s *nftSet) find(key []byte) (found *nftElement, known bool) {
	for i := range s.elements {
		e := &s.elements[i]
		switch {
		case s.interval && !s.fields:
			if len(e.key) == len(key) && bytes.Compare(e.key, key) <= 0 {
				found = e // the elements are sorted: the last such element decides
			}
		case bytes.HasPrefix(key, e.key):
			return e, true
		}
	}
	if found != nil && found.end {
		found = nil
	}
	if found == nil {
		found = s.fallback
	}
	return found, !s.fields || !s.interval
}

// sortIntervals sorts the elements by key. If one interval ends where the next begins, the end
// comes first.
func (s *nftSet) sortIntervals() {
	slices.SortStableFunc(s.elements, func(a, b nftElement) int {
		if c := bytes.Compare(a.key, b.key); c != 0 {
			return c
		}
		switch {
		case a.end == b.end:
			return 0
		case a.end:
			return -1
		}
		return 1
	})
}

// registers contains the data registers of a rule: four registers of 16 bytes. The same 64 bytes
// are also sixteen registers of 4 bytes. A condition on an unknown byte is uncertain.
type registers struct {
	bytes [80]byte
	known [80]bool
}

func (r *registers) at(register uint32, n int) (from, to int) {
	from = int(register) * 16
	if register >= unix.NFT_REG32_00 {
		from = 16 + int(register-unix.NFT_REG32_00)*4
	}
	from = min(from, len(r.bytes))
	return from, min(from+n, len(r.bytes))
}

// load writes data to a register and pads the data with zeros to a multiple of 4 bytes. If data is
// nil, n bytes of the register become unknown.
func (r *registers) load(register uint32, data []byte, n int) {
	padded := max(n, len(data))
	padded = (padded + 3) &^ 3
	from, to := r.at(register, padded)
	for i := from; i < to; i++ {
		r.bytes[i], r.known[i] = 0, data != nil
	}
	copy(r.bytes[from:to], data)
}

// loadKnown writes data to a register as load does. Only the bytes for which the argument known is
// true become known.
func (r *registers) loadKnown(register uint32, data []byte, known []bool) {
	r.load(register, data, len(data))
	from, to := r.at(register, len(data))
	copy(r.known[from:to], known)
}

// get returns n bytes of a register, and reports whether all of them are known.
func (r *registers) get(register uint32, n int) ([]byte, bool) {
	from, to := r.at(register, n)
	return r.bytes[from:to], to-from == n && !slices.Contains(r.known[from:to], false)
}

// differs reports whether a known byte of a register differs from data. A rule may compare both
// ports of a packet at once, although only the destination port is known.
func (r *registers) differs(register uint32, data []byte) bool {
	from, to := r.at(register, len(data))
	for i := from; i < to; i++ {
		if r.known[i] && r.bytes[i] != data[i-from] {
			return true
		}
	}
	return false
}

// nftEval evaluates a rule for a packet. The arguments sets and chains belong to the rule's table.
func nftEval(exprs []expression, sets map[string]*nftSet, chains map[string]*chain, p *Packet) (tri, action) {
	var r registers
	var counted uint64
	result := yes
	for i := range exprs {
		e := &exprs[i]
		matches := yes
		switch e.name {
		case "meta":
			if dest, isLoad := e.attr[unix.NFTA_META_DREG]; isLoad {
				data, n := meta(e.number(unix.NFTA_META_KEY), p)
				r.load(binary.BigEndian.Uint32(dest), data, n)
			}
		case "payload":
			if e.attr[unix.NFTA_PAYLOAD_DREG] != nil {
				data, known := payload(e, p)
				r.loadKnown(e.number(unix.NFTA_PAYLOAD_DREG), data, known)
			}
		case "ct":
			if e.attr[unix.NFTA_CT_DREG] != nil {
				var state []byte
				if e.number(unix.NFTA_CT_KEY) == unix.NFT_CT_STATE {
					state = binary.NativeEndian.AppendUint32(nil, ctNew)
				}
				r.load(e.number(unix.NFTA_CT_DREG), state, 4)
			}
		case "immediate":
			if e.number(unix.NFTA_IMMEDIATE_DREG) == unix.NFT_REG_VERDICT {
				a := verdict(Attributes(e.attr[unix.NFTA_IMMEDIATE_DATA]), chains)
				a.packets = counted
				return result, a
			}
			r.load(e.number(unix.NFTA_IMMEDIATE_DREG), e.value(unix.NFTA_IMMEDIATE_DATA), 0)
		case "bitwise":
			bitwise(&r, e)
		case "cmp":
			matches = cmpMatches(&r, e)
		case "range":
			matches = rangeMatches(&r, e)
		case "lookup":
			element, found := lookup(&r, e, sets)
			matches = found
			if dest, isMap := e.attr[unix.NFTA_LOOKUP_DREG]; isMap && element != nil {
				if binary.BigEndian.Uint32(dest) == unix.NFT_REG_VERDICT {
					a := element.verdict
					a.packets = counted
					return min(result, found), a
				}
				r.load(binary.BigEndian.Uint32(dest), element.data, 0)
			}
		case "match":
			name, revision := cstring(e.attr[unix.NFTA_MATCH_NAME]), int(e.number(unix.NFTA_MATCH_REV))
			matches = xtMatch(name, revision, e.attr[unix.NFTA_MATCH_INFO], p)
		case "target":
			if a := xtTarget(cstring(e.attr[unix.NFTA_TARGET_NAME])); a.kind != next {
				a.packets = counted
				return result, a
			}
		case "reject":
			return result, action{kind: drop, packets: counted}
		case "counter":
			if b := e.attr[unix.NFTA_COUNTER_PACKETS]; len(b) == 8 {
				counted = binary.BigEndian.Uint64(b)
			}
		case "objref":
			const counter = 1
			if e.number(unix.NFTA_OBJREF_IMM_TYPE) != counter {
				matches = maybe
			}
		case "log", "notrack", "dup", "last":
		case "nat", "masq", "redir", "tproxy", "queue", "fwd", "synproxy":
			return result, action{kind: accept}
		default: // limit, quota, fib, socket, ...
			matches, r.known = maybe, [len(r.known)]bool{}
		}
		if result = min(result, matches); result == no {
			return no, action{}
		}
	}
	return result, action{}
}

// verdict decodes the verdict in data.
func verdict(data map[uint16][]byte, chains map[string]*chain) action {
	v := Attributes(data[unix.NFTA_DATA_VERDICT])
	b := v[unix.NFTA_VERDICT_CODE]
	if len(b) != 4 {
		return action{}
	}
	to := chains[cstring(v[unix.NFTA_VERDICT_CHAIN])]
	switch int32(binary.BigEndian.Uint32(b)) {
	case unix.NFT_RETURN:
		return action{kind: comeBack}
	case unix.NFT_JUMP:
		return action{kind: jump, to: to}
	case unix.NFT_GOTO:
		return action{kind: hop, to: to}
	case 0: // NF_DROP
		return action{kind: drop}
	case unix.NFT_BREAK, unix.NFT_CONTINUE:
		return action{}
	}
	return action{kind: accept} // accept, or queue, which lets a program decide
}

// meta returns the packet's metadata for a key, and the length of the metadata in bytes. It returns
// nil if the metadata is unknown.
func meta(key uint32, p *Packet) ([]byte, int) {
	index := func() []byte {
		if i, err := net.InterfaceByName(p.Netdev); err == nil {
			return binary.NativeEndian.AppendUint32(nil, uint32(i.Index))
		}
		return nil
	}
	name := make([]byte, unix.IFNAMSIZ)
	copy(name, p.Netdev)
	none := make([]byte, unix.IFNAMSIZ)
	switch key {
	case unix.NFT_META_IIFNAME:
		if p.Out {
			return none, unix.IFNAMSIZ
		}
		return name, unix.IFNAMSIZ
	case unix.NFT_META_OIFNAME:
		if !p.Out {
			return none, unix.IFNAMSIZ
		}
		return name, unix.IFNAMSIZ
	case unix.NFT_META_IIF:
		if p.Out {
			return none[:4], 4
		}
		return index(), 4
	case unix.NFT_META_OIF:
		if !p.Out {
			return none[:4], 4
		}
		return index(), 4
	case unix.NFT_META_L4PROTO:
		return []byte{p.Proto}, 1
	case unix.NFT_META_NFPROTO:
		if p.Dst.Is4() {
			return []byte{unix.NFPROTO_IPV4}, 1
		}
		return []byte{unix.NFPROTO_IPV6}, 1
	case unix.NFT_META_PROTOCOL:
		if p.Dst.Is4() {
			return binary.BigEndian.AppendUint16(nil, unix.ETH_P_IP), 2
		}
		return binary.BigEndian.AppendUint16(nil, unix.ETH_P_IPV6), 2
	case unix.NFT_META_PKTTYPE:
		return []byte{0}, 1 // PACKET_HOST
	case unix.NFT_META_MARK:
		return none[:4], 4
	}
	return nil, 16
}

// payload returns bytes of the packet's headers, and which of these bytes are known.
func payload(e *expression, p *Packet) ([]byte, []bool) {
	const port, most = 2, 64
	offset, n := int(e.number(unix.NFTA_PAYLOAD_OFFSET)), int(e.number(unix.NFTA_PAYLOAD_LEN))
	header, known := make([]byte, 2*most), make([]bool, 2*most)
	put := func(at int, b ...byte) {
		for i := range b {
			header[at+i], known[at+i] = b[i], true
		}
	}
	address := func(at int, a netip.Addr) {
		if a.IsValid() {
			put(at, a.AsSlice()...)
		}
	}
	switch base := e.number(unix.NFTA_PAYLOAD_BASE); {
	case base == unix.NFT_PAYLOAD_TRANSPORT_HEADER:
		put(port, binary.BigEndian.AppendUint16(nil, p.Port)...)
	case base == unix.NFT_PAYLOAD_NETWORK_HEADER && p.Dst.Is4():
		put(0, 0x45)
		put(9, p.Proto)
		address(12, p.Src)
		address(16, p.Dst)
	case base == unix.NFT_PAYLOAD_NETWORK_HEADER:
		put(6, p.Proto)
		address(8, p.Src)
		address(24, p.Dst)
	}
	offset, n = min(max(offset, 0), most), min(max(n, 0), most) // the bytes after offset most are unknown
	return header[offset : offset+n], known[offset : offset+n]
}

func bitwise(r *registers, e *expression) {
	n := int(e.number(unix.NFTA_BITWISE_LEN))
	const operation = 6 // attribute of the operation; only 0, mask and xor, is supported
	mask, xor := e.value(unix.NFTA_BITWISE_MASK), e.value(unix.NFTA_BITWISE_XOR)
	have, known := r.get(e.number(unix.NFTA_BITWISE_SREG), n)
	var out []byte
	if known && e.number(operation) == 0 && len(mask) >= n && len(xor) >= n {
		out = make([]byte, n)
		for i := range out {
			out[i] = have[i]&mask[i] ^ xor[i]
		}
	}
	r.load(e.number(unix.NFTA_BITWISE_DREG), out, n)
}

// cmpMatches compares a register with a constant. If the constant is shorter than the register, it
// compares only the beginning of the register. The kernel sends such a constant if the rule
// contains the name of a network device that ends with an asterisk.
func cmpMatches(r *registers, e *expression) tri {
	want := e.value(unix.NFTA_CMP_DATA)
	sreg, operation := e.number(unix.NFTA_CMP_SREG), e.number(unix.NFTA_CMP_OP)
	have, known := r.get(sreg, len(want))
	if !known && !(operation <= unix.NFT_CMP_NEQ && r.differs(sreg, want)) {
		return maybe
	}
	c := bytes.Compare(have, want)
	switch operation {
	case unix.NFT_CMP_EQ:
		return truth(c == 0)
	case unix.NFT_CMP_NEQ:
		return truth(c != 0)
	case unix.NFT_CMP_LT:
		return truth(c < 0)
	case unix.NFT_CMP_LTE:
		return truth(c <= 0)
	case unix.NFT_CMP_GT:
		return truth(c > 0)
	case unix.NFT_CMP_GTE:
		return truth(c >= 0)
	}
	return maybe
}

func rangeMatches(r *registers, e *expression) tri {
	from, to := e.value(unix.NFTA_RANGE_FROM_DATA), e.value(unix.NFTA_RANGE_TO_DATA)
	have, known := r.get(e.number(unix.NFTA_RANGE_SREG), len(from))
	if !known {
		return maybe
	}
	within := bytes.Compare(from, have) <= 0 && bytes.Compare(have, to) <= 0
	return truth(within == (e.number(unix.NFTA_RANGE_OP) == unix.NFT_RANGE_EQ))
}

// lookup looks up a register's content in a set.
func lookup(r *registers, e *expression, sets map[string]*nftSet) (*nftElement, tri) {
	s := sets[cstring(e.attr[unix.NFTA_LOOKUP_SET])]
	if s == nil || len(s.elements) == 0 && s.fallback == nil {
		return nil, truth(s != nil && e.number(unix.NFTA_LOOKUP_FLAGS) != 0)
	}
	n := 4
	if len(s.elements) > 0 {
		n = len(s.elements[0].key)
	}
	key, known := r.get(e.number(unix.NFTA_LOOKUP_SREG), n)
	if !known {
		return nil, maybe
	}
	element, known := s.find(key)
	if !known {
		return nil, maybe
	}
	const invert = 1
	return element, truth((element != nil) != (e.number(unix.NFTA_LOOKUP_FLAGS)&invert != 0))
}
