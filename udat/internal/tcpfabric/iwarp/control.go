package iwarp

import "fmt"

// Control is the kind of a control message, which the device at one end sends to the device at the
// other. Its value is in Header.Value. docs/tcp.md, "The wire", has the rules.
type Control uint8

// The control messages.
const (
	// ControlHello is the first frame of each end. Its value is that of a Hello.
	ControlHello Control = iota
	// ControlAck tells the Counts of its sender.
	ControlAck
	// ControlAsk asks for receives. Its value is the number of the last message that its sender has to
	// send.
	ControlAsk
	// ControlGrant answers a ControlAsk with the Counts of its sender.
	ControlGrant

	controls // the number of control messages
)

func (c Control) String() string {
	names := [...]string{"hello", "acknowledgement", "ask", "grant"}
	if int(c) < len(names) {
		return names[c]
	}
	return fmt.Sprintf("control message %d", c)
}

// Counts is the value of a ControlAck or a ControlGrant: how many of the peer's requests have been
// executed, and the number of the last message that the peer may send. Both are modulo 2^32.
func Counts(executed, limit uint32) uint64 { return uint64(executed)<<32 | uint64(limit) }

// ParseCounts is the inverse of Counts.
func ParseCounts(v uint64) (executed, limit uint32) { return uint32(v >> 32), uint32(v) }

// Word is the Counts in a Send, modulo 2^16: more than any of the two changes between two frames.
func Word(executed, limit uint16) uint32 { return uint32(executed)<<16 | uint32(limit) }

// ParseWord is the inverse of Word.
func ParseWord(w uint32) (executed, limit uint16) { return uint16(w >> 16), uint16(w) }

// Hello is what each end says of itself first.
type Hello struct {
	Shared  bool   // the receives are those of a shared queue: each message must ask for its own
	Window  uint16 // how many messages there can be receives for at a time
	Segment int    // the largest segment (headers and payload) that the sender can receive, at most MaxSegment
	Limit   uint16 // the number of the last message that the peer may send now; at most Window
}

const (
	version     = 2 // of what two ends of this library say
	helloShared = 1 << 48

	// leastSegment is the least segment that a hello may offer. It has room for 1 KiB of payload.
	leastSegment = 1024 + MaxHeader
)

// Value returns the value of a ControlHello.
func (h Hello) Value() uint64 {
	v := uint64(version)<<56 | uint64(h.Window)<<32 | uint64(h.Segment)<<16 | uint64(h.Limit)
	if h.Shared {
		v |= helloShared
	}
	return v
}

// ParseHello returns the hello of any later version. Its error wraps a Fault.
func ParseHello(v uint64) (Hello, error) {
	h := Hello{Shared: v&helloShared != 0, Window: uint16(v >> 32), Segment: int(uint16(v >> 16)), Limit: uint16(v)}
	switch {
	case v>>56 < version:
		return h, fault(FaultOperation, "a hello of version %d", v>>56)
	case h.Segment < leastSegment:
		return h, fault(FaultOperation, "a hello with segments of %d bytes, at least %d are needed", h.Segment, leastSegment)
	case h.Limit > h.Window || h.Shared && h.Limit > 0:
		return h, fault(FaultOperation, "a hello with limit %d, its window is %d", h.Limit, h.Window)
	}
	return h, nil
}
