package verbsfabric

import (
	"bytes"
	"testing"

	"gotest.tools/v3/assert"
	"pgregory.net/rapid"
)

// What leaves 4 bytes of its room arrives as it was; what does not arrives with the room's padding.
func TestPrivateDataRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		room := rapid.SampledFrom([]int{roomRequest, roomReply, roomReject}).Draw(t, "room")
		data := rapid.SliceOfN(rapid.Byte(), 0, min(room, maxRejectData)).Draw(t, "data")
		wire := make([]byte, room)
		copy(wire, pack(data, room, false))
		got := unpack(wire, room, false)
		if len(data) <= room-trailerSize {
			assert.Assert(t, bytes.Equal(got, data))
			return
		}
		assert.Assert(t, bytes.Equal(got[:min(len(data), len(got))], data[:min(len(data), len(got))]))
	})
}

func TestPrivateDataOfOtherPrograms(t *testing.T) {
	room := append([]byte("raw data"), make([]byte, roomRequest-8)...)
	assert.Assert(t, bytes.Equal(unpack(room, roomRequest, false), room), "without a trailer the whole room is reported")
	assert.Equal(t, len(unpack(nil, roomRequest, false)), 0)
	assert.Equal(t, string(unpack([]byte("short"), roomRequest, false)), "short")

	lie := pack(nil, roomRequest, false)
	lie[roomRequest-1] = roomRequest - trailerSize + 1
	assert.Equal(t, len(unpack(lie, roomRequest, false)), roomRequest, "a length that the room cannot hold is no trailer")

	c := pack([]byte("for a C peer"), roomRequest, false)
	assert.Equal(t, string(c[:12]), "for a C peer", "the data comes first")
	assert.Equal(t, string(pack([]byte("iWARP"), roomRequest, true)), "iWARP", "where the transport keeps the length nothing is added")
}

func TestRejectMarker(t *testing.T) {
	for _, exact := range []bool{false, true} {
		wire := packReject([]byte("busy"), exact)
		assert.Assert(t, bytes.HasPrefix(wire, []byte{2, 0, 2, 0, 'b', 'u', 's', 'y'}), "the bytes of OpenFabrics DAPL")
		data, ok := unpackReject(wire, exact)
		assert.Assert(t, ok)
		assert.Equal(t, string(data), "busy")
	}
	// OpenFabrics DAPL's own: marker, data, padding.
	wire := append([]byte{2, 0, 2, 0, 'n', 'o'}, make([]byte, roomReject-6)...)
	data, ok := unpackReject(wire, false)
	assert.Assert(t, ok)
	assert.Equal(t, len(data), maxRejectData)
	for _, other := range [][]byte{nil, make([]byte, roomReject), {2, 0, 2}, {2, 0, 2, 1, 0}} {
		_, ok := unpackReject(other, false)
		assert.Assert(t, !ok, "%x", other)
	}
	assert.Assert(t, isConsumerReject(28) && isConsumerReject(-111) && !isConsumerReject(8))
}
