//go:build linux && cgo

package cverbs

// #include "shim.h"
// #cgo noescape cv_poll_cq_ex
// #cgo nocallback cv_poll_cq_ex
import "C"

import (
	"fmt"
	"syscall"
	"unsafe"
)

// CreateCQEx creates an extended completion queue. PollEx returns its completions with all selected
// fields. Poll, PollSpin and [Turn.Run] work too, but return only the fields of WC. In all other
// respects the queue is like one of CreateCQ. Errors: EINVAL for bad arguments; ErrNotSupported if
// the device has no extended queues, or does not support the fields. Soft-RoCE supports only
// WCFieldsStandard.
//
// Implements: ibv_create_cq_ex, ibv_cq_ex_to_cq.
func (c *Context) CreateCQEx(init CQInit) (*CQ, error) {
	c = orZero(c)
	const verb = "ibv_create_cq_ex"
	if init.Fields == 0 {
		init.Fields = WCFieldsStandard
	}
	in := C.struct_cv_cq_init{fields: C.uint64_t(init.Fields), flags: C.uint32_t(init.Flags)}
	var parents []*life
	switch d := init.Domain; {
	case init.Fields&^wcFieldsKnown != 0:
		return nil, badArg(verb, "Fields %#x are unknown", uint32(init.Fields&^wcFieldsKnown))
	case init.Flags&^cqFlagsKnown != 0:
		return nil, badArg(verb, "Flags %#x are unknown", uint32(init.Flags&^cqFlagsKnown))
	case d != nil && d.td == nil:
		return nil, badArg(verb, "Domain is not a parent domain: PD.AllocParentDomain makes one")
	case d != nil && d.ctx != c:
		return nil, badArg(verb, "Domain is of another device context")
	case d != nil:
		parents = []*life{&d.life}
	}
	q, ch, err := c.newCQ(verb, &init, parents)
	if err != nil {
		return nil, err
	}
	if init.Domain != nil {
		in.domain = init.Domain.c
	}
	q.alone.on = init.Flags&CQSingleThreaded != 0 || init.Domain != nil
	q.how |= C.CV_EXTENDED | C.uint32_t(init.Fields)
	v, err := C.cv_create_cq_ex(c.c, C.int(init.Depth), C.uintptr_t(q.h), ch, C.int(init.Vector), &in)
	if err := q.finish(verb, v, err, init.Depth); err != nil {
		if e := err.(*Error); e.Errno == syscall.EOPNOTSUPP {
			e.Advice = fmt.Sprintf("the device has no extended completion queues, or not with the fields %v and the flags %v",
				init.Fields, init.Flags)
		}
		return nil, err
	}
	return q, nil
}

// PollEx polls an extended queue again and again until the queue has a completion. The parameter
// polls, from 1 to MaxPolls, limits the number of polls. All polls together need one crossing into
// C. PollEx takes up to len(wc) completions and returns their number. Fewer than len(wc) means that
// the queue is empty. PollEx does not allocate. Like PollSpin, it keeps the caller's thread and
// yields every 2 ms. Errors: EINVAL if polls is out of range, and for a queue of CreateCQ;
// ErrClosed.
//
// Implements: ibv_start_poll, ibv_next_poll, ibv_end_poll, ibv_wc_read_opcode,
// ibv_wc_read_vendor_err, ibv_wc_read_byte_len, ibv_wc_read_imm_data, ibv_wc_read_invalidated_rkey,
// ibv_wc_read_qp_num, ibv_wc_read_src_qp, ibv_wc_read_wc_flags, ibv_wc_read_slid, ibv_wc_read_sl,
// ibv_wc_read_dlid_path_bits, ibv_wc_read_completion_ts, ibv_wc_read_completion_wallclock_ns,
// ibv_wc_read_cvlan, ibv_wc_read_flow_tag, ibv_wc_read_tm_info.
func (q *CQ) PollEx(wc []WCEx, polls int) (int, error) {
	q = orZero(q)
	const verb = "ibv_start_poll"
	switch {
	case polls < 1 || polls > MaxPolls:
		return 0, badArg(verb, "polls %d is not in 1..%d", polls, MaxPolls)
	case q.how&C.CV_EXTENDED == 0 || len(wc) == 0:
		if err := q.gate.err(); err != nil || len(wc) == 0 {
			return 0, err
		}
		return 0, badArg(verb, "the completion queue is not an extended one: CreateCQEx makes one")
	}
	q.alone.use()
	return pollResult(int(C.cv_poll_cq_ex(q.gate.c(), unsafe.Pointer(unsafe.SliceData(wc)), C.sizeof_struct_cv_wc_ex,
		C.uint32_t(min(len(wc), 1<<20)), C.uint32_t(polls), q.how)))
}

// Clock returns the device's clock, in the same ticks as [WCEx.Timestamp]. A millisecond has
// DeviceAttr.HCACoreClock ticks. Errors: ErrNotSupported if the device has no clock to read.
//
// Implements: ibv_query_rt_values_ex.
func (c *Context) Clock() (ticks uint64, err error) {
	c = orZero(c)
	if !c.life.enter() {
		return 0, ErrClosed
	}
	defer c.life.leave()
	var t C.uint64_t
	if rc := C.cv_clock(c.c, &t); rc != 0 {
		return 0, rcError("ibv_query_rt_values_ex", rc, nil)
	}
	return uint64(t), nil
}
