package cverbs

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"
	"testing"

	"gotest.tools/v3/assert"
)

func TestErrors(t *testing.T) {
	var err error = &Error{Verb: "ibv_reg_mr", Errno: syscall.ENOMEM, Advice: "do this"}
	isErr(t, fmt.Errorf("more: %w", err), syscall.ENOMEM)
	assert.ErrorContains(t, err, "ibv_reg_mr")
	assert.ErrorContains(t, err, "(do this)")
	assert.Assert(t, !errors.Is(err, ErrNotSupported))
	isErr(t, &Error{Errno: syscall.ENOSYS}, ErrNotSupported)
	isErr(t, &Error{Errno: syscall.EACCES}, fs.ErrPermission)
	isErr(t, ErrClosed, os.ErrClosed)
	isErr(t, ErrClosed, net.ErrClosed)
	isErr(t, fmt.Errorf("%w: the PD", ErrClosed), ErrClosed)

	assert.NilError(t, CMEvent{Type: CMEventEstablished}.Err())
	isErr(t, CMEvent{Type: CMEventAddrError, Status: -int(syscall.ETIMEDOUT)}.Err(), syscall.ETIMEDOUT)
	isErr(t, CMEvent{Type: CMEventRejected, Status: RejectNoListener}.Err(), syscall.ECONNREFUSED)
	isErr(t, CMEvent{Type: CMEventRejected, Status: -int(syscall.ECONNRESET)}.Err(), syscall.ECONNREFUSED)
	assert.ErrorContains(t, CMEvent{Type: CMEventRejected, Status: RejectConsumerDefined}.Err(), "reason 28")
	assert.ErrorContains(t, CMEvent{Type: CMEventUnreachable, Status: 4}.Err(), "UNREACHABLE")
}

// Every value that the headers define has a name; other values show their number.
func TestNames(t *testing.T) {
	every := func(kind string, n int, name func(int) string) {
		t.Helper()
		seen := map[string]bool{}
		for i := range n {
			s := name(i)
			assert.Assert(t, s != "" && s[len(s)-1] != ')', "%s %d is %s", kind, i, s)
			assert.Assert(t, !seen[s], "%s: %s twice", kind, s)
			seen[s] = true
		}
		assert.Equal(t, name(999), kind+"(999)")
	}
	every("WCStatus", 24, func(i int) string { return WCStatus(i).String() })
	every("WCOpcode", 7, func(i int) string { return WCOpcode(i).String() })
	every("WROpcode", 10, func(i int) string { return WROpcode(i).String() })
	every("QPState", 7, func(i int) string { return QPState(i).String() })
	every("CMEventType", 16, func(i int) string { return CMEventType(i).String() })
	every("AsyncEventType", 20, func(i int) string { return AsyncEventType(i).String() })
	every("PortState", 6, func(i int) string { return PortState(i).String() })
	every("LinkLayer", 3, func(i int) string { return LinkLayer(i).String() })
	every("GIDType", 3, func(i int) string { return GIDType(i).String() })
	assert.Equal(t, Rate(1).String(), "Rate(1)")
	assert.Equal(t, RateMax.String(), "MAX")
	every("MigState", 3, func(i int) string { return MigState(i).String() })
	every("ForkStatus", 3, func(i int) string { return ForkStatus(i).String() })
	every("TransportType", 5, func(i int) string { return TransportType(i).String() })
	every("JoinFlag", 2, func(i int) string { return JoinFlag(i).String() })
	assert.Equal(t, PortSpaceIPoIB.String(), "IPoIB")
	assert.Equal(t, TransportUnknown.String(), "unknown")
	assert.Equal(t, (PortCM | PortIPBasedGIDs | 1).String(), "CM_SUP|IP_BASED_GIDS|0x1")
	assert.Equal(t, (PortLinkSpeedNDR | PortVirtual).String(), "VIRT_SUP|LINK_SPEED_NDR_SUP")
	assert.Equal(t, (PCIAtomic4Bytes | PCIAtomic16Bytes).String(), "4_BYTE|16_BYTE")
	assert.Equal(t, (QPAttrDestQPN | QPAttrRateLimit).String(), "DEST_QPN|RATE_LIMIT")
	assert.Equal(t, WCRecvRDMAWithImm.String(), "RECV_RDMA_WITH_IMM")
	assert.Equal(t, (SendSignaled | SendInline | 1<<10).String(), "SIGNALED|INLINE|0x400")
	assert.Equal(t, SendFlags(0).String(), "0")
	assert.Equal(t, (AccessLocalWrite | AccessRelaxedOrdering).String(), "LOCAL_WRITE|RELAXED_ORDERING")
	assert.Equal(t, (QPAttrState | QPAttrDestQPN).String(), "STATE|DEST_QPN")
	assert.Equal(t, (ODPSupportFlush | ODPSupportAtomicWrite).String(), "FLUSH|ATOMIC_WRITE")
	assert.Equal(t, NodeUnknown.String(), "unknown")
	assert.Equal(t, QPTypeUD.String(), "UD")
	assert.Equal(t, MTU4096.Bytes(), 4096)
	assert.Equal(t, MTU(9).Bytes(), 0)
	assert.Equal(t, MTU1024.String()+MTU(9).String(), "1024MTU(9)")
	assert.Equal(t, AtomicHCA.String(), "HCA")
	assert.Equal(t, (DeviceXRC | DeviceMemWindow2B | 1<<40).String(), "XRC|MEM_WINDOW_TYPE_2B|0x10000000000")
	assert.Equal(t, (WithSend | WithAtomicWrite).String(), "SEND|ATOMIC_WRITE")
}
