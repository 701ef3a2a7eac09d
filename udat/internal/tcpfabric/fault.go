package tcpfabric

import (
	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/softnic"
	"github.com/godat/godat/udat/internal/tcpfabric/iwarp"
)

// statusOf returns the status of a request that the peer has refused. The parameter f is the reason
// in the peer's terminate message.
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

// faultOf returns the reason for the terminate message that refuses a request of the peer. The
// parameter op is the opcode of the request, and st is the status that the request gets at the
// peer. faultOf is the inverse of statusOf.
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

// denials has two faults for each reason why memory cannot be accessed: one for a request of a read
// or an atomic, and one for a tagged message.
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
