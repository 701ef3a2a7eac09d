package rdmanet

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// hello is the first information that each end sends to the other. The dialing end sends it in the
// private data of the connection request, and the accepting end sends it in the private data of the
// acceptance.
type hello struct {
	immediate bool // the device supports immediate data
	slots     int  // number of receives that are posted
	ring      remoteRing
}

// remoteRing describes the receive ring of one end. This end sends the description to the other
// end, which writes the stream into the ring.
type remoteRing struct {
	addr uint64
	key  uint32
	size int // bytes, a power of two
}

func (r remoteRing) check() error {
	switch {
	case r.size < minRing || r.size > maxRing || r.size&(r.size-1) != 0:
		return fmt.Errorf("the peer's ring has %d bytes, must be a power of two from %d to %d", r.size, minRing, maxRing)
	case r.addr+uint64(r.size) < r.addr:
		return errors.New("the peer's ring passes the end of the address space")
	}
	return nil
}

const (
	helloSize    = 28
	helloMagic   = 0x52444e34 // "RDN4": 4 is the version of the protocol
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
	binary.BigEndian.PutUint64(b[8:], h.ring.addr)
	binary.BigEndian.PutUint32(b[16:], h.ring.key)
	binary.BigEndian.PutUint64(b[20:], uint64(h.ring.size))
	return b
}

// decodeHello decodes and checks a peer's hello.
func decodeHello(b []byte) (hello, error) {
	if len(b) < helloSize || binary.BigEndian.Uint32(b)&^0xff != magicPrefix {
		return hello{}, errors.New("the peer is no program of package rdmanet")
	}
	if version := b[3]; version != helloMagic&0xff {
		return hello{}, fmt.Errorf("the peer speaks version %q of the protocol of rdmanet, this end %q", rune(version),
			rune(helloMagic&0xff))
	}
	h := hello{
		immediate: b[4]&flagImm != 0, slots: int(binary.BigEndian.Uint16(b[6:])),
		ring: remoteRing{
			addr: binary.BigEndian.Uint64(b[8:]), key: binary.BigEndian.Uint32(b[16:]),
			size: int(min(binary.BigEndian.Uint64(b[20:]), math.MaxInt64)),
		},
	}
	if h.slots < minSlots || h.slots > maxSlots {
		return hello{}, fmt.Errorf("the peer has %d receives, must be from %d to %d", h.slots, minSlots, maxSlots)
	}
	return h, h.ring.check()
}

// A refusal is the private data of a rejected request: the magic number, a code, and a text for
// people.
const (
	refusalHead = 5
	maxRefusal  = 120 // bytes of private data that every fabric transmits
	refusedBusy = 1   // try again later
	refusedFor  = 2   // trying again does not help
)

func encodeRefusal(code byte, why string) []byte {
	b := binary.BigEndian.AppendUint32(nil, helloMagic)
	b = append(b, code)
	return append(b, why[:min(len(why), maxRefusal-refusalHead)]...)
}

// decodeRefusal returns the text of a refusal, and whether the peer is only busy. The caller must
// quote the text, because it comes from the peer.
func decodeRefusal(b []byte) (why string, busy bool) {
	if len(b) >= refusalHead && binary.BigEndian.Uint32(b)&^0xff == magicPrefix {
		busy = b[4] == refusedBusy
		b = b[refusalHead:]
	}
	return string(bytes.TrimRight(b[:min(len(b), maxRefusal)], "\x00")), busy
}
