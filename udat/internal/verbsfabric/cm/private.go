package cm

import (
	"bytes"
	"errors"
	"strings"

	"github.com/godat/godat/cverbs"
)

// This is how private data is sent.
//
// InfiniBand and RoCE carry private data in a field of fixed size, padded with zeroes, so the
// length of the data is lost. Because the Consumer's data may fill the whole field, the length is
// sent outside the field. Requests and replies have 32 option bits of enhanced connection
// establishment (ECE). Peers without this library read these bits only if the message also names a
// vendor. An end of this library stores a tag and the length in these bits, with vendor 0. It does
// so in every request, and in the reply to a request that has a length. A reject has no option
// bits, but begins with a marker. If the request had a length, the marker is 3 magic bytes and the
// length of the reject's data. Else it is the marker of OpenFabrics DAPL.
//
// The length is missing if the peer's program does not use this library, or if either end has a
// kernel before 5.9 or an rdma-core before 31. Then the whole field is reported as the private
// data, as OpenFabrics DAPL does. iWARP itself carries the length.
const (
	roomRequest = 56
	roomReply   = 196
	roomReject  = 148

	// The messages of iWARP have room for 512 bytes. But the kernel can store a length of at most 255,
	// and 4 bytes of that length belong to the transport.
	maxDataIWARP = 255 - 4
)

// MaxPrivate returns how many bytes of private data a request, an accept and a consumer's reject
// can carry.
func MaxPrivate(iwarp bool) (connect, accept, reject int) {
	if iwarp {
		return maxDataIWARP, maxDataIWARP, maxDataIWARP - len(rejectMarker)
	}
	return roomRequest, roomReply, roomReject - len(rejectMarker)
}

// rejectMarker begins the data of a reject by the peer's consumer. OpenFabrics DAPL sends the same
// marker.
const rejectMarker = "\x02\x00\x02\x00"

// tag is the high byte of the ECE options that an end of this library sends. magicBytes come before
// the length in the marker of a reject between two such ends.
const (
	tag        = 0xDA
	magicBytes = "\xDA\x7A\xC3"
)

// noVendor is a vendor ID that arrives at the peer as 0, because the message carries only the low
// 24 bits. librdmacm does not send options whose vendor ID is 0.
const noVendor = 1 << 24

// tellLength makes the next request or reply of the id carry the length of its private data. On
// iWARP it does nothing, because iWARP itself carries the length.
func tellLength(id *cverbs.CMID, iwarp bool, private []byte) error {
	if iwarp {
		return nil
	}
	err := id.SetLocalECE(cverbs.ECE{VendorID: noVendor, Options: tag<<24 | uint32(len(private))})
	if errors.Is(err, cverbs.ErrNotSupported) {
		return nil
	}
	return err
}

// toldLength returns the length of private data that the peer's request or reply carries, or -1 if
// it carries no length.
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

// unpack returns the private data in room, the field of a message. The parameter n is the length of
// the data. If n is negative or too large, or if bytes other than 0 follow the data, unpack returns
// the whole field and true.
func unpack(room []byte, n int, iwarp bool) (data []byte, padded bool) {
	switch {
	case iwarp:
		return room, false
	case n < 0 || n > len(room) || len(bytes.TrimRight(room[n:], "\x00")) > 0:
		return room, true
	}
	return room[:n:n], false
}

// packReject returns the data of a consumer's reject, with its marker. The parameter sameLibrary is
// true if the peer's program uses this library.
func packReject(data []byte, sameLibrary bool) []byte {
	marker := []byte(rejectMarker)
	if sameLibrary {
		marker = append([]byte(magicBytes), byte(len(data)))
	}
	return append(marker, data...)
}

// unpackReject returns the data of a reject without its marker, and reports whether a consumer has
// sent the reject. The data of any other reject is the whole field, or nil if the field has only
// zeroes.
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
