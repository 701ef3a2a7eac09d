package tcpfabric

import (
	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/softnic"
	"github.com/godat/godat/udat/internal/tcpfabric/iwarp"
)

// statusOf returns the status of the request that the peer has refused with a terminate.
func statusOf(f iwarp.Fault) fabric.Status {
	const layerAndType = 0xFF00
	switch {
	case f == iwarp.FaultNoBuffer:
		return fabric.StatusRNRExceeded
	case f == iwarp.FaultStream, f == iwarp.FaultGlobal, f == iwarp.FaultLocal, f == iwarp.FaultDDP:
		return fabric.StatusRemoteOp
	case f&layerAndType == iwarp.FaultKey&layerAndType, f&layerAndType == iwarp.FaultTaggedKey&layerAndType:
		return fabric.StatusRemoteAccess
	case f.Layer() <= 1:
		return fabric.StatusRemoteInvReq
	}
	return fabric.StatusFatal // MPA: the stream itself is broken
}

// faultOf returns the reason to give the peer for refusing a request of the opcode whose status is
// then st. It is the inverse of statusOf.
func faultOf(op iwarp.Opcode, st fabric.Status) iwarp.Fault {
	switch st {
	case fabric.StatusRemoteAccess:
		return iwarp.FaultAccess
	case fabric.StatusRNRExceeded:
		return iwarp.FaultNoBuffer
	case fabric.StatusRemoteInvReq:
		if op.Queue() == iwarp.QueueSend && !op.Tagged() {
			return iwarp.FaultTooLong
		}
		return iwarp.FaultOperation
	}
	return iwarp.FaultStream
}

// denials are the faults for memory that cannot be reached, by reason: the one for a request, and
// the one for a tagged message.
var denials = [...][2]iwarp.Fault{
	softnic.Granted:     {fine, fine},
	softnic.NoKey:       {iwarp.FaultKey, iwarp.FaultTaggedKey},
	softnic.OtherDomain: {iwarp.FaultKeyStream, iwarp.FaultTaggedStream},
	softnic.OutOfBounds: {iwarp.FaultBounds, iwarp.FaultTaggedBounds},
	softnic.NoRight:     {iwarp.FaultAccess, iwarp.FaultAccess},
}

const (
	ofRequests = iota
	ofTagged
)
