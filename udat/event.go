package udat

import (
	"net/netip"
	"strconv"
)

// EventNumber says what an Event is; the bits above the low 12 name its stream.
type EventNumber uint32

// Event numbers. Those of the SRQ low and endpoint soft high watermark are this library's: DAT 1.2 gives them none.
const (
	EventDTOCompletion              EventNumber = 0x00001
	EventRMRBindCompletion          EventNumber = 0x01001
	EventConnectionRequest          EventNumber = 0x02001
	EventConnectionEstablished      EventNumber = 0x04001
	EventConnectionPeerRejected     EventNumber = 0x04002
	EventConnectionNonPeerRejected  EventNumber = 0x04003
	EventConnectionAcceptError      EventNumber = 0x04004
	EventConnectionDisconnected     EventNumber = 0x04005
	EventConnectionBroken           EventNumber = 0x04006
	EventConnectionTimedOut         EventNumber = 0x04007
	EventConnectionUnreachable      EventNumber = 0x04008
	EventAsyncEVDOverflow           EventNumber = 0x08001
	EventAsyncIACatastrophic        EventNumber = 0x08002
	EventAsyncEPBroken              EventNumber = 0x08003
	EventAsyncTimedOut              EventNumber = 0x08004
	EventAsyncProviderInternalError EventNumber = 0x08005
	EventAsyncSRQLowWatermark       EventNumber = 0x08010
	EventAsyncEPSoftHighWatermark   EventNumber = 0x08011
	EventSoftware                   EventNumber = 0x10001
)

var eventText = map[EventNumber]string{
	EventDTOCompletion:              "DTO_COMPLETION",
	EventRMRBindCompletion:          "RMR_BIND_COMPLETION",
	EventConnectionRequest:          "CONNECTION_REQUEST",
	EventConnectionEstablished:      "CONNECTION_ESTABLISHED",
	EventConnectionPeerRejected:     "CONNECTION_PEER_REJECTED",
	EventConnectionNonPeerRejected:  "CONNECTION_NON_PEER_REJECTED",
	EventConnectionAcceptError:      "CONNECTION_ACCEPT_COMPLETION_ERROR",
	EventConnectionDisconnected:     "CONNECTION_DISCONNECTED",
	EventConnectionBroken:           "CONNECTION_BROKEN",
	EventConnectionTimedOut:         "CONNECTION_TIMED_OUT",
	EventConnectionUnreachable:      "CONNECTION_UNREACHABLE",
	EventAsyncEVDOverflow:           "ASYNC_ERROR_EVD_OVERFLOW",
	EventAsyncIACatastrophic:        "ASYNC_ERROR_IA_CATASTROPHIC",
	EventAsyncEPBroken:              "ASYNC_ERROR_EP_BROKEN",
	EventAsyncTimedOut:              "ASYNC_ERROR_TIMED_OUT",
	EventAsyncProviderInternalError: "ASYNC_ERROR_PROVIDER_INTERNAL_ERROR",
	EventAsyncSRQLowWatermark:       "ASYNC_SRQ_LOW_WATERMARK",
	EventAsyncEPSoftHighWatermark:   "ASYNC_EP_SOFT_HIGH_WATERMARK",
	EventSoftware:                   "SOFTWARE",
}

// String is the event's DAT name.
func (n EventNumber) String() string {
	if s, ok := eventText[n]; ok {
		return s
	}
	return "EVENT_0x" + strconv.FormatUint(uint64(n), 16)
}

// DTOStatus is how a data transfer or a bind ended.
type DTOStatus uint32

// Statuses. Anything but DTOSuccess breaks the connection.
const (
	DTOSuccess             DTOStatus = 0
	DTOErrFlushed          DTOStatus = 1 // the connection ended before its turn
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
	"SUCCESS", "ERR_FLUSHED", "ERR_LOCAL_LENGTH", "ERR_LOCAL_EP", "ERR_LOCAL_PROTECTION", "ERR_BAD_RESPONSE",
	"ERR_REMOTE_ACCESS", "ERR_REMOTE_RESPONDER", "ERR_TRANSPORT", "ERR_RECEIVER_NOT_READY", "ERR_PARTIAL_PACKET",
	"RMR_OPERATION_FAILED",
}

// String is the status's DAT name.
func (s DTOStatus) String() string {
	if int(s) < len(dtoStatusText) {
		return dtoStatusText[s]
	}
	return "STATUS_" + strconv.Itoa(int(s))
}

// DTOOperation is the operation that a completion is of; the values are those of DAT 2.0 and its IB extension.
type DTOOperation uint8

// Operations.
const (
	DTOSend            DTOOperation = 0
	DTORDMAWrite       DTOOperation = 1
	DTORDMARead        DTOOperation = 2
	DTOReceive         DTOOperation = 3
	DTOReceiveInv      DTOOperation = 4 // a receive whose Send invalidated Event.RMRContext
	DTOBind            DTOOperation = 5
	DTORDMAWriteImm    DTOOperation = 8
	DTOReceiveWriteImm DTOOperation = 9 // a receive that a write with immediate data used up
	DTOFetchAdd        DTOOperation = 10
	DTOCmpSwap         DTOOperation = 11
	DTOReceiveImm      DTOOperation = 12 // a receive whose Send carried immediate data
)

var dtoOperationText = map[DTOOperation]string{
	DTOSend: "SEND", DTORDMAWrite: "RDMA_WRITE", DTORDMARead: "RDMA_READ", DTOReceive: "RECEIVE",
	DTOReceiveInv: "RECEIVE_WITH_INVALIDATE", DTOBind: "BIND", DTORDMAWriteImm: "RDMA_WRITE_IMMED",
	DTOReceiveWriteImm: "RECV_IMMED", DTOFetchAdd: "FETCH_ADD", DTOCmpSwap: "CMP_SWAP", DTOReceiveImm: "RECV_MSG_IMMED",
}

// String is the operation's DAT name.
func (o DTOOperation) String() string { return dtoOperationText[o] }

// Reasons of asynchronous events, by the kind of Event.Object.
const (
	ReasonIACatastrophic      = 0
	ReasonIAOther             = 1
	ReasonEPTransferToError   = 0
	ReasonEPOther             = 1
	ReasonEPSoftHighWatermark = 2
	ReasonEVDOverflow         = 0
	ReasonEVDOther            = 1
	ReasonSRQTransferToError  = 0
	ReasonSRQOther            = 1
	ReasonSRQLowWatermark     = 2
	ReasonOther               = 0 // LMR, RMR, PZ
)

// Event is one event of any stream: a flat value, of which the fields of its kind are set.
type Event struct {
	Number EventNumber
	Status DTOStatus // DTO and bind completions
	EVD    *EVD      // the dispatcher that it was queued on

	// DTO and bind completions, and connection events.
	EP *EP

	// DTO and bind completions.
	RMR          *RMR
	Cookie       Cookie
	Length       uint64 // bytes transferred; defined on success only
	Operation    DTOOperation
	HasImmediate bool   // Extension. Immediate is set
	Immediate    uint32 // Extension.
	RMRContext   uint32 // Extension. the context that a Send invalidated
	RawStatus    uint32 // Extension. the fabric's own status (ibv_wc_status) and vendor code, where Status is an error
	VendorError  uint32 // Extension.

	// Connection requests. CR must not be used after accept, reject or handoff.
	CR       *CR
	ConnQual ConnQual

	// Object is the service point of a connection request (nil for a reserved one, which is gone), or what an
	// asynchronous event is about.
	Object Handle
	Reason uint32 // asynchronous events

	// PrivateData came with ESTABLISHED at the active end, or with PEER_REJECTED. It stays valid.
	PrivateData []byte

	// Software is the payload of a software event.
	Software any

	srq *SRQ // whose entry is free once the event is taken
}

// LocalAddr is the local address that a connection request came to.
//
// Extension. It is part of the event data.
func (e *Event) LocalAddr() netip.Addr {
	if e.CR == nil {
		return netip.Addr{}
	}
	return e.CR.localAddr
}
