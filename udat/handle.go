package udat

import (
	"strconv"
	"sync/atomic"
)

// HandleType is the kind of a DAT object.
type HandleType uint32

// Handle types.
const (
	HandleCR HandleType = iota
	HandleEP
	HandleEVD
	HandleIA
	HandleLMR
	HandlePSP
	HandlePZ
	HandleRMR
	HandleRSP
	HandleCNO
	HandleSRQ
	handleKinds
)

var handleText = [...]string{"CR", "EP", "EVD", "IA", "LMR", "PSP", "PZ", "RMR", "RSP", "CNO", "SRQ"}

// String is the kind as DAT abbreviates it: "EP" for DAT_HANDLE_TYPE_EP.
func (t HandleType) String() string {
	if uint(t) < uint(len(handleText)) {
		return handleText[t]
	}
	return "handle type " + strconv.FormatUint(uint64(t), 10)
}

// handleSubtype is what INVALID_HANDLE says of each kind.
var handleSubtype = [handleKinds]Subtype{
	HandleCR: SubHandleCR, HandleEP: SubHandleEP, HandleEVD: SubNone, HandleIA: SubHandleIA, HandleLMR: SubHandleLMR,
	HandlePSP: SubHandlePSP, HandlePZ: SubHandlePZ, HandleRMR: SubHandleRMR, HandleRSP: SubHandleRSP,
	HandleCNO: SubHandleCNO, HandleSRQ: SubHandleSRQ,
}

// Handle is any DAT object: *IA, *EVD, *CNO, *EP, *PZ, *LMR, *RMR, *SRQ, *PSP, *RSP or *CR.
type Handle interface {
	object() *object
}

// object is what all DAT objects have in common. refs counts what uses the object and is guarded by ia.mu.
type object struct {
	kind    HandleType
	live    atomic.Bool
	context atomic.Uint64
	ia      *IA
	refs    int
}

// alive reports whether o is an object that has been made and not freed.
func (o *object) alive() bool { return o != nil && o.live.Load() }

// check refuses nil, the zero value and an object that has been freed: InvalidHandle.
func (o *object) check(op string, kind HandleType) error {
	if o.alive() {
		return nil
	}
	return badHandle(op, kind, o)
}

func badHandle(op string, kind HandleType, o *object) *Error {
	what := "is nil"
	switch {
	case o != nil && o.ia == nil:
		what = "is a zero value: only this package's calls make one"
	case o != nil:
		what = "has been freed"
	}
	return fail(op, InvalidHandle, handleSubtype[kind], "the %s %s", kind, what)
}

func liveObject(h Handle) *object {
	if h == nil {
		return nil
	}
	if o := h.object(); o.alive() {
		return o
	}
	return nil
}

// SetConsumerContext attaches 64 bits of the Consumer's to a handle, in place of what was there. The library
// neither looks at them nor orders them with anything.
//
// Implements: dat_set_consumer_context.
func SetConsumerContext(h Handle, context uint64) error {
	o := liveObject(h)
	if o == nil {
		return fail("set_consumer_context", InvalidHandle, SubHandle1, "the handle is nil, zero or has been freed")
	}
	o.context.Store(context)
	return nil
}

// GetConsumerContext gives what SetConsumerContext attached, 0 if nothing.
//
// Implements: dat_get_consumer_context.
func GetConsumerContext(h Handle) (uint64, error) {
	o := liveObject(h)
	if o == nil {
		return 0, fail("get_consumer_context", InvalidHandle, SubHandle1, "the handle is nil, zero or has been freed")
	}
	return o.context.Load(), nil
}

// GetHandleType tells what kind of object a handle is.
//
// Implements: dat_get_handle_type.
func GetHandleType(h Handle) (HandleType, error) {
	o := liveObject(h)
	if o == nil {
		return 0, fail("get_handle_type", InvalidHandle, SubHandle1, "the handle is nil, zero or has been freed")
	}
	return o.kind, nil
}
