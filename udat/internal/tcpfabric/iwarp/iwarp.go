// Package iwarp encodes and decodes what iWARP sends over a TCP connection: the set-up of MPA (RFC
// 5044 and 6581), its frames (FPDUs), and the headers of DDP and RDMAP (RFC 5041, 5040 and 7306).
// Package tcpfabric uses it.
//
// The package has no state, no goroutine and no connection; its functions may be called
// concurrently. Encoders write into the caller's bytes. Decoders check everything that can be
// checked without state. Their errors wrap a [Fault], which is the reason to send to the peer in a
// terminate message. The caller checks what needs state: message numbers, offsets within a message,
// keys, rights, and the number of requests in flight.
//
// A frame is sent as three parts, so that its payload need not be copied:
//
//	n := h.Put(head[:])                          // the frame's length and the headers
//	sum := iwarp.Checksum(0, head[:n])           // only if the connection has checksums
//	sum = iwarp.Checksum(sum, payload)
//	segment := n - 2 + h.Payload                 // without the length field, which has 2 bytes
//	m := iwarp.PutTrailer(tail[:], segment, sum, true)
//	buffers := net.Buffers{head[:n], payload, tail[:m]}
//
// A frame is received in the same three parts. HeaderSize returns the size of the headers, from the
// first PrefixSize bytes. Header.Parse sets Header.Payload, the size of the payload. TrailerSize
// returns the size of the trailer.
//
// # Between two ends of this library
//
// Two ends of this library use more than iWARP has: acknowledged completions, immediate data,
// atomics, and sends that wait for a receive. They recognize each other by reserved bits of the
// set-up, which are 0 by RFC 5044 and which receivers do not check. docs/tcp.md, "The wire", has
// them, and the rules of the frames that follow. Private data is not changed.
package iwarp

import "fmt"

// Opcode is an operation of RDMAP.
type Opcode uint8

// The operations. Those of RFC 7306, and those that only this library has, are valid only between
// two ends of this library.
const (
	OpWrite          Opcode = 0
	OpReadRequest    Opcode = 1
	OpReadResponse   Opcode = 2
	OpSend           Opcode = 3 // Header.Word is an acknowledgement
	OpSendInv        Opcode = 4 // Header.Word is the key to invalidate
	OpSendSE         Opcode = 5 // SE: solicited event
	OpSendSEInv      Opcode = 6
	OpTerminate      Opcode = 7
	OpImmediate      Opcode = 8 // RFC 7306; immediate data of the write before it
	OpImmediateSE    Opcode = 9
	OpAtomicRequest  Opcode = 10
	OpAtomicResponse Opcode = 11
	OpSendImm        Opcode = 12 // only this library: a send whose immediate data is Header.Word
	OpSendSEImm      Opcode = 13
	OpControl        Opcode = 15 // only this library: from device to device, no message of a program
)

// Queue is the number of an untagged queue. Each opcode of untagged messages belongs to one queue.
type Queue uint32

// The queues. The messages of a queue are numbered: the first is 1, and 0 follows 2^32-1.
const (
	QueueSend           Queue = 0
	QueueRequest        Queue = 1 // reads and atomics
	QueueTerminate      Queue = 2
	QueueAtomicResponse Queue = 3
	QueueControl        Queue = 4 // only this library
	Queues                    = 5
)

// form describes the messages of an opcode. An opcode without a name is unknown.
type form struct {
	name     string
	queue    Queue // of untagged messages
	tagged   bool
	extended bool // only between ends of this library
	data     bool // may have payload
	whole    bool // must be one segment
	word     bool // has a Header.Word
	header   int  // bytes of RDMAP's header, which follows DDP's
}

var forms = [16]form{
	OpWrite:        {name: "write", tagged: true, data: true},
	OpReadRequest:  {name: "read request", queue: QueueRequest, whole: true, header: readRequestSize},
	OpReadResponse: {name: "read response", tagged: true, data: true},
	OpSend:         {name: "send", data: true, word: true},
	OpSendInv:      {name: "send with invalidate", data: true, word: true},
	OpSendSE:       {name: "solicited send", data: true, word: true},
	OpSendSEInv:    {name: "solicited send with invalidate", data: true, word: true},
	OpTerminate:    {name: "terminate", queue: QueueTerminate, data: true, whole: true},
	OpImmediate:    {name: "immediate data", extended: true, whole: true, header: immediateSize},
	OpImmediateSE:  {name: "solicited immediate data", extended: true, whole: true, header: immediateSize},
	OpAtomicRequest: {name: "atomic request", extended: true, queue: QueueRequest, whole: true,
		header: atomicRequestSize},
	OpAtomicResponse: {name: "atomic response", extended: true, queue: QueueAtomicResponse, whole: true,
		header: atomicResponseSize},
	OpSendImm:   {name: "send with immediate data", extended: true, data: true, word: true},
	OpSendSEImm: {name: "solicited send with immediate data", extended: true, data: true, word: true},
	OpControl:   {name: "control", extended: true, queue: QueueControl, whole: true, header: controlSize},
}

// Tagged reports whether messages of the opcode are tagged: they name the receiver's memory.
func (o Opcode) Tagged() bool { return forms[o&15].tagged }

// Queue returns the queue of an opcode whose messages are untagged.
func (o Opcode) Queue() Queue { return forms[o&15].queue }

// Solicited reports whether a message of the opcode asks for a solicited event.
func (o Opcode) Solicited() bool {
	return o == OpSendSE || o == OpSendSEInv || o == OpImmediateSE || o == OpSendSEImm
}

// EndsWrite reports whether a message of the opcode is the immediate data of the write before it.
func (o Opcode) EndsWrite() bool { return o == OpImmediate || o == OpImmediateSE }

// Acknowledges reports whether messages of the opcode carry an acknowledgement between two ends of
// this library.
func (o Opcode) Acknowledges() bool { return o == OpSend || o == OpSendSE }

func (o Opcode) String() string {
	if name := forms[o&15].name; name != "" {
		return name
	}
	return fmt.Sprintf("opcode %d", uint8(o))
}

// ddpSize returns the size of DDP's header.
func ddpSize(op Opcode) int {
	if op.Tagged() {
		return taggedSize
	}
	return untaggedSize
}

// MaxHeader is the size of the largest headers, including the frame's length field.
const MaxHeader = lengthSize + untaggedSize + atomicRequestSize

// Sizes of the parts of a frame: the length field, the headers of DDP and of RDMAP, and the
// checksum.
const (
	lengthSize         = 2
	taggedSize         = 14
	untaggedSize       = 18
	readRequestSize    = 28
	immediateSize      = 8
	atomicRequestSize  = 52
	atomicResponseSize = 12
	controlSize        = 12
	crcSize            = 4
)

// Bits of the first two bytes of a segment: DDP's and RDMAP's control.
const (
	ddpTagged     = 0x80
	ddpLast       = 0x40
	ddpVersion    = 0x01
	ddpVersions   = 0x03
	rdmapVersion  = 0x40
	rdmapVersions = 0xC0
	rdmapOpcode   = 0x0F
)
