package udat_test

import (
	"encoding"
	"math"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
)

var (
	_ encoding.BinaryAppender    = udat.RMRTriplet{}
	_ encoding.BinaryMarshaler   = udat.RMRTriplet{}
	_ encoding.BinaryUnmarshaler = &udat.RMRTriplet{}
)

// The wire form has a fixed layout in network byte order, is appended after the contents of the
// buffer, and decodes to the same triplet.
func TestRMRTripletWire(t *testing.T) {
	withoutDevice(t)
	sent := udat.RMRTriplet{RMRContext: 0x01020304, TargetAddress: 0x1112131415161718, SegmentLength: 0x2122232425262728}
	want := "\x01\x02\x03\x04\x11\x12\x13\x14\x15\x16\x17\x18\x21\x22\x23\x24\x25\x26\x27\x28"
	b, err := sent.AppendBinary([]byte("before"))
	assert.NilError(t, err)
	assert.Equal(t, string(b), "before"+want)
	b, err = sent.MarshalBinary()
	assert.NilError(t, err)
	assert.Equal(t, string(b), want)
	assert.Equal(t, len(b), udat.RMRTripletSize)
	var got udat.RMRTriplet
	assert.NilError(t, got.UnmarshalBinary(b))
	assert.Equal(t, got, sent)
}

// A wire form of another length, and memory that wraps around the address space, are refused and
// change nothing.
func TestRMRTripletHostile(t *testing.T) {
	withoutDevice(t)
	before := udat.RMRTriplet{RMRContext: 7}
	for n := range 3 * udat.RMRTripletSize {
		if n != udat.RMRTripletSize {
			got := before
			refused(t, got.UnmarshalBinary(make([]byte, n)), udat.InvalidParameter, udat.SubArg2)
			assert.Equal(t, got, before)
		}
	}
	for _, c := range []struct {
		addr, n uint64
		good    bool
	}{
		{0, 0, true}, {0, math.MaxUint64, true}, {math.MaxUint64, 0, true}, {math.MaxUint64, 1, true},
		{math.MaxUint64, 2, false}, {math.MaxUint64 - 9, 10, true}, {math.MaxUint64 - 9, 11, false},
		{1, math.MaxUint64, true},
		{2, math.MaxUint64, false},
	} {
		b, err := udat.RMRTriplet{RMRContext: 1, TargetAddress: c.addr, SegmentLength: c.n}.MarshalBinary()
		assert.NilError(t, err)
		got := before
		if err := got.UnmarshalBinary(b); !c.good {
			refused(t, err, udat.InvalidParameter, udat.SubArg2)
			assert.Equal(t, got, before)
		} else {
			assert.NilError(t, err, "%+v", c)
		}
	}
}
