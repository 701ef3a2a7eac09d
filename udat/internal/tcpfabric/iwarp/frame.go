package iwarp

import (
	"encoding/binary"
	"hash/crc32"
)

// Limits of a frame.
const (
	MaxSegment = 1<<16 - 1 // headers and payload
	MaxTrailer = 3 + crcSize
	MinMSS     = 128 // SegmentLimit replaces a smaller mss by this
)

// SegmentLimit returns the size of the largest segment whose frame has no padding and at most mss
// bytes. If mss is less than MinMSS, it uses MinMSS.
func SegmentLimit(mss int) int {
	frame := min(max(mss, MinMSS), lengthSize+MaxSegment+crcSize)
	return frame - frame%4 - lengthSize - crcSize
}

// PayloadLimit returns how much payload a segment of op can have, if the segment has at most limit
// bytes and its frame has no padding. All segments of a message except the last should have exactly
// this much payload.
func PayloadLimit(op Opcode, limit int) int {
	return limit - (lengthSize+limit)%4 - ddpSize(op)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Checksum adds b to the checksum of a frame. The first call for a frame has sum 0, and b begins
// with the frame's length field.
func Checksum(sum uint32, b []byte) uint32 { return crc32.Update(sum, castagnoli, b) }

// padding returns the number of bytes between the payload and the checksum.
func padding(segment int) int { return -(lengthSize + segment) & 3 }

// TrailerSize returns the number of bytes that follow a segment whose headers and payload have the
// given length.
func TrailerSize(length int) int { return padding(length) + crcSize }

// PutTrailer writes into b what follows a segment of the given length, and returns the number of
// bytes that it has written. b must have room for MaxTrailer bytes. The parameter sum is the
// Checksum of the length field and the segment. If crc is false, the checksum field is 0.
func PutTrailer(b []byte, segment int, sum uint32, crc bool) int {
	pad := padding(segment)
	*(*[MaxTrailer]byte)(b) = [MaxTrailer]byte{}
	if crc {
		binary.LittleEndian.PutUint32(b[pad:], Checksum(sum, b[:pad]))
	}
	return pad + crcSize
}

// CheckTrailer checks the checksum in b, the TrailerSize bytes that follow a segment. The parameter
// sum is the Checksum of the length field and the segment. It returns FaultCRC if the checksum is
// wrong.
func CheckTrailer(b []byte, sum uint32) error {
	pad := len(b) - crcSize
	if binary.LittleEndian.Uint32(b[pad:]) != Checksum(sum, b[:pad]) {
		return FaultCRC
	}
	return nil
}
