package udat

import "strconv"

// ReturnType is the type part of a DAT_RETURN: what kind of failure an Error is. The values are those of DAT 1.2.
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
	LengthError               ReturnType = 0x00080000 // the buffer that shall take the data is too small
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

// String is the major text of dat_strerror.
func (t ReturnType) String() string {
	if s, ok := returnText[t]; ok {
		return s
	}
	return "return type 0x" + strconv.FormatUint(uint64(t), 16)
}

// Strerror gives the major and minor text of a DAT_RETURN value, as Error.Code makes it. An undefined code is
// InvalidParameter; Success is a defined one.
//
// Implements: dat_strerror.
func Strerror(code uint32) (major, minor string, err error) {
	t, s := ReturnType(code&typeMask), Subtype(code&subtypeMask)
	text, known := returnText[t]
	if !known || int(s) >= len(subtypeText) || (t == Success) != (code&classError == 0) {
		return "", "", fail("strerror", InvalidParameter, SubArg1, "0x%08x is no DAT return code", code)
	}
	return text, s.String(), nil
}
