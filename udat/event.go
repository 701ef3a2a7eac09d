package udat

import (
	"net/netip"
	"strconv"
	"sync/atomic"
)

// EventNumber is the kind of an Event; the bits above the low 12 name its stream.
type EventNumber uint32

// Event numbers. Those of the SRQ low and endpoint soft high watermark are this library's: DAT 1.2
// gives them none.
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
	EventDTOCompletion:              "DAT_DTO_COMPLETION_EVENT",
	EventRMRBindCompletion:          "DAT_RMR_BIND_COMPLETION_EVENT",
	EventConnectionRequest:          "DAT_CONNECTION_REQUEST_EVENT",
	EventConnectionEstablished:      "DAT_CONNECTION_EVENT_ESTABLISHED",
	EventConnectionPeerRejected:     "DAT_CONNECTION_EVENT_PEER_REJECTED",
	EventConnectionNonPeerRejected:  "DAT_CONNECTION_EVENT_NON_PEER_REJECTED",
	EventConnectionAcceptError:      "DAT_CONNECTION_EVENT_ACCEPT_COMPLETION_ERROR",
	EventConnectionDisconnected:     "DAT_CONNECTION_EVENT_DISCONNECTED",
	EventConnectionBroken:           "DAT_CONNECTION_EVENT_BROKEN",
	EventConnectionTimedOut:         "DAT_CONNECTION_EVENT_TIMED_OUT",
	EventConnectionUnreachable:      "DAT_CONNECTION_EVENT_UNREACHABLE",
	EventAsyncEVDOverflow:           "DAT_ASYNC_ERROR_EVD_OVERFLOW",
	EventAsyncIACatastrophic:        "DAT_ASYNC_ERROR_IA_CATASTROPHIC",
	EventAsyncEPBroken:              "DAT_ASYNC_ERROR_EP_BROKEN",
	EventAsyncTimedOut:              "DAT_ASYNC_ERROR_TIMED_OUT",
	EventAsyncProviderInternalError: "DAT_ASYNC_ERROR_PROVIDER_INTERNAL_ERROR",
	EventAsyncSRQLowWatermark:       "ASYNC_SRQ_LOW_WATERMARK",
	EventAsyncEPSoftHighWatermark:   "ASYNC_EP_SOFT_HIGH_WATERMARK",
	EventSoftware:                   "DAT_SOFTWARE_EVENT",
}

// String is the event's DAT name: "DAT_CONNECTION_EVENT_ESTABLISHED". The two watermark events,
// which have none, have no prefix DAT_.
func (n EventNumber) String() string {
	if s, ok := eventText[n]; ok {
		return s
	}
	return "event 0x" + strconv.FormatUint(uint64(n), 16)
}

// DTOOperation is the operation of a completion; the values are those of DAT 2.0 and its IB
// extension.
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
	DTOSend:            "DAT_DTO_SEND",
	DTORDMAWrite:       "DAT_DTO_RDMA_WRITE",
	DTORDMARead:        "DAT_DTO_RDMA_READ",
	DTOReceive:         "DAT_DTO_RECEIVE",
	DTOReceiveInv:      "DAT_DTO_RECEIVE_WITH_INVALIDATE",
	DTOBind:            "DAT_DTO_BIND_MW",
	DTORDMAWriteImm:    "DAT_IB_DTO_RDMA_WRITE_IMMED",
	DTOReceiveWriteImm: "DAT_IB_DTO_RECV_IMMED",
	DTOFetchAdd:        "DAT_IB_DTO_FETCH_ADD",
	DTOCmpSwap:         "DAT_IB_DTO_CMP_SWAP",
	DTOReceiveImm:      "DAT_IB_DTO_RECV_MSG_IMMED",
}

// String is the operation's name in DAT 2.0 and its extension for InfiniBand: "DAT_DTO_RDMA_WRITE".
func (o DTOOperation) String() string {
	if s, ok := dtoOperationText[o]; ok {
		return s
	}
	return "operation " + strconv.Itoa(int(o))
}

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

// Event is one event of any stream: a flat value of 128 bytes, of which the fields of its kind are
// set. What every completion sets lies in the first 64.
type Event struct {
	Number EventNumber
	Status DTOStatus // DTO and bind completions
	EVD    *EVD      // the dispatcher of the event

	// DTO and bind completions, and connection events.
	EP *EP

	// DTO and bind completions.
	Cookie       Cookie
	Length       uint64 // bytes transferred; defined on success only; of DTOReceiveWriteImm not in the receive
	Operation    DTOOperation
	HasImmediate bool   // Extension. Immediate is set
	Immediate    uint32 // Extension.
	RMRContext   uint32 // Extension. the context that a Send invalidated
	RawStatus    uint32 // Extension. the fabric's own status (ibv_wc_status) and vendor code, where Status is an error
	VendorError  uint32 // Extension.

	Reason uint32 // asynchronous events
	RMR    *RMR   // bind completions

	// Connection requests. CR must not be used after accept, reject or handoff.
	CR *CR

	// Object is the service point of a connection request (nil for a reserved one, which is gone), or
	// what an asynchronous event is about.
	Object Handle

	// Software is the payload of a software event.
	Software any

	places *atomic.Int32   // of a shared queue's receive: to be decremented when the event is taken
	conn   *connectionData // of connection events and requests; nil: none
}

// connectionData is set in connection events and connection requests only.
type connectionData struct {
	qual    ConnQual
	private []byte
	padded  bool
	failure *connectError // see Err
}

// PrivateData is the peer's private data, in ESTABLISHED at the active end, in PEER_REJECTED, and
// in the NON_PEER_REJECTED of a program that is no DAT Consumer. It stays valid.
//
// Extension. It is part of the event data.
func (e Event) PrivateData() []byte { return e.connection().private }

// PrivateDataPadded means that PrivateData is padded with zeroes to the size of the connection
// manager's message, because the peer is no program of this library. Otherwise PrivateData is
// exact.
//
// Extension.
func (e Event) PrivateDataPadded() bool { return e.connection().padded }

// ConnQual is the qualifier to which a connection request came.
//
// Extension. It is part of the event data.
func (e Event) ConnQual() ConnQual { return e.connection().qual }

func (e Event) connection() connectionData {
	if e.conn == nil {
		return connectionData{}
	}
	return *e.conn
}

// freePlace frees the event's place in its shared queue: the Consumer has taken the event, or never
// will.
func (e *Event) freePlace() {
	if e.places != nil {
		e.places.Add(-1)
	}
}

// LocalAddr is the local address to which a connection request came.
//
// Extension. It is part of the event data.
func (e *Event) LocalAddr() netip.Addr {
	if e == nil || e.CR == nil {
		return netip.Addr{}
	}
	return e.CR.localAddr
}

// Err is why a connection event is not ESTABLISHED: the fabric's error with its errno and, if a
// peer did not answer, what was awaited and what to check. It is syscall.EAGAIN if the queue of the
// listener may have been full: trying again may help. It is nil for other events, for
// DISCONNECTED, and if no more is known than the event's number.
//
// Extension.
func (e *Event) Err() error {
	if e.conn == nil || e.conn.failure == nil {
		return nil
	}
	return e.conn.failure
}
