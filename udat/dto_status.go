package udat

import (
	"strconv"

	"github.com/godat/godat/udat/internal/fabric"
)

// DTOStatus is the outcome of a data transfer or a bind.
type DTOStatus uint32

// Statuses. Every status except DTOSuccess breaks the connection.
const (
	DTOSuccess             DTOStatus = 0
	DTOErrFlushed          DTOStatus = 1 // the connection ended before the operation was executed
	DTOErrLocalLength      DTOStatus = 2 // the message was longer than the receive
	DTOErrLocalEP          DTOStatus = 3
	DTOErrLocalProtection  DTOStatus = 4
	DTOErrBadResponse      DTOStatus = 5
	DTOErrRemoteAccess     DTOStatus = 6
	DTOErrRemoteResponder  DTOStatus = 7
	DTOErrTransport        DTOStatus = 8
	DTOErrReceiverNotReady DTOStatus = 9
	DTOErrPartialPacket    DTOStatus = 10
	RMROperationFailed     DTOStatus = 11
)

var dtoStatusText = [...]string{
	"DAT_DTO_SUCCESS",
	"DAT_DTO_ERR_FLUSHED",
	"DAT_DTO_ERR_LOCAL_LENGTH",
	"DAT_DTO_ERR_LOCAL_EP",
	"DAT_DTO_ERR_LOCAL_PROTECTION",
	"DAT_DTO_ERR_BAD_RESPONSE",
	"DAT_DTO_ERR_REMOTE_ACCESS",
	"DAT_DTO_ERR_REMOTE_RESPONDER",
	"DAT_DTO_ERR_TRANSPORT",
	"DAT_DTO_ERR_RECEIVER_NOT_READY",
	"DAT_DTO_ERR_PARTIAL_PACKET",
	"DAT_RMR_OPERATION_FAILED",
}

// String returns the DAT name of the status: "DAT_DTO_ERR_FLUSHED".
func (s DTOStatus) String() string {
	if uint(s) < uint(len(dtoStatusText)) {
		return dtoStatusText[s]
	}
	return "status " + strconv.FormatUint(uint64(s), 10)
}

// dtoStatus returns the DAT status for a failure status of the fabric.
func dtoStatus(s fabric.Status) DTOStatus {
	switch s {
	case fabric.StatusFlush:
		return DTOErrFlushed
	case fabric.StatusLocalLength:
		return DTOErrLocalLength
	case fabric.StatusLocalProt, fabric.StatusLocalAccess, fabric.StatusLocalRDD:
		return DTOErrLocalProtection
	case fabric.StatusBadResponse:
		return DTOErrBadResponse
	case fabric.StatusRemoteAccess:
		return DTOErrRemoteAccess
	case fabric.StatusRemoteInvReq, fabric.StatusRemoteOp, fabric.StatusRemoteInvRD, fabric.StatusRemoteAborted:
		return DTOErrRemoteResponder
	case fabric.StatusRNRExceeded:
		return DTOErrReceiverNotReady
	case fabric.StatusMWBind:
		return RMROperationFailed
	}
	return DTOErrTransport
}
