//go:build linux && cgo && nulldev

package cverbs

// #cgo CFLAGS: -DCV_LOOP
// #include "shim.h"
import "C"

import "time"

// LoopWire sets the wire of the loop device for this process: delay is how long a message is under way, gap how much later
// than the message before it a message of the same queue pair leaves. Both are 0 at first. The loop device, "loop0", is a
// verbs device without a kernel behind it: it connects queue pairs of this host through memory. It exists only with the build tag
// nulldev.
//
// Extension.
func LoopWire(delay, gap time.Duration) {
	C.lp_set_wire(C.uint64_t(delay.Nanoseconds()), C.uint64_t(gap.Nanoseconds()))
}
