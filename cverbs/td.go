//go:build linux && cgo

package cverbs

// #include "shim.h"
import "C"

// TD is a thread domain: queues that belong to it are used by one thread at a time, for which the
// caller answers, so that the driver takes no locks. [PD.AllocParentDomain] puts queues into it.
type TD struct {
	life life
	c    *C.struct_ibv_td
	ctx  *Context
}

// AllocTD creates a thread domain. Devices have few hardware resources for them, mlx5 some
// hundreds. Errors: ErrNotSupported if the device has none.
//
// Implements: ibv_alloc_td.
func (c *Context) AllocTD() (*TD, error) {
	c = orZero(c)
	t := &TD{ctx: c}
	if err := t.life.begin(kindTD, &c.life); err != nil {
		return nil, err
	}
	v, err := C.cv_alloc_td(c.c)
	if v == nil {
		t.life.abort()
		return nil, &Error{Verb: "ibv_alloc_td", Errno: errnoOf(err)}
	}
	t.c = v
	t.life.open()
	return t, nil
}

// Close frees the thread domain. Errors: ErrInUse while a parent domain of it is open.
//
// Implements: ibv_dealloc_td.
func (t *TD) Close() error {
	t = orZero(t)
	return t.life.close(nil, func() error { return rcError("ibv_dealloc_td", C.cv_dealloc_td(t.c), nil) })
}

// AllocParentDomain creates a parent domain: p, with a thread domain for the queues that are
// created in it. It takes p's place in all calls, and works together with p's regions; both p and
// td must stay open.
//
// The caller serializes all use of a queue pair that is created in it, of its sends and its
// receives together: PostSend, PostRecv, BindMW, a [Turn] with posts to it, Modify and its kin,
// Query; and all use of a shared receive queue. The promise of this package, that any number of
// goroutines may call at once, does not hold there: two calls at once may damage the queue. Close
// remains safe. The race detector (go test -race) reports two posts without synchronization.
//
// Errors: EINVAL if p is a parent domain, or td of another device context.
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
