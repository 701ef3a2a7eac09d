package udat

import "strconv"

// ReturnType is the type part of a DAT_RETURN: the kind of failure. The values are those of DAT
// 1.2.
type ReturnType uint32

// Return types.
const (
	Success                   ReturnType = 0x00000000
	Abort                     ReturnType = 0x00010000 // the adapter was closed or the dispatcher freed during a wait
	ConnQualInUse             ReturnType = 0x00020000
	InsufficientResources     ReturnType = 0x00030000
	InternalError             ReturnType = 0x00040000
	InvalidHandle             ReturnType = 0x00050000
	InvalidParameter          ReturnType = 0x00060000
	InvalidState              ReturnType = 0x00070000
	LengthError               ReturnType = 0x00080000 // the buffer for the data is too small
	ModelNotSupported         ReturnType = 0x00090000
	ProviderNotFound          ReturnType = 0x000A0000
	PrivilegesViolation       ReturnType = 0x000B0000 // the memory region lacks the access right
	ProtectionViolation       ReturnType = 0x000C0000 // the protection zones differ
	QueueEmpty                ReturnType = 0x000D0000
	QueueFull                 ReturnType = 0x000E0000
	TimeoutExpired            ReturnType = 0x000F0000
	ProviderAlreadyRegistered ReturnType = 0x00100000
	ProviderInUse             ReturnType = 0x00110000
	InvalidAddress            ReturnType = 0x00120000
	InterruptedCall           ReturnType = 0x00130000
	ConnQualUnavailable       ReturnType = 0x00140000
	NotImplemented            ReturnType = 0x0FFF0000
)

const (
	classError  = 0x80000000
	typeMask    = 0x3FFF0000
	subtypeMask = 0x0000FFFF
)

var returnText = map[ReturnType]string{
	Success:                   "success",
	Abort:                     "aborted",
	ConnQualInUse:             "connection qualifier is in use",
	InsufficientResources:     "insufficient resources",
	InternalError:             "internal error",
	InvalidHandle:             "invalid handle",
	InvalidParameter:          "invalid parameter",
	InvalidState:              "invalid state",
	LengthError:               "length error",
	ModelNotSupported:         "model not supported",
	ProviderNotFound:          "provider not found",
	PrivilegesViolation:       "privileges violation",
	ProtectionViolation:       "protection violation",
	QueueEmpty:                "queue is empty",
	QueueFull:                 "queue is full",
	TimeoutExpired:            "timeout expired",
	ProviderAlreadyRegistered: "provider is already registered",
	ProviderInUse:             "provider is in use",
	InvalidAddress:            "invalid address",
	InterruptedCall:           "interrupted call",
	ConnQualUnavailable:       "connection qualifier is unavailable",
	NotImplemented:            "not implemented",
}

// String returns the major text of dat_strerror.
func (t ReturnType) String() string {
	if s, ok := returnText[t]; ok {
		return s
	}
	return "return type 0x" + strconv.FormatUint(uint64(t), 16)
}

// Subtype qualifies a ReturnType. The values are those of DAT 1.2 and form one enumeration.
type Subtype uint16

// Subtypes. The prefix tells what a subtype names. The last four subtypes name the reason why Open
// did not find the adapter.
//
//   - SubResource: the resource that is exhausted
//   - SubHandle: the handle that is invalid
//   - SubArg: the argument that is wrong
//   - SubState: the state of the object
//   - SubPrivileges: the access right that is missing
//   - SubProtection: the access for which the zones differ
//   - SubAddress: what is wrong with an address
const (
	SubNone Subtype = iota
	SubInterrupted
	SubResourceMemory
	SubResourceDevice
	SubResourceTEP
	SubResourceTEVD
	SubResourceProtectionDomain
	SubResourceMemoryRegion
	SubResourceErrorHandler
	SubResourceCredits
	SubResourceSRQ
	SubHandleIA
	SubHandleEP
	SubHandleLMR
	SubHandleRMR
	SubHandlePZ
	SubHandlePSP
	SubHandleRSP
	SubHandleCR
	SubHandleCNO
	SubHandleEVDCR
	SubHandleEVDRequest
	SubHandleEVDRecv
	SubHandleEVDConn
	SubHandleEVDAsync
	SubHandleSRQ
	SubHandle1
	SubHandle2
	SubHandle3
	SubHandle4
	SubHandle5
	SubHandle6
	SubHandle7
	SubHandle8
	SubHandle9
	SubHandle10
	SubArg1
	SubArg2
	SubArg3
	SubArg4
	SubArg5
	SubArg6
	SubArg7
	SubArg8
	SubArg9
	SubArg10
	SubStateEPUnconnected
	SubStateEPActConnPending
	SubStateEPPassConnPending
	SubStateEPTentConnPending
	SubStateEPConnected
	SubStateEPDisconnected
	SubStateEPReserved
	SubStateEPComplPending
	SubStateEPDiscPending
	SubStateEPProviderControl
	SubStateEPNotReady
	SubStateEPRecvWatermark
	SubStateEPPZ
	SubStateEPEVDRequest
	SubStateEPEVDRecv
	SubStateEPEVDConnect
	SubStateEPUnconfigured
	SubStateEPUnconfReserved
	SubStateEPUnconfPassive
	SubStateEPUnconfTentative
	SubStateCNOInUse
	SubStateCNODead
	SubStateEVDOpen
	SubStateEVDEnabled
	SubStateEVDDisabled
	SubStateEVDWaitable
	SubStateEVDUnwaitable
	SubStateEVDInUse
	SubStateEVDConfigNotify
	SubStateEVDConfigSolicited
	SubStateEVDConfigThreshold
	SubStateEVDWaiter
	SubStateEVDAsync
	SubStateIAInUse
	SubStateLMRInUse
	SubStateLMRFree
	SubStatePZInUse
	SubStatePZFree
	SubStateSRQOperational
	SubStateSRQError
	SubStateSRQInUse
	SubPrivilegesRead
	SubPrivilegesWrite
	SubPrivilegesRDMARead
	SubPrivilegesRDMAWrite
	SubProtectionRead
	SubProtectionWrite
	SubProtectionRDMARead
	SubProtectionRDMAWrite
	SubAddressUnsupported
	SubAddressUnreachable
	SubAddressMalformed
	SubNameNotRegistered
	SubMajorNotFound
	SubMinorNotFound
	SubThreadSafetyNotFound
)

var subtypeText = [...]string{
	SubNone:                     "no subtype",
	SubInterrupted:              "interrupted",
	SubResourceMemory:           "memory",
	SubResourceDevice:           "device",
	SubResourceTEP:              "queue pair",
	SubResourceTEVD:             "completion queue",
	SubResourceProtectionDomain: "protection domain",
	SubResourceMemoryRegion:     "memory region",
	SubResourceErrorHandler:     "error handler",
	SubResourceCredits:          "credits",
	SubResourceSRQ:              "shared receive queue",
	SubHandleIA:                 "interface adapter",
	SubHandleEP:                 "endpoint",
	SubHandleLMR:                "local memory region",
	SubHandleRMR:                "remote memory region",
	SubHandlePZ:                 "protection zone",
	SubHandlePSP:                "public service point",
	SubHandleRSP:                "reserved service point",
	SubHandleCR:                 "connection request",
	SubHandleCNO:                "notification object",
	SubHandleEVDCR:              "event dispatcher for connection requests",
	SubHandleEVDRequest:         "event dispatcher for requests",
	SubHandleEVDRecv:            "event dispatcher for receives",
	SubHandleEVDConn:            "event dispatcher for connection events",
	SubHandleEVDAsync:           "event dispatcher for asynchronous events",
	SubHandleSRQ:                "shared receive queue",
	SubHandle1:                  "handle 1",
	SubHandle2:                  "handle 2",
	SubHandle3:                  "handle 3",
	SubHandle4:                  "handle 4",
	SubHandle5:                  "handle 5",
	SubHandle6:                  "handle 6",
	SubHandle7:                  "handle 7",
	SubHandle8:                  "handle 8",
	SubHandle9:                  "handle 9",
	SubHandle10:                 "handle 10",
	SubArg1:                     "argument 1",
	SubArg2:                     "argument 2",
	SubArg3:                     "argument 3",
	SubArg4:                     "argument 4",
	SubArg5:                     "argument 5",
	SubArg6:                     "argument 6",
	SubArg7:                     "argument 7",
	SubArg8:                     "argument 8",
	SubArg9:                     "argument 9",
	SubArg10:                    "argument 10",
	SubStateEPUnconnected:       "endpoint is unconnected",
	SubStateEPActConnPending:    "endpoint is connecting",
	SubStateEPPassConnPending:   "endpoint awaits the answer to its connection request",
	SubStateEPTentConnPending:   "endpoint belongs to an unanswered connection request",
	SubStateEPConnected:         "endpoint is connected",
	SubStateEPDisconnected:      "endpoint is disconnected",
	SubStateEPReserved:          "endpoint is reserved by a service point",
	SubStateEPComplPending:      "endpoint is completing an accept",
	SubStateEPDiscPending:       "endpoint is disconnecting",
	SubStateEPProviderControl:   "endpoint is under the provider's control",
	SubStateEPNotReady:          "endpoint is not ready",
	SubStateEPRecvWatermark:     "receive watermark",
	SubStateEPPZ:                "endpoint's protection zone",
	SubStateEPEVDRequest:        "endpoint's request event dispatcher",
	SubStateEPEVDRecv:           "endpoint's receive event dispatcher",
	SubStateEPEVDConnect:        "endpoint's connection event dispatcher",
	SubStateEPUnconfigured:      "endpoint is not configured",
	SubStateEPUnconfReserved:    "reserved endpoint is not configured",
	SubStateEPUnconfPassive:     "passive endpoint is not configured",
	SubStateEPUnconfTentative:   "tentative endpoint is not configured",
	SubStateCNOInUse:            "notification object is in use",
	SubStateCNODead:             "notification object is going away",
	SubStateEVDOpen:             "event dispatcher is open",
	SubStateEVDEnabled:          "event dispatcher is enabled",
	SubStateEVDDisabled:         "event dispatcher is disabled",
	SubStateEVDWaitable:         "event dispatcher is waitable",
	SubStateEVDUnwaitable:       "event dispatcher is unwaitable",
	SubStateEVDInUse:            "event dispatcher is in use",
	SubStateEVDConfigNotify:     "event dispatcher notifies by default",
	SubStateEVDConfigSolicited:  "event dispatcher notifies on solicited events",
	SubStateEVDConfigThreshold:  "event dispatcher notifies by threshold",
	SubStateEVDWaiter:           "event dispatcher has a waiter",
	SubStateEVDAsync:            "an asynchronous event dispatcher is required",
	SubStateIAInUse:             "interface adapter is in use",
	SubStateLMRInUse:            "local memory region is in use",
	SubStateLMRFree:             "local memory region is free",
	SubStatePZInUse:             "protection zone is in use",
	SubStatePZFree:              "protection zone is free",
	SubStateSRQOperational:      "shared receive queue is operational",
	SubStateSRQError:            "shared receive queue is in error",
	SubStateSRQInUse:            "shared receive queue is in use",
	SubPrivilegesRead:           "local read",
	SubPrivilegesWrite:          "local write",
	SubPrivilegesRDMARead:       "remote read",
	SubPrivilegesRDMAWrite:      "remote write",
	SubProtectionRead:           "local read",
	SubProtectionWrite:          "local write",
	SubProtectionRDMARead:       "remote read",
	SubProtectionRDMAWrite:      "remote write",
	SubAddressUnsupported:       "address form is not supported",
	SubAddressUnreachable:       "address is unreachable",
	SubAddressMalformed:         "address is malformed",
	SubNameNotRegistered:        "name is not registered",
	SubMajorNotFound:            "major version not found",
	SubMinorNotFound:            "minor version not found",
	SubThreadSafetyNotFound:     "thread safety not found",
}

// String returns the minor text of dat_strerror.
func (s Subtype) String() string {
	if int(s) < len(subtypeText) {
		return subtypeText[s]
	}
	return "subtype " + strconv.Itoa(int(s))
}
