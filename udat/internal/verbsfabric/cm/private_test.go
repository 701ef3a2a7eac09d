package cm

import (
	"bytes"
	"testing"

	"gotest.tools/v3/assert"
	"pgregory.net/rapid"
)

// TestPrivateDataRoom unpacks data of every length and content from its padded field.
func TestPrivateDataRoom(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.SampledFrom([]int{roomRequest, roomReply}).Draw(t, "room")
		data := rapid.SliceOfN(rapid.Byte(), 0, size).Draw(t, "data")
		room := make([]byte, size)
		copy(room, data)
		got, padded := unpack(room, len(data), false)
		assert.Assert(t, bytes.Equal(got, data) && !padded && cap(got) == len(data))
		got, padded = unpack(room, -1, false)
		assert.Assert(t, bytes.Equal(got, room) && padded, "nobody has told the length")
		got, padded = unpack(data, -1, true)
		assert.Assert(t, bytes.Equal(got, data) && !padded, "iWARP")

		wire := make([]byte, roomReject)
		data = data[:min(len(data), roomReject-len(rejectMarker))]
		copy(wire, packReject(data, true))
		got, padded, byConsumer := unpackReject(wire, false)
		assert.Assert(t, bytes.Equal(got, data) && !padded && byConsumer)
	})
}

// TestPrivateDataLies: a length that contradicts the contents of the field is ignored.
func TestPrivateDataLies(t *testing.T) {
	room := append([]byte("raw data"), make([]byte, roomRequest-8)...)
	for _, n := range []int{-1, 0, 7, roomRequest + 1, 255} {
		got, padded := unpack(room, n, false)
		assert.Assert(t, bytes.Equal(got, room) && padded, "%d", n)
	}
	for _, n := range []int{8, 9, roomRequest} {
		got, padded := unpack(room, n, false)
		assert.Assert(t, bytes.Equal(got, room[:n]) && !padded, "%d", n)
	}
	got, padded := unpack(nil, -1, false)
	assert.Assert(t, len(got) == 0 && padded)

	wire := append([]byte("\xDA\x7A\xC3\x02yes"), make([]byte, roomReject-7)...)
	_, _, byConsumer := unpackReject(wire, false)
	assert.Assert(t, !byConsumer, "there are 3 bytes, not 2")
	wire[3] = 255
	_, _, byConsumer = unpackReject(wire, false)
	assert.Assert(t, !byConsumer)
}

func TestRejectMarker(t *testing.T) {
	wire := packReject([]byte("busy"), false)
	assert.Equal(t, string(wire), "\x02\x00\x02\x00busy", "the bytes of OpenFabrics DAPL")
	data, padded, byConsumer := unpackReject(wire, true)
	assert.Assert(t, byConsumer && !padded, "iWARP")
	assert.Equal(t, string(data), "busy")
	// The format of OpenFabrics DAPL: marker, data, padding.
	wire = append([]byte{2, 0, 2, 0, 'n', 'o'}, make([]byte, roomReject-6)...)
	data, padded, byConsumer = unpackReject(wire, false)
	assert.Assert(t, byConsumer && padded)
	assert.Assert(t, bytes.Equal(data, wire[4:]))
	for _, other := range [][]byte{nil, make([]byte, roomReject)} {
		data, padded, byConsumer = unpackReject(other, false)
		assert.Assert(t, !byConsumer && !padded && data == nil, "%x", other)
	}
	for _, other := range [][]byte{{2, 0, 2}, {2, 0, 2, 1, 0}, {0xDA, 0x7A, 0xC3}, []byte("go away")} {
		data, padded, byConsumer = unpackReject(other, false)
		assert.Assert(t, !byConsumer && padded && bytes.Equal(data, other), "%x", other)
	}
	assert.Assert(t, isConsumerReject(28) && isConsumerReject(-111) && !isConsumerReject(8))
}
