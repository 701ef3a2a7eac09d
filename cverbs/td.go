//go:build linux && cgo

package cverbs

// #include "shim.h"
import "C"

// TD is a thread domain. The driver does not lock the queues that belong to a thread domain, so the
// caller must make sure that only one thread at a time uses such a queue. Queues that are created
// in a parent domain ([PD.AllocParentDomain]) belong to the thread domain of the parent domain.
type TD struct {
	life life
	c    *C.struct_ibv_td
	ctx  *Context
}

// AllocTD creates a thread domain. A device has few thread domains; mlx5 devices have some
// hundreds. Errors: ErrNotSupported if the device has no thread domains.
//
// Implements: ibv_alloc_td.
func (c *Context) AllocTD() (*TD, error) {
	c = orZero(c)
	t := &TD{ctx: c}
	return made(t, &t.life, kindTD, "ibv_alloc_td", &t.c, func() (*C.struct_ibv_td, error) {
		v, err := C.cv_alloc_td(c.c)
		return v, err
	}, &c.life)
}

// Close frees the thread domain. Errors: ErrInUse while a parent domain with this thread domain is
// open.
//
// Implements: ibv_dealloc_td.
func (t *TD) Close() error {
	t = orZero(t)
	return t.life.close(nil, func() error { return rcError("ibv_dealloc_td", C.cv_dealloc_td(t.c), nil) })
}

// AllocParentDomain creates a parent domain, which is p with a thread domain. Queues that are
// created in the parent domain belong to td. The parent domain can replace p in all calls, and its
// queue pairs can use p's regions. p and td cannot be closed while the parent domain is open.
//
// The caller must serialize all calls on a queue pair that is created in the parent domain, for
// sends and receives together: PostSend, PostRecv, BindMW, Query, Modify, methods that call Modify
// (such as ToRTS), and the Run of a [Turn] with posts to the queue pair. The caller must also
// serialize all calls on an SRQ or a WQ that is created in the parent domain. Two calls at once may
// damage the queue. Only Close remains safe for concurrent use. The race detector (go test -race)
// reports two posts without synchronization.
//
// Errors: EINVAL if p is a parent domain, or if td is of another device context.
//
// Implements: ibv_alloc_parent_domain.
func (p *PD) AllocParentDomain(td *TD) (*PD, error) {
	p, td = orZero(p), orZero(td)
	const verb = "ibv_alloc_parent_domain"
	if p.td != nil {
		return nil, badArg(verb, "the domain is a parent domain already")
	}
	d := &PD{ctx: p.ctx, td: td}
	if err := d.life.begin(kindPD, &p.life, &td.life); err != nil {
		return nil, err
	}
	if td.ctx != p.ctx {
		d.life.abort()
		return nil, badArg(verb, "the thread domain is of another device context")
	}
	v, err := C.cv_alloc_parent_domain(p.c, td.c)
	if v == nil {
		d.life.abort()
		return nil, &Error{Verb: verb, Errno: errnoOf(err)}
	}
	d.c, d.base = v, p
	d.life.open()
	return d, nil
}
