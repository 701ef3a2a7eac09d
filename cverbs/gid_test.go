package cverbs

import (
	"net/netip"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

func gidEntry(index int, addr string, typ GIDType) GIDEntry {
	return GIDEntry{GID: netip.MustParseAddr(addr).As16(), Index: index, Port: 1, Type: typ}
}

// The order is RoCE v2 with IPv4, v2 with global IPv6, v2 with link-local IPv6, v1; among equals
// the lowest index.
func TestRankGIDs(t *testing.T) {
	v1 := gidEntry(0, "fe80::1", GIDTypeRoCEv1)
	v2local := gidEntry(1, "fe80::1", GIDTypeRoCEv2)
	v1ip4 := gidEntry(2, "10.0.0.1", GIDTypeRoCEv1)
	v2global := gidEntry(3, "2001:db8::1", GIDTypeRoCEv2)
	v2ip4 := gidEntry(4, "10.0.0.1", GIDTypeRoCEv2)
	later := gidEntry(9, "10.0.0.2", GIDTypeRoCEv2)
	empty := GIDEntry{Index: 7, Type: GIDTypeRoCEv2}
	for _, c := range []struct {
		entries []GIDEntry
		index   int
		reason  string
	}{
		{[]GIDEntry{v1, v2local, v1ip4, v2global, later, v2ip4}, 4,
			"GID index 4 (10.0.0.1) is RoCE v2 with an IPv4 address, the best of 6 entries"},
		{[]GIDEntry{v1, v2local, v1ip4, v2global}, 3, "RoCE v2 with a global IPv6 address"},
		{[]GIDEntry{v1ip4, v1, v2local}, 1, "link-local"},
		{[]GIDEntry{v1ip4, v1}, 0, "RoCE v1"},
		{[]GIDEntry{gidEntry(0, "fe80::2:c9", GIDTypeIB)}, 0, "InfiniBand"},
	} {
		best, reason, ok := RankGIDs(c.entries)
		assert.Assert(t, ok)
		assert.Equal(t, best.Index, c.index)
		assert.Assert(t, strings.Contains(reason, c.reason), reason)
	}
	for _, none := range [][]GIDEntry{nil, {empty}} {
		_, reason, ok := RankGIDs(none)
		assert.Assert(t, !ok)
		assert.Assert(t, strings.Contains(reason, "none of"), reason)
	}
	v2ip4.NetDev = "eth7"
	_, reason, _ := RankGIDs([]GIDEntry{v2ip4})
	assert.Equal(t, reason, "GID index 4 (10.0.0.1) is RoCE v2 with an IPv4 address on eth7")
}

// QueryGID returns the entries that GIDTable lists, and refuses an index beyond the table.
func TestQueryGID(t *testing.T) {
	ctx := openDevice(t)
	all, err := ctx.GIDTable()
	assert.NilError(t, err)
	assert.Assert(t, len(all) > 0)
	for _, want := range all {
		got, err := ctx.QueryGID(want.Port, want.Index)
		assert.NilError(t, err)
		assert.Equal(t, got, want)
	}
	_, err = ctx.QueryGID(1, 1<<20)
	assert.Assert(t, err != nil)
}
