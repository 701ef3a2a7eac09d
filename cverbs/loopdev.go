//go:build linux && cgo && nulldev

package cverbs

// #cgo CFLAGS: -DCV_LOOP
// #include "shim.h"
import "C"

import "time"

// LoopWire sets the wire of the loop device for this process: delay is a message's time on the
// wire, gap the least time between two messages of one queue pair. Both are 0 at first. The loop
// device, "loop0", connects queue pairs of this host through memory, without a kernel. It exists
// only with the build tag nulldev.
//
// Extension.
func LoopWire(delay, gap time.Duration) {
	C.lp_set_wire(C.uint64_t(delay.Nanoseconds()), C.uint64_t(gap.Nanoseconds()))
}
