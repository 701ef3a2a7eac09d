package cm

import (
	"bytes"
	"strings"

	"github.com/godat/godat/cverbs"
)

// Private data on the wire.
//
// InfiniBand and RoCE carry private data in fields of a fixed size, padded with zeroes, so its
// length is lost. The Consumer's data has the whole field; the length goes elsewhere. Requests and
// replies have 32 option bits of enhanced connection establishment (ECE), which only peers that
// name a vendor read. Ends of this library store a tag and the length there, with vendor 0: in
// every request, and in the reply to a request that has them. A reject has no option bits. If the
// request had a length, the marker below is 3 magic bytes and the length, else it is that of
// OpenFabrics DAPL.
//
// Private data without a length is reported as the whole field, as OpenFabrics DAPL does: the peer
// is another program, or either end has a kernel before 5.9. iWARP carries the length itself.
const (
	roomRequest = 56
	roomReply   = 196
	roomReject  = 148

	// iWARP's messages have room for 512 bytes, but the kernel stores a length of at most 255, which
	// includes 4 bytes of the transport.
	maxDataIWARP = 255 - 4
)

// MaxPrivate returns how many bytes of private data a request, an accept and a consumer's reject
// carry.
func MaxPrivate(iwarp bool) (connect, accept, reject int) {
	if iwarp {
		return maxDataIWARP, maxDataIWARP, maxDataIWARP - len(rejectMarker)
	}
	return roomRequest, roomReply, roomReject - len(rejectMarker)
}

// rejectMarker begins a reject by the peer's consumer; OpenFabrics DAPL sends the same.
const rejectMarker = "\x02\x00\x02\x00"

// tag is the high byte of the ECE options between ends of this library; magicBytes precede the
// length in their reject marker.
const (
	tag        = 0xDA
	magicBytes = "\xDA\x7A\xC3"
)

// noVendor is no vendor's number: the wire carries the low 24 bits, and librdmacm refuses to send
// options with 0.
const noVendor = 1 << 24

// tellLength makes the id's next request or reply carry the length of its private data. iWARP
// carries the length anyway.
func tellLength(id *cverbs.CMID, iwarp bool, private []byte) error {
	if iwarp {
		return nil
	}
	return id.SetLocalECE(cverbs.ECE{VendorID: noVendor, Options: tag<<24 | uint32(len(private))})
}

// toldLength returns the length in the peer's request or reply, -1 for none.
func toldLength(id *cverbs.CMID, iwarp bool) int {
	if iwarp {
		return -1
	}
	e, err := id.RemoteECE()
	if err != nil || e.VendorID != 0 || e.Options>>24 != tag {
		return -1
	}
	return int(e.Options & 0xFF)
}

// unpack returns private data of length n from its room. padded reports that the length is unknown,
// or contradicts the room.
func unpack(room []byte, n int, iwarp bool) (data []byte, padded bool) {
	switch {
	case iwarp:
		return room, false
	case n < 0 || n > len(room) || len(bytes.TrimRight(room[n:], "\x00")) > 0:
		return room, true
	}
	return room[:n:n], false
}

// packReject returns the data of a consumer's reject; told reports that the peer is an end of this
// library.
func packReject(data []byte, told bool) []byte {
	marker := []byte(rejectMarker)
	if told {
		marker = append([]byte(magicBytes), byte(len(data)))
	}
	return append(marker, data...)
}

// unpackReject reports whether a reject is a consumer's, and returns its data. Other rejects may
// have data too: without a marker and whole, nil if it is all padding.
func unpackReject(room []byte, iwarp bool) (data []byte, padded, byConsumer bool) {
	n := len(rejectMarker)
	switch {
	case bytes.HasPrefix(room, []byte(rejectMarker)):
		data, padded = unpack(room[n:], -1, iwarp)
		return data, padded, true
	case !iwarp && len(room) >= n && strings.HasPrefix(string(room), magicBytes):
		if data, padded = unpack(room[n:], int(room[n-1]), false); !padded {
			return data, false, true
		}
	}
	if len(bytes.TrimRight(room, "\x00")) == 0 {
		return nil, false, false
	}
	return room, !iwarp, false
}
