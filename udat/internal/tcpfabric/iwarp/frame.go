package iwarp

import (
	"encoding/binary"
	"hash/crc32"
)

// Limits of a frame.
const (
	MaxSegment = 1<<16 - 1 // headers and payload
	MaxTrailer = 3 + crcSize
	MinMSS     = 128 // SegmentLimit takes a smaller one for this
)

// SegmentLimit returns the largest segment whose frame fits into mss bytes without padding, but
// not less than for MinMSS.
func SegmentLimit(mss int) int {
	frame := min(max(mss, MinMSS), lengthSize+MaxSegment+crcSize)
	return frame - frame%4 - lengthSize - crcSize
}

// PayloadLimit returns the most payload of a segment of at most limit bytes that needs no padding.
// All segments of a message but the last should be that large.
func PayloadLimit(op Opcode, limit int) int {
	return limit - (lengthSize+limit)%4 - ddpSize(op)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Checksum continues the checksum of a frame, which begins with 0 and its length field, with b.
func Checksum(sum uint32, b []byte) uint32 { return crc32.Update(sum, castagnoli, b) }

// padding returns the bytes between the payload and the checksum.
func padding(segment int) int { return -(lengthSize + segment) & 3 }

// TrailerSize returns the bytes that follow a segment, headers and payload, of the length.
func TrailerSize(segment int) int { return padding(segment) + crcSize }

// PutTrailer writes what follows a segment of the length into b, which has room for MaxTrailer
// bytes, and returns their number. sum is the Checksum of the rest of the frame; without crc the
// field is 0.
func PutTrailer(b []byte, segment int, sum uint32, crc bool) int {
	pad := padding(segment)
	*(*[MaxTrailer]byte)(b) = [MaxTrailer]byte{}
	if crc {
		binary.LittleEndian.PutUint32(b[pad:], Checksum(sum, b[:pad]))
	}
	return pad + crcSize
}

// CheckTrailer checks the checksum in b, the TrailerSize bytes behind a segment. sum is the
// Checksum of the rest of the frame. The error is FaultCRC.
func CheckTrailer(b []byte, sum uint32) error {
	pad := len(b) - crcSize
	if binary.LittleEndian.Uint32(b[pad:]) != Checksum(sum, b[:pad]) {
		return FaultCRC
	}
	return nil
}
