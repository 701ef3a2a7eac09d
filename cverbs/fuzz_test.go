package cverbs

import (
	"net/netip"
	"testing"

	"gotest.tools/v3/assert"
)

// FuzzGIDs ranks a table of random GIDs. The best entry is in the table and is not empty, and the
// text of its GID is its address.
func FuzzGIDs(f *testing.F) {
	v4 := netip.MustParseAddr("::ffff:10.98.0.1").As16()
	link := netip.MustParseAddr("fe80::1").As16()
	f.Add(v4[:], link[:], uint32(2), uint32(1))
	f.Add(make([]byte, 16), make([]byte, 16), uint32(0), uint32(9))
	f.Add([]byte{255}, []byte(nil), uint32(7), uint32(2))
	f.Fuzz(func(t *testing.T, one, two []byte, typeOne, typeTwo uint32) {
		entries := []GIDEntry{{Index: 3, Type: GIDType(typeOne)}, {Index: 4, Type: GIDType(typeTwo)}}
		copy(entries[0].GID[:], one)
		copy(entries[1].GID[:], two)
		best, reason, ok := RankGIDs(entries)
		assert.Assert(t, reason != "")
		if !ok {
			return
		}
		assert.Assert(t, best == entries[0] || best == entries[1])
		assert.Assert(t, !best.GID.IsZero())
		again, err := netip.ParseAddr(best.GID.String())
		assert.NilError(t, err)
		assert.Equal(t, again, best.GID.Addr())
	})
}
