package iwarp

import (
	"encoding/binary"
	"math/bits"
)

// Bits of a terminate message, which say what follows its first 4 bytes.
const (
	termLength = 0x80 // the length of the segment at fault
	termDDP    = 0x40 // the DDP header of that segment
	termRDMAP  = 0x20 // the RDMAP header of that segment, if it is a read request
	termAll    = termLength | termDDP | termRDMAP
)

// MaxTerminate is the largest payload that PutTerminate makes.
const MaxTerminate = 4 + lengthSize + untaggedSize + readRequestSize

// PutTerminate encodes the payload of an OpTerminate into b, which must have room for MaxTerminate
// bytes, and returns its size. The parameter frame is the beginning of the frame at fault: the
// length field and the headers, as far as they have come, and nothing that is not of this frame.
func PutTerminate(b []byte, f Fault, frame []byte) int {
	clear(b[:4])
	binary.BigEndian.PutUint16(b, uint16(f))
	if f.Layer() > 1 || len(frame) < PrefixSize {
		return 4
	}
	size := ddpEnd(frame)
	if len(frame) < size {
		return 4
	}
	b[2] = termLength | termDDP
	if n := size + readRequestSize; Opcode(frame[3]&rdmapOpcode) == OpReadRequest && len(frame) >= n {
		b[2] |= termRDMAP
		size = n
	}
	return 4 + copy(b[4:], frame[:size])
}

// ParseTerminate returns the reason in b, the payload of an OpTerminate. It ignores the headers of
// the segment at fault that may follow, because they are not trustworthy.
//
// On a little-endian host soft-iWARP (Linux 6.1) encodes the control word wrong. It swaps layer and
// type. It stores the header bits in the lowest bits of their byte, which are 0 by RFC 5040. If
// these bits are not 0, ParseTerminate decodes the word as soft-iWARP has encoded it.
func ParseTerminate(b []byte) (Fault, error) {
	if len(b) < 4 {
		return 0, fault(FaultLength, "a terminate of %d bytes", len(b))
	}
	layer, flags := b[0], b[2]
	if flags&termAll == 0 && bits.Reverse8(flags)&termAll != 0 {
		layer = layer>>4 | layer<<4
	}
	return Fault(layer)<<8 | Fault(b[1]), nil
}

// ddpEnd returns the size of a frame's length field and DDP header together.
func ddpEnd(frame []byte) int {
	if frame[2]&ddpTagged != 0 {
		return lengthSize + taggedSize
	}
	return lengthSize + untaggedSize
}
