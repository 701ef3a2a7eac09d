package iwarp

import "fmt"

// Control is the kind of a control message, which the device at one end sends to the device at the
// other. Its value is in Header.Value.
//
// The values other than that of a hello count requests: the sends, writes, reads and atomics of one
// end, from 1, in the order in which they are posted. A write with immediate data counts as two:
// the write and the immediate data. A request that the receiver refuses ends the connection with a
// terminate.
type Control uint8

// The control messages.
const (
	// ControlHello is the first frame of each end; its value is that of Hello.
	ControlHello Control = iota
	// ControlAck: the requests up to the value have succeeded.
	ControlAck
	// ControlNotReady: the requests up to the value have succeeded, and the next one has found no
	// receive. It and all later requests are ignored.
	ControlNotReady
	// ControlReady: there is a receive for the request after the value.
	ControlReady
	// ControlResume is the answer: the request after the value is sent again, and then the later ones.
	ControlResume

	controls // their number
)

func (c Control) String() string {
	names := [...]string{"hello", "acknowledgement", "not ready", "ready", "resume"}
	if int(c) < len(names) {
		return names[c]
	}
	return fmt.Sprintf("control message %d", c)
}

// Hello is the value of a ControlHello: the version of the extension in the highest byte, three
// that are reserved, the largest segment (headers and payload) that the sender receives in 16 bits,
// and 16 reserved bits. This one is of version 1, for segments of any size. An end that knows a
// later version speaks this one with an end that does not.
const Hello uint64 = 1<<56 | MaxSegment<<16

// minHelloSegment leaves room for at least 1 KiB of payload in every segment.
const minHelloSegment = 1024 + MaxHeader

// ParseHello returns the segment of a hello of any version. The error has a Fault.
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
