package udat

import (
	"encoding/binary"
	"math"
)

// RMRTripletSize is the length of an [RMRTriplet] on the wire, in bytes.
const RMRTripletSize = 20

// AppendBinary appends the wire form of the triplet to b: RMRContext in 4 bytes, TargetAddress in 8
// and SegmentLength in 8, each in network byte order. The form is this library's own: DAT leaves it
// to the programs. It fits into the private data of a connect or an accept on every fabric. The
// error is always nil.
//
// Extension.
func (t RMRTriplet) AppendBinary(b []byte) ([]byte, error) {
	b = binary.BigEndian.AppendUint32(b, t.RMRContext)
	b = binary.BigEndian.AppendUint64(b, t.TargetAddress)
	return binary.BigEndian.AppendUint64(b, t.SegmentLength), nil
}

// MarshalBinary returns the wire form that [RMRTriplet.AppendBinary] appends. The error is always
// nil.
//
// Extension.
func (t RMRTriplet) MarshalBinary() ([]byte, error) {
	return t.AppendBinary(make([]byte, 0, RMRTripletSize))
}

// UnmarshalBinary reads the wire form, which must be [RMRTripletSize] bytes long; cut the padding
// off private data that may have some. InvalidParameter also if the memory would reach beyond the
// end of the address space. An error leaves the triplet unchanged. Whether the peer grants the
// memory shows only in the transfer: a false triplet breaks the connection and harms nothing else.
// Compare SegmentLength with what is to be transferred.
//
// Extension.
func (t *RMRTriplet) UnmarshalBinary(b []byte) error {
	const op = "rmr_triplet_unmarshal"
	if len(b) != RMRTripletSize {
		return fail(op, InvalidParameter, SubArg2, "the wire form is %d bytes, it must have %d", len(b), RMRTripletSize)
	}
	got := RMRTriplet{
		RMRContext:    binary.BigEndian.Uint32(b),
		TargetAddress: binary.BigEndian.Uint64(b[4:]),
		SegmentLength: binary.BigEndian.Uint64(b[12:]),
	}
	if got.SegmentLength > 0 && got.SegmentLength-1 > math.MaxUint64-got.TargetAddress {
		return fail(op, InvalidParameter, SubArg2, "%d bytes at 0x%x reach beyond the end of the address space",
			got.SegmentLength, got.TargetAddress)
	}
	*t = got
	return nil
}
