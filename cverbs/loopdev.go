//go:build linux && cgo && nulldev

package cverbs

// #cgo CFLAGS: -DCV_LOOP
// #include "shim.h"
import "C"

import (
	"os"
	"strings"
	"time"
)

// init sets the wire as the variable GODAT_LOOP_WIRE says: "1us,50ns", the delay and the gap.
func init() {
	var wire [2]time.Duration
	for i, text := range strings.SplitN(os.Getenv("GODAT_LOOP_WIRE"), ",", len(wire)) {
		if text == "" {
			continue
		}
		var err error
		if wire[i], err = time.ParseDuration(text); err != nil || wire[i] < 0 {
			panic("cverbs: GODAT_LOOP_WIRE is not a delay and a gap, as in 1us,50ns")
		}
	}
	LoopWire(wire[0], wire[1])
}

// LoopWire sets the wire of the loop device for this process: delay is a message's time on the
// wire, gap the least time between two messages of one queue pair. Both are 0 at first. The loop
// device, "loop0", connects queue pairs of this host through memory, without a kernel. It exists
// only with the build tag nulldev.
//
// Extension.
func LoopWire(delay, gap time.Duration) {
	C.lp_set_wire(C.uint64_t(delay.Nanoseconds()), C.uint64_t(gap.Nanoseconds()))
}
