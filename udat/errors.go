package udat

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"syscall"

	"github.com/godat/godat/udat/internal/fabric"
)

// Error is a DAT_RETURN other than DAT_SUCCESS. errors.Is compares an Error with the Err values
// below by type, and also by subtype if the value has a subtype. Unwrap returns the fabric's own
// error, such as an errno or the error of a verb.
type Error struct {
	Op      string // the name of the call: "ep_post_send"
	Type    ReturnType
	Subtype Subtype
	Err     error // the cause or a detail; nil if there is none
}

// The return types as errors, for errors.Is.
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

// WithSubtype returns an error to compare with by type and subtype, as in errors.Is(err,
// udat.WithSubtype(udat.InvalidState, udat.SubStateEVDWaiter)).
//
// Extension.
func WithSubtype(t ReturnType, s Subtype) *Error { return &Error{Type: t, Subtype: s} }

// Error returns a text with the call, the type, the subtype and the cause. If an argument is wrong,
// the text contains the argument's number in the Go call, not counting the receiver; Subtype
// contains its number in the C call.
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

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is reports whether target is an *Error of the same type and, if target has a subtype, of the same
// subtype.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Type == e.Type && (t.Subtype == SubNone || t.Subtype == e.Subtype)
}

// Code returns the DAT_RETURN value: class, type and subtype.
//
// Extension.
func (e *Error) Code() uint32 { return classError | uint32(e.Type) | uint32(e.Subtype) }

// fail makes an Error whose Err is the formatted detail; %w in format wraps a cause.
func fail(op string, t ReturnType, s Subtype, format string, args ...any) *Error {
	return &Error{Op: op, Type: t, Subtype: s, Err: fmt.Errorf(format, args...)}
}

// fabricErrors maps errors of a fabric to DAT types and subtypes.
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

// failAs makes an Error from a fabric's error. The parameter short is the subtype to use if
// resources have run out. If file descriptors have run out, failAs does not use it: DAT has no
// subtype for them, and the cause names their limit.
func failAs(op string, cause error, short Subtype) *Error {
	if short == SubResourceMemory && (errors.Is(cause, syscall.EMFILE) || errors.Is(cause, syscall.ENFILE)) {
		short = SubNone
	}
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

// cArgument names an argument of a C call.
type cArgument struct {
	op string
	n  Subtype
}

// goArguments maps an argument of a C call to its number in the Go call. It lists only arguments
// for which a call can return InvalidParameter. The number in Go of any other argument is its
// number in C minus one, because the first argument in C, the handle, is the receiver in Go.
//
// SubArgN uses the numbers of the C call, because programs compare it with DAT's return codes. The
// text of an error uses the numbers of the Go call, because people read it.
var goArguments = map[cArgument]int{
	{"ia_open", SubArg1}:                      1,
	{"ia_open", SubArg2}:                      2,
	{"registry_add_provider", SubArg1}:        1,
	{"registry_add_provider", SubArg2}:        2,
	{"registry_remove_provider", SubArg1}:     1,
	{"strerror", SubArg1}:                     1,
	{"evd_create", SubArg4}:                   2,
	{"ep_connect", SubArg8}:                   6,
	{"ep_post_send", SubArg3}:                 1,
	{"ep_post_send", SubArg5}:                 3,
	{"ep_post_send_immediate", SubArg3}:       1,
	{"ep_post_send_with_invalidate", SubArg3}: 1,
	{"ep_post_recv", SubArg3}:                 1,
	{"ep_post_recv", SubArg5}:                 3,
	{"srq_post_recv", SubArg3}:                1,
	{"ep_post_rdma_read", SubArg3}:            1,
	{"ep_post_rdma_read", SubArg5}:            3,
	{"ep_post_rdma_read", SubArg6}:            4,
	{"ep_post_rdma_write", SubArg3}:           1,
	{"ep_post_rdma_write", SubArg6}:           4,
	{"ep_post_rdma_read_to_rmr", SubArg2}:     2,
	{"ib_post_rdma_write_immed", SubArg3}:     1,
	{"ib_post_fetch_and_add", SubArg2}:        2,
	{"ib_post_fetch_and_add", SubArg4}:        4,
	{"ib_post_cmp_and_swap", SubArg2}:         3,
	{"ib_post_cmp_and_swap", SubArg3}:         3,
	{"ib_post_cmp_and_swap", SubArg4}:         5,
	{"ib_post_cmp_and_swap", SubArg5}:         5,
	{"ib_post_cmp_and_swap", SubArg6}:         6,
	{"lmr_create", SubArg4}:                   2,
	{"lmr_create", SubArg6}:                   3,
	{"lmr_create_shared", SubArg4}:            2,
	{"lmr_create_shared", SubArg6}:            4,
	{"psp_create_any", SubArg4}:               2,
}

// goArgument returns the text that names a wrong argument.
func goArgument(op string, s Subtype) string {
	n, ok := goArguments[cArgument{op, s}]
	if !ok {
		n = int(s - SubArg1)
	}
	if n == 0 {
		return "receiver"
	}
	return "argument " + strconv.Itoa(n)
}

// attrArgument returns the subtype for the argument of the C call that holds the attributes.
func attrArgument(op string) Subtype {
	switch op {
	case "ep_create_with_srq":
		return SubArg7
	case "ep_modify":
		return SubArg3
	}
	return SubArg6
}

// Strerror returns the major and minor text of a DAT_RETURN value, which [Error.Code] returns for
// an error. Success has a text too. For an undefined code it returns InvalidParameter.
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

// contextError returns the error of a call that has ended because of its context. The error's type
// is onTimeout if the context's deadline has passed, else InterruptedCall.
func contextError(op string, onTimeout ReturnType, cause error) *Error {
	if errors.Is(cause, context.DeadlineExceeded) {
		return &Error{Op: op, Type: onTimeout, Err: cause}
	}
	return &Error{Op: op, Type: InterruptedCall, Err: cause}
}

// connectError is the reason why a connection was not made or has ended.
type connectError struct {
	text  string
	cause error
}

func (e *connectError) Error() string { return e.text }

func (e *connectError) Unwrap() error { return e.cause }
