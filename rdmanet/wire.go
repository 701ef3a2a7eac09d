package rdmanet

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// hello is what each end tells the other when it connects, in the private data of the request and
// of its accept.
type hello struct {
	immediate bool   // the device has immediate data
	slots     int    // receives that are posted
	ringAddr  uint64 // the ring into which the other end writes
	ringKey   uint32
	ringSize  int // bytes, a power of two
}

const (
	helloSize    = 28
	helloMagic   = 0x52444e32 // "RDN2": the number is the version of the protocol
	magicPrefix  = 0x52444e00
	flagImm      = 1
	minRing      = 4 << 10
	maxRing      = 1 << 30
	minSlots     = 16
	maxSlots     = 1024
	defaultSlots = 32
)

func (h hello) encode() []byte {
	b := make([]byte, helloSize)
	binary.BigEndian.PutUint32(b, helloMagic)
	if h.immediate {
		b[4] = flagImm
	}
	binary.BigEndian.PutUint16(b[6:], uint16(h.slots))
	binary.BigEndian.PutUint64(b[8:], h.ringAddr)
	binary.BigEndian.PutUint32(b[16:], h.ringKey)
	binary.BigEndian.PutUint64(b[20:], uint64(h.ringSize))
	return b
}

// decodeHello reads and checks a peer's hello.
func decodeHello(b []byte) (hello, error) {
	if len(b) < helloSize || binary.BigEndian.Uint32(b)&^0xff != magicPrefix {
		return hello{}, errors.New("the peer is no program of package rdmanet")
	}
	if version := b[3]; version != helloMagic&0xff {
		return hello{}, fmt.Errorf("the peer speaks version %q of the protocol of rdmanet, this end %q", rune(version),
			rune(helloMagic&0xff))
	}
	size := binary.BigEndian.Uint64(b[20:])
	h := hello{
		immediate: b[4]&flagImm != 0, slots: int(binary.BigEndian.Uint16(b[6:])),
		ringAddr: binary.BigEndian.Uint64(b[8:]), ringKey: binary.BigEndian.Uint32(b[16:]), ringSize: int(size),
	}
	switch {
	case size < minRing || size > maxRing || size&(size-1) != 0:
		return hello{}, fmt.Errorf("the peer's ring has %d bytes, must be a power of two from %d to %d", size, minRing,
			maxRing)
	case h.slots < minSlots || h.slots > maxSlots:
		return hello{}, fmt.Errorf("the peer has %d receives, must be from %d to %d", h.slots, minSlots, maxSlots)
	case h.ringAddr+size < h.ringAddr:
		return hello{}, errors.New("the peer's ring passes the end of the address space")
	}
	return h, nil
}

// kind is what a control message says.
type kind byte

const (
	kindCredit kind = iota + 1 // value is the window: the bytes that may be placed and not read
	kindData                   // value bytes have been written into the ring, on devices without immediate data
	kindFin                    // the stream ends after value bytes
	kindClose                  // as kindFin, and the end reads no more
	kindClosed                 // the answer to kindClose
	kindPing
	kindPong
	kinds
)

// control is a message beside the stream, in a Send.
type control struct {
	kind  kind
	slots uint32 // receives of the sender that have been posted again, modulo 2^32
	limit uint64 // position of the stream up to which the receiver may write
	value uint64
}

const controlSize = 24

func (m control) encode(b []byte) {
	_ = b[controlSize-1]
	binary.BigEndian.PutUint32(b, uint32(m.kind))
	binary.BigEndian.PutUint32(b[4:], m.slots)
	binary.BigEndian.PutUint64(b[8:], m.limit)
	binary.BigEndian.PutUint64(b[16:], m.value)
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
		value: binary.BigEndian.Uint64(b[16:]),
	}, nil
}

// The immediate data of a write: the number of bytes, and the low bits of control.slots.
const (
	immLengthBits = 20
	immSlotsMask  = 1<<(32-immLengthBits) - 1
	maxChunk      = 1 << (immLengthBits - 1) // bytes of one write
)

func immediate(n int, slots uint32) uint32 { return slots<<immLengthBits | uint32(n) }

func fromImmediate(imm uint32) (n int, slots uint32) {
	return int(imm & (1<<immLengthBits - 1)), imm >> immLengthBits
}
