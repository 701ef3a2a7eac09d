//go:build linux && cgo

package cverbs

// #include "shim.h"
import "C"

// XRCD is a domain of extended reliable connections: a queue pair of one process delivers into the
// shared receive queue of any process that has opened the same domain. A sender then needs one
// queue pair for each host, not for each process.
type XRCD struct {
	life life
	c    *C.struct_ibv_xrcd
	ctx  *Context
}

// OpenXRCD opens the domain that belongs to the file of the descriptor fd; the file may be closed
// afterwards. flags are of package os: with O_CREATE the domain is made if there is none, and with
// O_EXCL too it must not exist. With fd -1 the domain is new, and this process's own; flags must
// then have O_CREATE. Errors: ErrNotSupported; ENOENT and EEXIST by flags.
//
// Implements: ibv_open_xrcd.
func (c *Context) OpenXRCD(fd, flags int) (*XRCD, error) {
	c = orZero(c)
	x := &XRCD{ctx: c}
	if err := x.life.begin(kindXRCD, &c.life); err != nil {
		return nil, err
	}
	attr := C.struct_ibv_xrcd_init_attr{comp_mask: C.IBV_XRCD_INIT_ATTR_FD | C.IBV_XRCD_INIT_ATTR_OFLAGS, fd: C.int(fd),
		oflags: C.int(flags)}
	v, err := C.ibv_open_xrcd(c.c, &attr)
	if v == nil {
		x.life.abort()
		return nil, &Error{Verb: "ibv_open_xrcd", Errno: errnoOf(err)}
	}
	x.c = v
	x.life.open()
	return x, nil
}

// Close closes the domain in this process. Errors: ErrInUse while a queue pair or a shared receive
// queue of it is open.
//
// Implements: ibv_close_xrcd.
func (x *XRCD) Close() error {
	x = orZero(x)
	return x.life.close(nil, func() error {
		rc, err := C.ibv_close_xrcd(x.c)
		return rcError("ibv_close_xrcd", rc, err)
	})
}

// CreateQP creates the receiving end of extended reliable connections (QPTypeXRCRecv), in the RESET
// state. It has no queues of its own: each message names the shared receive queue (SRQ.Num), which
// has SRQInit.XRCD and a completion queue. The kernel keeps the queue pair until all processes have
// closed it. Errors: ErrNotSupported.
//
// Implements: ibv_create_qp_ex.
func (x *XRCD) CreateQP() (*QP, error) {
	x = orZero(x)
	return x.newQP("ibv_create_qp_ex", func(h C.uintptr_t) (*C.struct_ibv_qp, error) {
		v, err := C.cv_create_xrc_qp(x.c, h)
		return v, err
	})
}

// OpenQP opens the receiving end with this number, which another process has created in the same
// domain. Errors: ErrNotSupported; ENOENT or EINVAL if there is none.
//
// Implements: ibv_open_qp.
func (x *XRCD) OpenQP(num uint32) (*QP, error) {
	x = orZero(x)
	return x.newQP("ibv_open_qp", func(h C.uintptr_t) (*C.struct_ibv_qp, error) {
		v, err := C.cv_open_xrc_qp(x.c, C.uint32_t(num), h)
		return v, err
	})
}

func (x *XRCD) newQP(verb string, call func(C.uintptr_t) (*C.struct_ibv_qp, error)) (*QP, error) {
	q := &QP{ctx: x.ctx, typ: QPTypeXRCRecv}
	if err := q.life.begin(kindQP, &x.life); err != nil {
		return nil, err
	}
	q.h = byHandle.qps.add(q)
	v, err := call(C.uintptr_t(q.h))
	if v == nil {
		q.discard()
		return nil, &Error{Verb: verb, Errno: errnoOf(err)}
	}
	q.finish(v, QPCap{})
	return q, nil
}
