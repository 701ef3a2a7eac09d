package verbsfabric

import "bytes"

// Private data on the wire.
//
// InfiniBand and RoCE carry private data in rooms of a fixed size and pad it with zeroes; the true length is lost. So the data
// goes first, raw, where every peer looks for it, and if at least 4 bytes of the room are left, the room's last 4 bytes
// are a trailer: 3 magic bytes and the length. A receiver that finds the trailer reports the data in its true length; one that does
// not (the peer is another program, or the data left no space) reports the whole room.
//
// In a connect request, whose room is 56 bytes: data of 0 to 52 bytes arrives in its true length; data of 53, 54 or 55 bytes arrives as
// 56 with zeroes at its end; data of 56 bytes arrives as it is, unless its own last 4 bytes happen to look like a trailer.
// In an accept, whose room is 196 bytes and whose data is 56 at most, the length is always true. A reject has a room of 148 bytes, of
// which the first 4 are the marker below: 0 to 140 bytes arrive in their true length, 141 to 143 as 144.
//
// iWARP tells the length, so there is no trailer there.
const (
	roomRequest = 56
	roomReply   = 196
	roomReject  = 148

	maxConnData   = roomRequest
	maxRejectData = roomReject - len(rejectMarker)

	trailerSize = 4
)

// rejectMarker comes first in a reject that the peer's consumer asked for; OpenFabrics DAPL sends the same.
const rejectMarker = "\x02\x00\x02\x00"

var trailerMagic = [3]byte{0xDA, 0x7A, 0xC3}

// pack fills a room with data and trailer; exact says that the transport keeps the length.
func pack(data []byte, room int, exact bool) []byte {
	if exact || len(data) > room-trailerSize {
		return data
	}
	b := make([]byte, room)
	copy(b, data)
	copy(b[room-trailerSize:], trailerMagic[:])
	b[room-1] = byte(len(data))
	return b
}

// unpack is the reverse of pack.
func unpack(b []byte, room int, exact bool) []byte {
	if exact || len(b) != room || !bytes.Equal(b[room-trailerSize:room-1], trailerMagic[:]) {
		return b
	}
	n := int(b[room-1])
	if n > room-trailerSize {
		return b
	}
	return b[:n:n]
}

// packReject makes the data of a reject that the consumer asked for.
func packReject(data []byte, exact bool) []byte {
	return pack(append([]byte(rejectMarker), data...), roomReject, exact)
}

// unpackReject tells a consumer's reject, and its data, from all others.
func unpackReject(b []byte, exact bool) (data []byte, byConsumer bool) {
	b = unpack(b, roomReject, exact)
	if !bytes.HasPrefix(b, []byte(rejectMarker)) {
		return nil, false
	}
	return b[len(rejectMarker):], true
}
