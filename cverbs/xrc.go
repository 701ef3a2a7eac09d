//go:build linux && cgo

package cverbs

// #include "shim.h"
import "C"

// XRCD is a domain of extended reliable connections (XRC). A queue pair of one process can deliver
// into the shared receive queues of all processes that have opened the same domain. So a sender
// needs one queue pair for each host, not for each process.
type XRCD struct {
	life life
	c    *C.struct_ibv_xrcd
	ctx  *Context
}

// OpenXRCD opens the domain that belongs to the file of the descriptor fd. fd may be closed
// afterwards. The flags are those of package os. With O_CREATE the domain is created if it does not
// exist. With O_CREATE and O_EXCL it must not exist. If fd is -1 the domain is new and belongs to
// this process alone; flags must then contain O_CREATE. Errors: ErrNotSupported; ENOENT if the
// domain does not exist and flags lack O_CREATE; EEXIST if the domain exists and flags contain
// O_EXCL.
//
// Implements: ibv_open_xrcd.
func (c *Context) OpenXRCD(fd, flags int) (*XRCD, error) {
	c = orZero(c)
	if err := fdError("ibv_open_xrcd", fd); err != nil {
		return nil, err
	}
	x := &XRCD{ctx: c}
	return made(x, &x.life, kindXRCD, "ibv_open_xrcd", &x.c, func() (*C.struct_ibv_xrcd, error) {
		attr := C.struct_ibv_xrcd_init_attr{comp_mask: C.IBV_XRCD_INIT_ATTR_FD | C.IBV_XRCD_INIT_ATTR_OFLAGS, fd: C.int(fd),
			oflags: C.int(flags)}
		v, err := C.ibv_open_xrcd(c.c, &attr)
		return v, err
	}, &c.life)
}

// Close closes the domain in this process. Errors: ErrInUse while a queue pair or a shared receive
// queue of the domain is open.
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
// state. The queue pair has no queues of its own. Each message names a shared receive queue by its
// number (SRQ.Num). This queue must have been created with SRQInit.XRCD and SRQInit.CQ. The kernel
// keeps the queue pair until all processes have closed it. Errors: ErrNotSupported.
//
// Implements: ibv_create_qp_ex.
func (x *XRCD) CreateQP() (*QP, error) {
	x = orZero(x)
	return x.newQP("ibv_create_qp_ex", func(h C.uintptr_t) (*C.struct_ibv_qp, error) {
		v, err := C.cv_create_xrc_qp(x.c, h)
		return v, err
	})
}

// OpenQP opens the receiving end with the number num, which another process has created in the same
// domain. Errors: ErrNotSupported; ENOENT or EINVAL if there is no such queue pair.
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
