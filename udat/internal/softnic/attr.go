package softnic

import (
	"os"

	"github.com/godat/godat/udat/internal/fabric"
)

// Attr returns the limits and abilities of a software device. The transport then changes the limits
// and abilities that depend on the transport.
func Attr(info fabric.DeviceInfo) fabric.Attr {
	return fabric.Attr{
		Info:           info,
		VendorName:     "godat",
		HWVersion:      1,
		FWVersion:      "1.0.0",
		MaxQP:          1 << 16,
		MaxQPWR:        1 << 15,
		MaxSGE:         32,
		MaxReadSGE:     32,
		MaxCQ:          1 << 16,
		MaxCQE:         1 << 20,
		MaxMR:          1 << 20,
		MaxMRSize:      1 << 40,
		MaxPD:          1 << 15,
		MaxMW:          1 << 20,
		MaxSRQ:         1 << 15,
		MaxSRQWR:       1 << 15,
		MaxSRQSGE:      32,
		MaxReadIn:      16,
		MaxReadOut:     16,
		MaxReadTotal:   16 << 16,
		MaxMessage:     1 << 31,
		MaxInline:      256,
		MaxConnData:    256,
		MaxAcceptData:  256,
		MaxRejectData:  256,
		PageSize:       os.Getpagesize(),
		MWType2:        true,
		SRQResize:      true,
		Atomics:        true,
		SendInvalidate: true,
		WriteImmediate: true,
		SRQExactCounts: true,
		SRQOtherPD:     true,
		PeerToPeer:     true,
		ExactBounds:    true,
		TellsTarget:    true,
		EnforcesRNR:    true,
		Acknowledged:   true,
		SolicitedArm:   true,
		FailuresNotify: true,
	}
}
