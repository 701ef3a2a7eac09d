package firewall

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// legacyLayout describes a kind of table of iptables-legacy, and where an entry of such a table has
// its fields.
type legacyLayout struct {
	domain, level int
	program       string
	names         string // file with the names of the loaded tables
	address       int    // length of an address
	netdevs       int    // offset of the names of the network devices, with their masks
	proto         int    // offset of the protocol (2 bytes)
	flags         int    // offset of the flags; the next byte contains the flags that invert conditions
	target        int    // offset of the target offset (2 bytes); the offset of the next entry follows
	counters      int    // offset of the count of packets (8 bytes)
	size          int    // size of an entry without matches and target
	hop           byte   // flag that makes a jump one that does not come back
	fragment      byte   // flag of the condition on fragments; 0: entries have no such condition
}

var legacyLayouts = []legacyLayout{
	{unix.AF_INET, unix.SOL_IP, "iptables-legacy", "/proc/thread-self/net/ip_tables_names", 4, 16, 80, 82, 88, 96, 112,
		2, 1},
	{unix.AF_INET6, unix.SOL_IPV6, "ip6tables-legacy", "/proc/thread-self/net/ip6_tables_names", 16, 64, 128, 131, 140,
		152, 168, 4, 0},
}

// readLegacy adds the rules of the loaded tables of iptables-legacy.
func (r *Rules) readLegacy() error {
	for i := range legacyLayouts {
		l := &legacyLayouts[i]
		names, err := os.ReadFile(l.names)
		if err != nil {
			continue // there are no such tables in the kernel or in this namespace
		}
		for _, table := range bytes.Fields(names) {
			if string(table) == "nat" {
				continue // nat rules do not drop packets
			}
			if err := r.readLegacyTable(l, string(table)); err != nil {
				return fmt.Errorf("%s, table %s: %w", l.program, table, err)
			}
		}
	}
	return nil
}

// Socket options, and sizes in bytes of the structures that they read.
const (
	legacyGetInfo    = 64
	legacyGetEntries = 65
	legacyName       = 32
	legacyInfoSize   = 84
	legacyHeader     = 40 // header before the entries
	legacyHooks      = 5
)

func getsockopt(fd, level, option int, b []byte) error {
	n := uint32(len(b))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), uintptr(level), uintptr(option),
		uintptr(unsafe.Pointer(&b[0])), uintptr(unsafe.Pointer(&n)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}

func (r *Rules) readLegacyTable(l *legacyLayout, table string) error {
	fd, err := unix.Socket(l.domain, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	info := make([]byte, legacyInfoSize)
	copy(info, table)
	if err := getsockopt(fd, l.level, legacyGetInfo, info); err != nil {
		return err
	}
	word := func(at int) uint32 { return binary.NativeEndian.Uint32(info[at:]) }
	valid, size := word(legacyName), word(legacyInfoSize-4)
	if size > 64<<20 {
		return fmt.Errorf("%d bytes of rules", size)
	}
	all := make([]byte, legacyHeader+int(size))
	copy(all, table)
	binary.NativeEndian.PutUint32(all[legacyName:], size)
	if err := getsockopt(fd, l.level, legacyGetEntries, all); err != nil {
		return err
	}
	t := &legacyTable{layout: l, name: table, entries: all[legacyHeader:], chains: map[int]*chain{}}
	for hook := range legacyHooks {
		if valid&(1<<hook) == 0 {
			continue
		}
		name := []string{"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"}[hook]
		first, policy := int(word(legacyName+4+4*hook)), int(word(legacyName+24+4*hook))
		c := t.chain(first, policy, name)
		r.count += len(c.rules)
		way := 0
		switch hook {
		case unix.NF_INET_FORWARD:
			continue
		case unix.NF_INET_LOCAL_OUT, unix.NF_INET_POST_ROUTING:
			way = 1
		}
		is4 := l.domain == unix.AF_INET
		prio := map[string]int{"raw": -300, "mangle": -150, "security": 50}[table]
		r.hooks[way] = append(r.hooks[way], hooked{chain: c, hook: hook, prio: prio,
			covers: func(p *Packet) bool { return p.Dst.Is4() == is4 }})
	}
	return nil
}

// legacyTable is the content of one table. Its entries follow one another. The target of a jump is
// the offset of an entry.
type legacyTable struct {
	layout  *legacyLayout
	name    string
	entries []byte
	chains  map[int]*chain // chains by the offset of their first entry
}

func (t *legacyTable) short(at int) int {
	if at < 0 || at+2 > len(t.entries) {
		return 0
	}
	return int(binary.NativeEndian.Uint16(t.entries[at:]))
}

// chain returns the chain whose first entry is at the given offset. The argument policy is the
// offset of the last entry of a base chain. For a user's chain the argument policy is -1, and the
// chain ends before the next entry whose target is ERROR.
func (t *legacyTable) chain(offset, policy int, name string) *chain {
	if c := t.chains[offset]; c != nil {
		return c
	}
	c := &chain{name: fmt.Sprintf("%s, table %s, chain %s", t.layout.program, t.name, name)}
	t.chains[offset] = c
	for number := 1; offset >= 0 && offset+t.layout.size <= len(t.entries); number++ {
		entry := t.entries[offset:]
		target, length := t.short(offset+t.layout.target), t.short(offset+t.layout.target+2)
		const header = 32 // size in bytes of the header of a target or match: size, name, revision
		if target < t.layout.size || target+header > len(entry) || length < target || length > len(entry) {
			break
		}
		what := cstring(entry[target+2 : target+31])
		if what == "ERROR" {
			break
		}
		a := xtTarget(what)
		if what == "" && target+header+4 <= len(entry) {
			a = t.verdict(int(int32(binary.NativeEndian.Uint32(entry[target+header:]))), offset+length, entry)
		}
		a.packets = binary.NativeEndian.Uint64(entry[t.layout.counters:])
		label := fmt.Sprintf("%s, rule %d", c.name, number)
		if offset == policy {
			label = c.name + ", policy DROP"
		}
		one := entry[:target]
		c.rules = append(c.rules, rule{label, func(p *Packet) (tri, action) { return t.matches(one, p), a }})
		if offset == policy {
			break
		}
		offset += length
	}
	return c
}

// verdict decodes a standard target. If v is negative, v is the code of a verdict. Otherwise v is
// the offset of the entry to jump to. The argument following is the offset of the entry after this
// one.
func (t *legacyTable) verdict(v, following int, entry []byte) action {
	const dropCode, acceptCode, returnCode = -1, -2, -5
	switch {
	case v == dropCode:
		return action{kind: drop}
	case v == acceptCode:
		return action{kind: accept}
	case v == returnCode:
		return action{kind: comeBack}
	case v < 0 || v == following:
		return action{}
	}
	kind := jump
	if entry[t.layout.flags]&t.layout.hop != 0 {
		kind = hop
	}
	return action{kind: kind, to: t.chain(v, -1, t.chainName(v))}
}

// chainName returns the name of a user's chain. The parameter first is the offset of its first
// entry. The entry before that offset contains the name.
func (t *legacyTable) chainName(first int) string {
	for at := 0; at+t.layout.size <= len(t.entries); {
		target, length := t.short(at+t.layout.target), t.short(at+t.layout.target+2)
		if length == 0 {
			break
		}
		if at+length == first && at+target+62 <= len(t.entries) {
			return cstring(t.entries[at+target+32 : at+target+62])
		}
		at += length
	}
	return "?"
}

// matches evaluates the conditions of an entry: addresses, network devices, protocol and
// extensions.
func (t *legacyTable) matches(entry []byte, p *Packet) tri {
	l := t.layout
	inverted := entry[l.flags+1]
	const invertIn, invertOut, invertSrc, invertDst, invertFragment, invertProto = 1, 2, 8, 16, 32, 64
	result := yes
	address := func(a netip.Addr, at int, invert byte) {
		want, mask := entry[at*l.address:][:l.address], entry[(2+at)*l.address:][:l.address]
		if bytes.Count(mask, []byte{0}) == len(mask) {
			return
		}
		if !a.IsValid() {
			result = min(result, maybe)
			return
		}
		equal := true
		for i, b := range a.AsSlice() {
			equal = equal && b&mask[i] == want[i]
		}
		result = min(result, truth(equal != (inverted&invert != 0)))
	}
	address(p.Src, 0, invertSrc)
	address(p.Dst, 1, invertDst)
	netdev := func(of bool, at int, invert byte) {
		want, mask := entry[l.netdevs+at*unix.IFNAMSIZ:][:unix.IFNAMSIZ],
			entry[l.netdevs+(2+at)*unix.IFNAMSIZ:][:unix.IFNAMSIZ]
		have := make([]byte, unix.IFNAMSIZ)
		if of {
			copy(have, p.Netdev)
		}
		equal := true
		for i := range have {
			equal = equal && have[i]&mask[i] == want[i]&mask[i]
		}
		result = min(result, truth(equal != (inverted&invert != 0)))
	}
	netdev(!p.Out, 0, invertIn)
	netdev(p.Out, 1, invertOut)
	if proto := binary.NativeEndian.Uint16(entry[l.proto:]); proto != 0 {
		result = min(result, truth((proto == uint16(p.Proto)) != (inverted&invertProto != 0)))
	}
	if entry[l.flags]&l.fragment != 0 {
		result = min(result, truth(inverted&invertFragment != 0))
	}
	for at := l.size; at+32 <= len(entry); {
		n := int(binary.NativeEndian.Uint16(entry[at:]))
		if n < 32 || at+n > len(entry) {
			return min(result, maybe)
		}
		result = min(result, xtMatch(cstring(entry[at+2:at+31]), int(entry[at+31]), entry[at+32:at+n], p))
		at += n
	}
	return result
}
