package rdmanet

import (
	"encoding/binary"
	"fmt"
)

// kind is the type of a control message. It determines the meaning of control.value, which the
// comments below call value.
type kind byte

const (
	kindCredit kind = iota + 1 // value is the sender's incoming.window
	kindData                   // value is the number of bytes written into the ring; for devices without immediate data
	kindRing                   // the sender offers a larger ring, value is its address; the answer is kindMoved
	kindMoved                  // value is the position of the first byte in the larger ring
	kindFin                    // the sender's stream ends, value is its length in bytes
	kindClose                  // like kindFin, but the sender does not read any more either
	kindClosed                 // the answer to kindClose
	kinds
)

// control is a control message. It is sent with a Send operation, outside the stream.
type control struct {
	kind  kind
	slots uint32 // number of receives that the sender has reposted, modulo 2^32
	limit uint64 // position of the stream up to which the receiver may write
	value uint64
	key   uint32 // key of the offered ring; kindRing only
	size  int    // size of the offered ring; kindRing only
}

const controlSize = 32

func (m control) encode(b []byte) {
	_ = b[controlSize-1]
	binary.BigEndian.PutUint32(b, uint32(m.kind))
	binary.BigEndian.PutUint32(b[4:], m.slots)
	binary.BigEndian.PutUint64(b[8:], m.limit)
	binary.BigEndian.PutUint64(b[16:], m.value)
	binary.BigEndian.PutUint32(b[24:], m.key)
	binary.BigEndian.PutUint32(b[28:], uint32(m.size))
}

func decodeControl(b []byte) (control, error) {
	if len(b) != controlSize {
		return control{}, fmt.Errorf("a control message has %d bytes, must have %d", len(b), controlSize)
	}
	k := binary.BigEndian.Uint32(b)
	if k == 0 || k >= uint32(kinds) {
		return control{}, fmt.Errorf("control message of kind %d", k)
	}
	return control{
		kind: kind(k), slots: binary.BigEndian.Uint32(b[4:]), limit: binary.BigEndian.Uint64(b[8:]),
		value: binary.BigEndian.Uint64(b[16:]), key: binary.BigEndian.Uint32(b[24:]),
		size: int(binary.BigEndian.Uint32(b[28:])),
	}, nil
}

// The immediate data of a write has the number of bytes and the low bits of control.slots.
const (
	immLengthBits = 20
	immSlotsMask  = 1<<(32-immLengthBits) - 1
	maxChunk      = 1 << (immLengthBits - 1) // largest number of bytes of one write
)

func immediate(n int, slots uint32) uint32 { return slots<<immLengthBits | uint32(n) }

func fromImmediate(imm uint32) (n int, slots uint32) {
	return int(imm & (1<<immLengthBits - 1)), imm >> immLengthBits
}
