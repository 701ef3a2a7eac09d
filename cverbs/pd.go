//go:build linux && cgo

package cverbs

// #include "shim.h"
import "C"

// PD is a protection domain. Queue pairs, regions, windows and address handles work together only
// within one domain.
type PD struct {
	life life
	c    *C.struct_ibv_pd
	ctx  *Context
}

// AllocPD creates a protection domain.
//
// Implements: ibv_alloc_pd.
func (c *Context) AllocPD() (*PD, error) {
	c = orZero(c)
	p := &PD{ctx: c}
	if err := p.life.begin(kindPD, &c.life); err != nil {
		return nil, err
	}
	v, err := C.ibv_alloc_pd(c.c)
	if v == nil {
		p.life.abort()
		return nil, &Error{Verb: "ibv_alloc_pd", Errno: errnoOf(err)}
	}
	p.c = v
	p.life.open()
	return p, nil
}

// Context returns the domain's device context.
//
// Extension.
func (p *PD) Context() *Context { return orZero(p).ctx }

// Close frees the domain. Errors: ErrInUse while a queue pair, region, window, SRQ or address
// handle of it is open.
//
// Implements: ibv_dealloc_pd.
func (p *PD) Close() error {
	p = orZero(p)
	return p.life.close(nil, func() error {
		rc, err := C.ibv_dealloc_pd(p.c)
		return rcError("ibv_dealloc_pd", rc, err)
	})
}
