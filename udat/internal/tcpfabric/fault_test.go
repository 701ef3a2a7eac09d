package tcpfabric

import (
	"testing"

	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/tcpfabric/iwarp"
	"gotest.tools/v3/assert"
)

func TestStatusOfFault(t *testing.T) {
	for f, want := range map[iwarp.Fault]fabric.Status{
		iwarp.FaultKey: fabric.StatusRemoteAccess, iwarp.FaultBounds: fabric.StatusRemoteAccess,
		iwarp.FaultAccess: fabric.StatusRemoteAccess, iwarp.FaultWrap: fabric.StatusRemoteAccess,
		iwarp.FaultProtection: fabric.StatusRemoteAccess, iwarp.FaultTaggedBounds: fabric.StatusRemoteAccess,
		iwarp.FaultTaggedWrap: fabric.StatusRemoteAccess, iwarp.FaultNoBuffer: fabric.StatusRNRExceeded,
		iwarp.FaultTooLong: fabric.StatusRemoteInvReq, iwarp.FaultMSN: fabric.StatusRemoteInvReq,
		iwarp.FaultOpcode: fabric.StatusRemoteInvReq, iwarp.FaultOperation: fabric.StatusRemoteInvReq,
		iwarp.FaultLocal: fabric.StatusRemoteOp, iwarp.FaultDDP: fabric.StatusRemoteOp,
		iwarp.FaultGlobal: fabric.StatusRemoteOp, iwarp.FaultCRC: fabric.StatusFatal, 0xF000: fabric.StatusFatal,
	} {
		assert.Equal(t, statusOf(f), want, "%v", f)
	}
	for f := range 1 << 16 {
		assert.Assert(t, statusOf(iwarp.Fault(f)) != fabric.StatusSuccess, "%v", iwarp.Fault(f))
	}
}

// TestFaultOfStatus: a request completes at the initiator with the status that its target has
// chosen.
func TestFaultOfStatus(t *testing.T) {
	for _, op := range []iwarp.Opcode{iwarp.OpSend, iwarp.OpWrite, iwarp.OpReadRequest, iwarp.OpAtomicRequest} {
		for _, st := range []fabric.Status{fabric.StatusRemoteAccess, fabric.StatusRNRExceeded,
			fabric.StatusRemoteInvReq, fabric.StatusRemoteOp} {
			assert.Equal(t, statusOf(faultOf(op, st)), st, "%v", op)
		}
	}
}
