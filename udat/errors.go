package udat

import (
	"errors"
	"fmt"

	"github.com/godat/godat/udat/internal/fabric"
)

// Error is a DAT_RETURN other than DAT_SUCCESS. errors.Is compares it with the Err values below by type, and by
// subtype where they have one; the fabric's own cause (an errno, a verb) stays reachable through Unwrap.
type Error struct {
	Op      string // the call: "ep_post_send"
	Type    ReturnType
	Subtype Subtype
	Err     error // the cause or the detail; may be nil
}

// The return types as errors to compare with.
var (
	ErrAbort                     = &Error{Type: Abort}
	ErrConnQualInUse             = &Error{Type: ConnQualInUse}
	ErrInsufficientResources     = &Error{Type: InsufficientResources}
	ErrInternalError             = &Error{Type: InternalError}
	ErrInvalidHandle             = &Error{Type: InvalidHandle}
	ErrInvalidParameter          = &Error{Type: InvalidParameter}
	ErrInvalidState              = &Error{Type: InvalidState}
	ErrLengthError               = &Error{Type: LengthError}
	ErrModelNotSupported         = &Error{Type: ModelNotSupported}
	ErrProviderNotFound          = &Error{Type: ProviderNotFound}
	ErrPrivilegesViolation       = &Error{Type: PrivilegesViolation}
	ErrProtectionViolation       = &Error{Type: ProtectionViolation}
	ErrQueueEmpty                = &Error{Type: QueueEmpty}
	ErrQueueFull                 = &Error{Type: QueueFull}
	ErrTimeoutExpired            = &Error{Type: TimeoutExpired}
	ErrProviderAlreadyRegistered = &Error{Type: ProviderAlreadyRegistered}
	ErrProviderInUse             = &Error{Type: ProviderInUse}
	ErrInvalidAddress            = &Error{Type: InvalidAddress}
	ErrInterruptedCall           = &Error{Type: InterruptedCall}
	ErrConnQualUnavailable       = &Error{Type: ConnQualUnavailable}
	ErrNotImplemented            = &Error{Type: NotImplemented}
)

// WithSubtype is an error to compare with by type and subtype: errors.Is(err, udat.WithSubtype(udat.InvalidState,
// udat.SubStateEVDWaiter)).
//
// Extension.
func WithSubtype(t ReturnType, s Subtype) *Error { return &Error{Type: t, Subtype: s} }

// Error names the call, the type, the subtype and the cause. Where an argument is wrong, it counts those of the Go call, without the
// receiver; Subtype counts those of the C call.
func (e *Error) Error() string {
	text := "udat: "
	if e.Op != "" {
		text += e.Op + ": "
	}
	text += e.Type.String()
	switch {
	case e.Subtype >= SubArg1 && e.Subtype <= SubArg10 && e.Op != "":
		text += " (" + goArgument(e.Op, e.Subtype) + ")"
	case e.Subtype != SubNone:
		text += " (" + e.Subtype.String() + ")"
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is matches an *Error of the same type, and of the same subtype where target has one.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Type == e.Type && (t.Subtype == SubNone || t.Subtype == e.Subtype)
}

// Code is the DAT_RETURN value: class, type and subtype.
//
// Extension.
func (e *Error) Code() uint32 { return classError | uint32(e.Type) | uint32(e.Subtype) }

// fail makes an Error whose detail is formatted; %w keeps a cause.
func fail(op string, t ReturnType, s Subtype, format string, args ...any) *Error {
	return &Error{Op: op, Type: t, Subtype: s, Err: fmt.Errorf(format, args...)}
}

// fabricErrors says what a fabric's error is in DAT.
var fabricErrors = []struct {
	is  error
	t   ReturnType
	sub Subtype
}{
	{fabric.ErrQueueFull, InsufficientResources, SubNone},
	{fabric.ErrResources, InsufficientResources, SubNone},
	{fabric.ErrNotSupported, ModelNotSupported, SubNone},
	{fabric.ErrAddrInUse, ConnQualInUse, SubNone},
	{fabric.ErrAddrDenied, ConnQualUnavailable, SubNone},
	{fabric.ErrAddrInvalid, InvalidAddress, SubAddressUnsupported},
	{fabric.ErrInvalid, InvalidParameter, SubNone},
	{fabric.ErrQPState, InvalidState, SubStateEPNotReady},
	{fabric.ErrInUse, InvalidState, SubNone},
	{fabric.ErrClosed, InvalidHandle, SubNone},
	{fabric.ErrDeviceRemoved, InternalError, SubResourceDevice},
	{fabric.ErrNoDevice, ProviderNotFound, SubNameNotRegistered},
}

// failAs makes an Error of a fabric's error. short is the subtype if resources ran out.
func failAs(op string, cause error, short Subtype) *Error {
	for _, m := range fabricErrors {
		if !errors.Is(cause, m.is) {
			continue
		}
		if m.t == InsufficientResources {
			m.sub = short
		}
		return &Error{Op: op, Type: m.t, Subtype: m.sub, Err: cause}
	}
	return &Error{Op: op, Type: InternalError, Err: cause}
}
