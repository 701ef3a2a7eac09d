package iwarp

import (
	"encoding/binary"
	"math"
)

// PrefixSize is the number of bytes of a frame that HeaderSize needs.
const PrefixSize = 4

// Header is what precedes the payload of a frame. Op determines which fields are used. Parse sets
// the others to 0, and Put ignores them.
type Header struct {
	Op      Opcode
	Last    bool // the last segment of its message; Put sets it for messages of one segment
	Payload int  // bytes of this segment's payload

	// Untagged messages.
	MSN uint32 // the number of the message in its queue
	MO  uint32 // the offset of the payload in the message
	// Word is the key to invalidate (OpSendInv, OpSendSEInv) or the immediate data (OpSendImm,
	// OpSendSEImm). In OpSend and OpSendSE, between two ends of this library, it is the value of the
	// function Word.
	Word uint32

	// Key and Offset name memory of the receiver: the memory that the payload goes to (OpWrite,
	// OpReadResponse), the memory to read (OpReadRequest), or the word (OpAtomicRequest).
	Key    uint32
	Offset uint64

	// OpReadRequest: where the answer goes.
	SinkKey    uint32
	SinkOffset uint64
	Length     uint32

	Atomic  Atomic // OpAtomicRequest
	ID      uint32 // OpAtomicRequest, OpAtomicResponse: identifies the request
	Operand uint64 // OpAtomicRequest: what is added, or the new value
	Compare uint64 // OpAtomicRequest with CmpSwap: what the word is compared with

	// Value is the old value in an OpAtomicResponse, the data of an OpImmediate or OpImmediateSE,
	// or the value of an OpControl.
	Value   uint64
	Control Control // OpControl
}

// Atomic is the kind of an atomic operation.
type Atomic uint8

// The atomic operations, on words of 64 bits. Masks are not supported.
const (
	FetchAdd Atomic = 0
	CmpSwap  Atomic = 2
)

// HeaderSize returns the size of a frame's headers, including its length field. The parameter
// prefix is the frame's first PrefixSize bytes. The parameter extended is true if both ends run
// this library. If they do not, an opcode beyond RFC 5040 is a fault.
func HeaderSize(prefix []byte, extended bool) (int, error) {
	segment := int(binary.BigEndian.Uint16(prefix))
	if segment < lengthSize {
		return 0, fault(FaultLength, "a segment of %d bytes", segment)
	}
	ddp, rdmap := prefix[2], prefix[3]
	op := Opcode(rdmap & rdmapOpcode)
	f := &forms[op]
	tagged := ddp&ddpTagged != 0
	switch {
	case ddp&ddpVersions != ddpVersion && tagged:
		return 0, fault(FaultTaggedVersion, "%d", ddp&ddpVersions)
	case ddp&ddpVersions != ddpVersion:
		return 0, fault(FaultUntaggedVersion, "%d", ddp&ddpVersions)
	case rdmap&rdmapVersions != rdmapVersion:
		return 0, fault(FaultVersion, "%d", rdmap>>6)
	case f.name == "", f.extended && !extended:
		return 0, fault(FaultOpcode, "%d (%v)", op, op)
	case f.tagged != tagged:
		return 0, fault(FaultOpcode, "%v, tagged is %t", op, tagged)
	}
	head := ddpSize(op) + f.header
	if segment < head || segment > head && !f.data {
		return 0, fault(FaultLength, "a %v of %d bytes, its headers have %d", op, segment, head)
	}
	return lengthSize + head, nil
}

// Parse decodes b, the headers of a frame. HeaderSize must have accepted the frame and returned the
// length of b. Parse checks what does not depend on the state of the connection: that no offset
// plus length overflows, and that a message that must be one segment is one segment.
func (h *Header) Parse(b []byte, extended bool) error {
	queue := h.parseDDP(b, extended)
	h.Payload = lengthSize + int(binary.BigEndian.Uint16(b)) - len(b)
	f := &forms[h.Op]
	switch {
	case h.Offset > math.MaxUint64-uint64(h.Payload): // without a tag the offset is 0
		return fault(FaultTaggedWrap, "0x%x and %d bytes", h.Offset, h.Payload)
	case f.tagged:
		return nil
	case queue != f.queue:
		return fault(FaultQueue, "%d for a %v", queue, h.Op)
	case h.MO > math.MaxUint32-uint32(h.Payload), f.whole && h.MO != 0:
		return fault(FaultMO, "%d and %d bytes of a %v", h.MO, h.Payload, h.Op)
	case f.whole && !h.Last:
		return fault(FaultLength, "a %v in several segments", h.Op)
	}
	return h.parseRDMAP(b[lengthSize+untaggedSize:])
}

// parseDDP decodes DDP's header, without checks, and returns the queue.
func (h *Header) parseDDP(b []byte, extended bool) Queue {
	*h = Header{Op: Opcode(b[3] & rdmapOpcode), Last: b[2]&ddpLast != 0}
	if b[2]&ddpTagged != 0 {
		h.Key, h.Offset = binary.BigEndian.Uint32(b[4:]), binary.BigEndian.Uint64(b[8:])
		return 0
	}
	if forms[h.Op].word && (extended || !h.Op.Acknowledges()) {
		h.Word = binary.BigEndian.Uint32(b[4:])
	}
	h.MSN, h.MO = binary.BigEndian.Uint32(b[12:]), binary.BigEndian.Uint32(b[16:])
	return Queue(binary.BigEndian.Uint32(b[8:]))
}

// parseRDMAP decodes RDMAP's header, which follows DDP's.
func (h *Header) parseRDMAP(b []byte) error {
	switch h.Op {
	case OpReadRequest:
		h.SinkKey, h.SinkOffset = binary.BigEndian.Uint32(b), binary.BigEndian.Uint64(b[4:])
		h.Length = binary.BigEndian.Uint32(b[12:])
		h.Key, h.Offset = binary.BigEndian.Uint32(b[16:]), binary.BigEndian.Uint64(b[20:])
		if max(h.SinkOffset, h.Offset) > math.MaxUint64-uint64(h.Length) {
			return fault(FaultWrap, "0x%x to 0x%x, %d bytes", h.Offset, h.SinkOffset, h.Length)
		}
	case OpImmediate, OpImmediateSE:
		h.Value = binary.BigEndian.Uint64(b)
	case OpAtomicRequest:
		h.Atomic, h.ID = Atomic(b[3]&15), binary.BigEndian.Uint32(b[4:])
		h.Key, h.Offset = binary.BigEndian.Uint32(b[8:]), binary.BigEndian.Uint64(b[12:])
		h.Operand, h.Compare = binary.BigEndian.Uint64(b[20:]), binary.BigEndian.Uint64(b[36:])
		mask, compareMask := binary.BigEndian.Uint64(b[28:]), binary.BigEndian.Uint64(b[44:])
		switch {
		case h.Offset > math.MaxUint64-8:
			return fault(FaultWrap, "0x%x and 8 bytes", h.Offset)
		case h.Atomic == FetchAdd && mask == 0:
			h.Compare = 0 // not used, so its mask is not checked
		case h.Atomic == CmpSwap && mask == math.MaxUint64 && compareMask == math.MaxUint64:
		default:
			return fault(FaultOperation, "atomic %d with masks 0x%x and 0x%x", h.Atomic, mask, compareMask)
		}
	case OpAtomicResponse:
		h.ID, h.Value = binary.BigEndian.Uint32(b), binary.BigEndian.Uint64(b[4:])
	case OpControl:
		h.Control, h.Value = Control(b[0]), binary.BigEndian.Uint64(b[4:])
		if h.Control >= controls {
			return fault(FaultOperation, "%v", h.Control)
		}
	}
	return nil
}

// Put encodes the headers into b, which must have room for MaxHeader bytes, and returns their size.
// Headers and payload together must have at most MaxSegment bytes.
func (h *Header) Put(b []byte) int {
	f := &forms[h.Op&15]
	head := ddpSize(h.Op) + f.header
	b = b[:MaxHeader]
	binary.BigEndian.PutUint16(b, uint16(head+h.Payload))
	b[2], b[3] = ddpVersion, rdmapVersion|byte(h.Op)
	if h.Last || f.whole {
		b[2] |= ddpLast
	}
	if f.tagged {
		b[2] |= ddpTagged
		binary.BigEndian.PutUint32(b[4:], h.Key)
		binary.BigEndian.PutUint64(b[8:], h.Offset)
		return lengthSize + head
	}
	word := uint32(0)
	if f.word {
		word = h.Word
	}
	binary.BigEndian.PutUint32(b[4:], word)
	binary.BigEndian.PutUint32(b[8:], uint32(f.queue))
	binary.BigEndian.PutUint32(b[12:], h.MSN)
	binary.BigEndian.PutUint32(b[16:], h.MO)
	h.putRDMAP(b[lengthSize+untaggedSize:])
	return lengthSize + head
}

func (h *Header) putRDMAP(b []byte) {
	switch h.Op {
	case OpReadRequest:
		binary.BigEndian.PutUint32(b, h.SinkKey)
		binary.BigEndian.PutUint64(b[4:], h.SinkOffset)
		binary.BigEndian.PutUint32(b[12:], h.Length)
		binary.BigEndian.PutUint32(b[16:], h.Key)
		binary.BigEndian.PutUint64(b[20:], h.Offset)
	case OpImmediate, OpImmediateSE:
		binary.BigEndian.PutUint64(b, h.Value)
	case OpAtomicRequest:
		mask, compare := uint64(0), uint64(0)
		if h.Atomic == CmpSwap {
			mask, compare = math.MaxUint64, h.Compare
		}
		binary.BigEndian.PutUint32(b, uint32(h.Atomic))
		binary.BigEndian.PutUint32(b[4:], h.ID)
		binary.BigEndian.PutUint32(b[8:], h.Key)
		binary.BigEndian.PutUint64(b[12:], h.Offset)
		binary.BigEndian.PutUint64(b[20:], h.Operand)
		binary.BigEndian.PutUint64(b[28:], mask)
		binary.BigEndian.PutUint64(b[36:], compare)
		binary.BigEndian.PutUint64(b[44:], mask)
	case OpAtomicResponse:
		binary.BigEndian.PutUint32(b, h.ID)
		binary.BigEndian.PutUint64(b[4:], h.Value)
	case OpControl:
		binary.BigEndian.PutUint32(b, uint32(h.Control)<<24)
		binary.BigEndian.PutUint64(b[4:], h.Value)
	}
}
