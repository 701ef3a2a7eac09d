package udat

import (
	"net/netip"
	"strconv"
	"sync/atomic"
)

// EventNumber is the kind of an Event. The bits above the low 12 identify its stream.
type EventNumber uint32

// Event numbers. DAT 1.2 has no numbers for the SRQ low watermark and the endpoint soft high
// watermark; those two values are this library's.
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

// asyncStream is the bit of the numbers of asynchronous events.
const asyncStream EventNumber = 0x08000

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

// String returns the DAT name of the event: "DAT_CONNECTION_EVENT_ESTABLISHED". The names of the
// two watermark events are this library's own and have no prefix DAT_.
func (n EventNumber) String() string {
	if s, ok := eventText[n]; ok {
		return s
	}
	return "event 0x" + strconv.FormatUint(uint64(n), 16)
}

// DTOOperation is the operation of a completion. The values are those of DAT 2.0 and of its IB
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
	DTOReceiveWriteImm DTOOperation = 9 // a receive that was consumed by an RDMA write with immediate data
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

// String returns the name of the operation in DAT 2.0 or its IB extension: "DAT_DTO_RDMA_WRITE".
func (o DTOOperation) String() string {
	if s, ok := dtoOperationText[o]; ok {
		return s
	}
	return "operation " + strconv.Itoa(int(o))
}

// Reasons of asynchronous events. Their meaning depends on the kind of Event.Object.
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
	ReasonOther               = 0 // LMR, RMR, PZ, PSP, RSP
)

// Event is one event of any stream: a flat value of 128 bytes. Only the fields for its kind are
// set. The fields that every completion sets are in the first 64 bytes.
type Event struct {
	Number EventNumber
	Status DTOStatus // DTO and bind completions
	EVD    *EVD      // the dispatcher that queued the event

	// DTO and bind completions, and connection events.
	EP *EP

	// DTO and bind completions.
	Cookie       Cookie
	Length       uint64 // bytes transferred, if Status is DTOSuccess; for DTOReceiveWriteImm those of the peer's write
	Operation    DTOOperation
	HasImmediate bool   // Extension. Immediate is valid
	Immediate    uint32 // Extension.
	RMRContext   uint32 // Extension. the context that the peer's Send invalidated
	RawStatus    uint32 // Extension. if Status is an error: the fabric's own status (ibv_wc_status)
	VendorError  uint32 // Extension. if Status is an error: the vendor code

	Reason uint32 // asynchronous events
	RMR    *RMR   // bind completions

	// Connection requests. CR must not be used after Accept, Reject or Handoff.
	CR *CR

	// For a connection request, Object is the public service point; it is nil if the service point
	// was a reserved one, which no longer exists. For an asynchronous event, Object is the object
	// concerned.
	Object Handle

	// Software is the payload of a software event.
	Software any

	places *atomic.Int32   // counter to decrement when the event of a shared queue's receive is dequeued; else nil
	conn   *connectionData // nil: none
}

// connectionData has the fields that only connection events, connection requests and events of a
// service point set.
type connectionData struct {
	qual    ConnQual
	private []byte
	padded  bool
	failure error // returned by Err
}

// PrivateData returns the peer's private data, or nil. Three events contain private data:
// ESTABLISHED at the active end, PEER_REJECTED, and NON_PEER_REJECTED if the program that rejected
// the request is no DAT Consumer. The slice stays valid.
//
// Extension. It is part of the event data.
func (e Event) PrivateData() []byte { return e.connection().private }

// PrivateDataPadded reports whether PrivateData may be padded with zeroes to the size of the
// connection manager's message, because the peer's program does not use this library or either end
// has a Linux kernel before 5.9.
//
// Extension.
func (e Event) PrivateDataPadded() bool { return e.connection().padded }

// ConnQual returns the qualifier to which a connection request was sent, or that of the service
// point of an asynchronous event.
//
// Extension. It is part of the event data.
func (e Event) ConnQual() ConnQual { return e.connection().qual }

func (e Event) connection() connectionData {
	if e.conn == nil {
		return connectionData{}
	}
	return *e.conn
}

// freePlace decrements the count of the shared queue, if there is one. It is called when the
// Consumer has dequeued the event, or when the event is dropped.
func (e *Event) freePlace() {
	if e.places != nil {
		e.places.Add(-1)
	}
}

// LocalAddr returns the local address to which a connection request was sent.
//
// Extension. It is part of the event data.
func (e *Event) LocalAddr() netip.Addr {
	if e == nil || e.CR == nil {
		return netip.Addr{}
	}
	return e.CR.localAddr
}

// Err returns the reason why a connection was not made or is broken: the fabric's error with its
// errno and, if a peer did not answer, what the attempt waited for and what to check.
// errors.Is(err, syscall.EAGAIN) is true if the listener's queue may have been full; then another
// attempt may succeed. For an asynchronous event Err returns what has failed or run out, and what
// to do; for EVD_OVERFLOW of the asynchronous dispatcher itself it says how many asynchronous
// events are lost. Err returns nil for completions, for events of watermarks, for DISCONNECTED, and
// if nothing but the event's number is known.
//
// Extension.
func (e *Event) Err() error {
	return e.connection().failure
}
