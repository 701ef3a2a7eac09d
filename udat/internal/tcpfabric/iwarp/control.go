package iwarp

import "fmt"

// Control is the kind of a control message, which the device at one end sends to the device at the
// other. Its value is in Header.Value.
//
// Each value except that of a ControlHello is a number of requests. The requests are the sends,
// writes, reads and atomics of one end, counted from 1 in the order in which they are posted. A
// write with immediate data counts as two: the write and the immediate data. If the receiver
// refuses a request, the receiver ends the connection with a terminate message.
type Control uint8

// The control messages.
const (
	// ControlHello is the first frame of each end. Its value is Hello.
	ControlHello Control = iota
	// ControlAck says that the requests up to number Value have succeeded.
	ControlAck
	// ControlNotReady says that the requests up to number Value have succeeded, and that there is no
	// receive for the next request. The sender of ControlNotReady ignores the next request and all
	// later requests until ControlResume.
	ControlNotReady
	// ControlReady says that there is now a receive for request number Value+1.
	ControlReady
	// ControlResume answers ControlReady: request number Value+1 and all later ones are sent again.
	ControlResume

	controls // the number of control messages
)

func (c Control) String() string {
	names := [...]string{"hello", "acknowledgement", "not ready", "ready", "resume"}
	if int(c) < len(names) {
		return names[c]
	}
	return fmt.Sprintf("control message %d", c)
}

// Hello is the value of a ControlHello. Its highest 8 bits are the version of the extension. Below
// them are 24 reserved bits, 16 bits for the largest segment (headers and payload) that the sender
// can receive, and 16 reserved bits. This constant means version 1 and segments of any size. An end
// that supports a later version must use version 1 with an end that supports only version 1.
const Hello uint64 = 1<<56 | MaxSegment<<16

// minHelloSegment is the least segment that a hello may offer. It leaves room for 1 KiB of payload.
const minHelloSegment = 1024 + MaxHeader

// ParseHello returns the largest segment in a hello of any version. Its error wraps a Fault.
func ParseHello(v uint64) (segment int, err error) {
	segment = int(uint16(v >> 16))
	if v>>56 == 0 {
		return 0, fault(FaultOperation, "a hello of version 0")
	}
	if segment < minHelloSegment {
		return 0, fault(FaultOperation, "a hello with segments of %d bytes, at least %d are needed", segment,
			minHelloSegment)
	}
	return segment, nil
}
