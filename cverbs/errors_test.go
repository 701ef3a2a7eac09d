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
	assert.Equal(t, WCRecvRDMAWithImm.String(), "RECV_RDMA_WITH_IMM")
	assert.Equal(t, (SendSignaled | SendInline | 1<<10).String(), "SIGNALED|INLINE|0x400")
	assert.Equal(t, SendFlags(0).String(), "0")
	assert.Equal(t, (AccessLocalWrite | AccessRelaxedOrdering).String(), "LOCAL_WRITE|RELAXED_ORDERING")
	assert.Equal(t, (QPAttrState | QPAttrDestQPN).String(), "STATE|DEST_QPN")
	assert.Equal(t, NodeUnknown.String(), "unknown")
	assert.Equal(t, QPTypeUD.String(), "UD")
	assert.Equal(t, MTU4096.Bytes(), 4096)
	assert.Equal(t, MTU(9).Bytes(), 0)
}
