//go:build linux && cgo

package cverbs

// #include "shim.h"
import "C"

import "math"

// Counters is a set of counters of the device, which count packets or bytes of flows.
type Counters struct {
	life life
	c    *C.struct_ibv_counters
}

// CreateCounters creates counters, which count nothing before Attach. Errors: ErrNotSupported.
//
// Implements: ibv_create_counters.
func (c *Context) CreateCounters() (*Counters, error) {
	c = orZero(c)
	k := &Counters{}
	return made(k, &k.life, kindCounters, "ibv_create_counters", &k.c, func() (*C.struct_ibv_counters, error) {
		var attr C.struct_ibv_counters_init_attr
		v, err := C.ibv_create_counters(c.c, &attr)
		return v, err
	}, &c.life)
}

// Attach makes a counter count the packets or the bytes of a flow. The parameter index selects the
// counter. If flow is nil, the counter counts for every flow that is created with these Counters in
// a FlowCount. In this case call Attach before CreateFlow. Errors: ErrNotSupported.
//
// Implements: ibv_attach_counters_point_flow.
func (k *Counters) Attach(flow *Flow, what CounterKind, index uint32) error {
	k = orZero(k)
	if !k.life.enter() {
		return ErrClosed
	}
	defer k.life.leave()
	var f *C.struct_ibv_flow
	if flow != nil {
		if !flow.life.enter() {
			return ErrClosed
		}
		defer flow.life.leave()
		f = flow.c
	}
	attr := C.struct_ibv_counter_attach_attr{counter_desc: uint32(what), index: C.uint32_t(index)}
	rc, err := C.ibv_attach_counters_point_flow(k.c, &attr, f)
	return rcError("ibv_attach_counters_point_flow", rc, err)
}

// Read stores the counters with the indexes 0 to len(values)-1 in values. Each is the number of
// packets or bytes since Attach. Errors: EINVAL if values is empty, or longer than the number of
// attached counters.
//
// Implements: ibv_read_counters.
func (k *Counters) Read(values []uint64, flags ReadCountersFlags) error {
	k = orZero(k)
	const verb = "ibv_read_counters"
	if len(values) == 0 || len(values) > math.MaxInt32 {
		return badArg(verb, "%d values: it takes 1 to %d", len(values), math.MaxInt32)
	}
	if !k.life.enter() {
		return ErrClosed
	}
	defer k.life.leave()
	rc, err := C.ibv_read_counters(k.c, (*C.uint64_t)(&values[0]), C.uint32_t(len(values)), C.uint32_t(flags))
	return rcError(verb, rc, err)
}

// Close destroys the counters. Errors: ErrInUse while a flow uses them.
//
// Implements: ibv_destroy_counters.
func (k *Counters) Close() error {
	k = orZero(k)
	return k.life.close(nil, func() error {
		rc, err := C.ibv_destroy_counters(k.c)
		return rcError("ibv_destroy_counters", rc, err)
	})
}
