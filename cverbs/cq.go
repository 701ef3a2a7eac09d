//go:build linux && cgo

package cverbs

// #include "shim.h"
// #cgo noescape cv_req_notify_cq
import "C"

import (
	"fmt"
	"math"
	"runtime"
	"sync/atomic"
	"syscall"
	"unsafe"
)

// CQ is a completion queue.
type CQ struct {
	life  life
	gate  gate
	c     *C.struct_ibv_cq
	ctx   *Context
	h     uintptr
	depth atomic.Int64
	fired atomic.Bool
	armed bool       // the queue has a channel, so Arm works
	how   C.uint32_t // flags for polls in C: CV_EXTENDED, CV_RXE, and the bits of WCFields
	alone serial
}

// CreateCQ creates a completion queue for at least depth completions. If ch is nil, the queue can
// only be polled. The parameter vector is 0 to NumCompVectors-1. An overflow breaks every queue
// pair that uses the queue, so depth must be enough for all their work requests.
//
// Implements: ibv_create_cq.
func (c *Context) CreateCQ(depth int, ch *CompChannel, vector int) (*CQ, error) {
	c = orZero(c)
	const verb = "ibv_create_cq"
	q, cch, err := c.newCQ(verb, &CQInit{Depth: depth, Channel: ch, Vector: vector}, nil)
	if err != nil {
		return nil, err
	}
	v, err := C.cv_create_cq(c.c, C.int(depth), C.uintptr_t(q.h), cch, C.int(vector))
	if err := q.finish(verb, v, err, depth); err != nil {
		return nil, err
	}
	return q, nil
}

// newCQ checks the fields of init that ordinary and extended queues share, and references the
// queue's parents (see type life). The caller must create the C queue and call finish.
func (c *Context) newCQ(verb string, init *CQInit, parents []*life) (*CQ, *C.struct_ibv_comp_channel, error) {
	ch := init.Channel
	if init.Depth < 1 || init.Depth > math.MaxInt32 {
		return nil, nil, badArg(verb, "depth %d is not in 1..%d", init.Depth, math.MaxInt32)
	}
	q := &CQ{ctx: c, armed: ch != nil}
	if c.rxe != 0 {
		q.how = C.CV_RXE
	}
	parents = append(parents, &c.life)
	if ch != nil {
		parents = append(parents, &ch.life)
	}
	if err := q.life.begin(kindCQ, parents...); err != nil {
		return nil, nil, err
	}
	if n := int(c.c.num_comp_vectors); init.Vector < 0 || init.Vector >= max(n, 1) {
		q.life.abort()
		return nil, nil, badArg(verb, "vector %d is not in 0..%d", init.Vector, max(n, 1)-1)
	}
	var cch *C.struct_ibv_comp_channel
	if ch != nil {
		if ch.c.context != c.c {
			q.life.abort()
			return nil, nil, badArg(verb, "the completion channel is of another device context")
		}
		cch = ch.c
	}
	q.h = byHandle.cqs.add(q)
	return q, cch, nil
}

// adviseDepth adds the likely cause to an EINVAL of a call that takes the depth of a queue.
func adviseDepth(err error, depth int) error {
	if e, ok := err.(*Error); ok && e.Errno == syscall.EINVAL {
		e.Advice = fmt.Sprintf("depth %d may be beyond the device's limit (DeviceAttr.MaxCQE)", depth)
	}
	return err
}

// finish opens the queue with the C queue v. If v is nil, finish undoes newCQ and returns an error
// with the errno in err.
func (q *CQ) finish(verb string, v *C.struct_ibv_cq, err error, depth int) error {
	if v == nil {
		byHandle.cqs.remove(q.h)
		q.life.abort()
		return adviseDepth(pinError(verb, errnoOf(err), 0), depth)
	}
	q.c = v
	q.depth.Store(int64(v.cqe))
	q.gate.open(unsafe.Pointer(v))
	q.life.open()
	return nil
}

// Poll takes up to len(wc) completions and returns their number. Fewer than len(wc) means that the
// queue is empty. Poll does not allocate. Errors: ErrClosed.
//
// Implements: ibv_poll_cq.
func (q *CQ) Poll(wc []WC) (int, error) { return orZero(q).poll(wc, 1) }

// PollSpin polls the queue again and again until the queue has a completion. The parameter polls,
// from 1 to MaxPolls, limits the number of polls. All polls together need one crossing into C.
// PollSpin is for a loop that expects a completion soon. The call keeps the caller's thread and
// processor (P). Every 2 ms it yields to other goroutines, because the runtime interrupts a
// goroutine that does not yield. Errors: ErrClosed; EINVAL if polls is out of range.
//
// Extension.
func (q *CQ) PollSpin(wc []WC, polls int) (int, error) {
	q = orZero(q)
	if polls < 1 || polls > MaxPolls {
		return 0, badArg("ibv_poll_cq", "polls %d is not in 1..%d", polls, MaxPolls)
	}
	return q.poll(wc, polls)
}

func (q *CQ) poll(wc []WC, polls int) (int, error) {
	if len(wc) == 0 {
		return 0, q.gate.err()
	}
	q.alone.use()
	return pollResult(int(callPoll(&q.gate, (*C.struct_ibv_wc)(unsafe.Pointer(unsafe.SliceData(wc))),
		C.uint32_t(min(len(wc), 1<<20)), C.uint32_t(polls), q.how)))
}

// pollResult converts the result of cv_poll_cq or cv_poll_cq_ex into a count and an error.
func pollResult(n int) (int, error) {
	if uint(n) < C.CV_YIELD {
		return n, nil
	}
	return rarePollResult(n)
}

// rarePollResult converts the rare results: an error, or a count with CV_YIELD. For a count with
// CV_YIELD it yields to other goroutines.
func rarePollResult(n int) (int, error) {
	switch {
	case n == C.CV_CLOSED:
		return 0, ErrClosed
	case n < 0:
		return 0, &Error{Verb: "ibv_poll_cq", Errno: syscall.Errno(-n)}
	}
	runtime.Gosched()
	return n ^ C.CV_YIELD, nil
}

// Arm requests one event on the queue's channel. The next completion causes the event. If
// solicitedOnly is true, only a solicited or failed completion causes it. Completions that are
// already queued cause no event, so poll again after Arm. Errors: EINVAL for a queue without a
// channel.
//
// Implements: ibv_req_notify_cq.
func (q *CQ) Arm(solicitedOnly bool) error {
	q = orZero(q)
	if !q.armed {
		if err := q.gate.err(); err != nil {
			return err
		}
		return badArg("ibv_req_notify_cq", "the completion queue has no channel")
	}
	switch rc := C.cv_req_notify_cq(q.gate.c(), C.int(cbool(solicitedOnly))); rc {
	case 0:
		return nil
	case C.CV_CLOSED:
		return ErrClosed
	default:
		return rcError("ibv_req_notify_cq", rc, nil)
	}
}

// Fired reports whether the channel's Wait has taken an event of this queue since the last call of
// Fired.
//
// Extension.
func (q *CQ) Fired() bool { return orZero(q).fired.Load() && q.fired.Swap(false) }

// Depth returns the queue's capacity in completions, which is at least the requested depth.
//
// Extension.
func (q *CQ) Depth() int { return int(orZero(q).depth.Load()) }

// Resize changes the capacity to at least depth completions; the queue may be in use. Errors:
// EINVAL if depth is less than 1 or more than DeviceAttr.MaxCQE, or if the queue holds more than
// depth completions; ErrNotSupported if the device cannot resize.
//
// Implements: ibv_resize_cq.
func (q *CQ) Resize(depth int) error {
	q = orZero(q)
	if depth < 1 || depth > math.MaxInt32 {
		return badArg("ibv_resize_cq", "depth %d is not in 1..%d", depth, math.MaxInt32)
	}
	if !q.life.enter() {
		return ErrClosed
	}
	defer q.life.leave()
	if rc, err := C.ibv_resize_cq(q.c, C.int(depth)); rc != 0 {
		return adviseDepth(rcError("ibv_resize_cq", rc, err), depth)
	}
	q.depth.Store(int64(q.c.cqe))
	return nil
}

// Moderate delays events until count completions have arrived or periodUsec microseconds have
// passed. Errors: ErrNotSupported if the device cannot delay events.
//
// Implements: ibv_modify_cq.
func (q *CQ) Moderate(count, periodUsec uint16) error {
	q = orZero(q)
	if !q.life.enter() {
		return ErrClosed
	}
	defer q.life.leave()
	return rcError("ibv_modify_cq", C.cv_moderate_cq(q.c, C.uint16_t(count), C.uint16_t(periodUsec)), nil)
}

// Close destroys the queue and its completions. Errors: ErrInUse while a queue pair, an SRQ or a WQ
// uses the queue.
//
// Implements: ibv_destroy_cq.
func (q *CQ) Close() error {
	q = orZero(q)
	return q.life.close(nil, func() error {
		return q.gate.destroy(func() error {
			if rc, err := C.ibv_destroy_cq(q.c); rc != 0 {
				return rcError("ibv_destroy_cq", rc, err)
			}
			byHandle.cqs.remove(q.h)
			return nil
		})
	})
}
