//go:build linux && cgo

package cverbs

/*
#cgo CFLAGS: -O2 -Wall
#cgo LDFLAGS: -ldl
#include "shim.h"
*/
import "C"

import "unsafe"

// The length of each element is a Go value minus the corresponding C value. If the two differ, the
// element is not a [0]byte, and this file does not compile.
var _ = [...][0]byte{
	[unsafe.Sizeof(SGE{}) - C.sizeof_struct_ibv_sge]byte{},
	[unsafe.Sizeof(SendWR{}) - C.sizeof_struct_cv_send_wr]byte{},
	[unsafe.Offsetof(SendWR{}.RKey) - 32]byte{},
	[unsafe.Offsetof(SendWR{}.NumSGE) - 40]byte{},
	[unsafe.Offsetof(SendWR{}.Imm) - 52]byte{},
	[unsafe.Offsetof(SendWR{}.AH) - 56]byte{},
	[unsafe.Offsetof(SendWR{}.RemoteQPN) - 64]byte{},
	[unsafe.Sizeof(RecvWR{}) - C.sizeof_struct_cv_recv_wr]byte{},
	[unsafe.Sizeof(WC{}) - C.sizeof_struct_ibv_wc]byte{},
	[unsafe.Offsetof(WC{}.Imm) - 24]byte{},
	[unsafe.Offsetof(WC{}.Flags) - 36]byte{},
	[unsafe.Offsetof(WC{}.DLIDPathBits) - 45]byte{},
	[unsafe.Sizeof(WCEx{}) - C.sizeof_struct_cv_wc_ex]byte{},
	[unsafe.Offsetof(WCEx{}.Timestamp) - 48]byte{},
	[unsafe.Offsetof(WCEx{}.TMPriv) - 72]byte{},
	[unsafe.Offsetof(WCEx{}.CVLAN) - 80]byte{},
}
