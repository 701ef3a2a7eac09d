package rdmanet

import (
	"math"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
)

// TestRemoteWide names memory beyond 4 GiB, as a peer may export it: length, slices and binary form
// keep all bits.
func TestRemoteWide(t *testing.T) {
	const size = 5<<32 + 7
	wire, err := udat.RMRTriplet{TargetAddress: 1 << 40, SegmentLength: size, RMRContext: 9}.MarshalBinary()
	assert.NilError(t, err)
	var all Remote
	assert.NilError(t, all.UnmarshalBinary(wire))
	assert.Equal(t, all.Len(), uint64(size))
	again, err := all.MarshalBinary()
	assert.NilError(t, err)
	assert.DeepEqual(t, again, wire)
	tail, err := all.Slice(3<<32+1, 2<<32+6)
	assert.NilError(t, err)
	assert.Equal(t, tail.Len(), uint64(2<<32+6))
	assert.Equal(t, tail.t.TargetAddress, uint64(1<<40+3<<32+1))
	for _, bad := range [][2]uint64{{3<<32 + 1, 2<<32 + 7}, {size + 1, 0}, {1, math.MaxUint64}, {math.MaxUint64, 1}} {
		_, err := all.Slice(bad[0], bad[1])
		assert.Assert(t, err != nil, "%d bytes from %d", bad[1], bad[0])
	}
}

// TestAtomicsWide: all values of Conn's own calls have 64 bits, and so have the figures in the
// error of an invalid atomic.
func TestAtomicsWide(t *testing.T) {
	client, server := ends(t)
	word, err := server.NewRegion(make([]byte, 8), PeerAtomics)
	assert.NilError(t, err)
	const big = 1<<63 + 1<<32
	for _, want := range []uint64{0, big} {
		old, err := client.FetchAdd(t.Context(), word.Remote(), big-want)
		assert.NilError(t, err)
		assert.Equal(t, old, want)
	}
	for _, want := range []uint64{big, big + 1} { // with the first, the word has become what it should
		old, err := client.CompareSwap(t.Context(), word.Remote(), want, want+1)
		assert.NilError(t, err)
		assert.Equal(t, old, want)
	}
	old, err := client.CompareSwap(t.Context(), word.Remote(), 2, 1) // the low half is 2
	assert.NilError(t, err)
	assert.Equal(t, old, uint64(big+2))
	old, err = client.FetchAdd(t.Context(), word.Remote(), 0)
	assert.NilError(t, err)
	assert.Equal(t, old, uint64(big+2))
	wrong := Remote{udat.RMRTriplet{TargetAddress: 0x1_0000_0004, SegmentLength: 5<<32 + 7}}
	_, err = client.FetchAdd(t.Context(), wrong, 1)
	assert.ErrorContains(t, err, "an atomic of 21474836487 bytes at 0x100000004")
}

// TestStatsWide: no figure is cut to 32 bits, or takes another's place.
func TestStatsWide(t *testing.T) {
	const big = 1 << 40
	var c Conn
	c.in.read, c.in.placed = big+1, big+2
	c.out.position, c.out.appended, c.out.posted = big+3, 3*big+6, 2*big+2
	c.out.stalls, c.linger.lost = big+8, big+9
	c.out.limit = c.out.position + 100
	s := c.Stats()
	assert.DeepEqual(t, s, Stats{BytesRead: big + 1, BytesReceived: big + 2, BytesWritten: 2*big + 7, BytesSent: big + 3,
		Credit: 100, Stalls: big + 8, BytesLost: big + 9})
}
