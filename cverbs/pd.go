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

	imported bool // the domain belongs to another process, which deallocates it

	td   *TD // set in a parent domain: its thread domain
	base *PD // set in a parent domain: the domain that it was created from
}

// The method same reports whether objects of the domain p work together with objects of the other
// domain. Either domain may be nil.
func (p *PD) same(other *PD) bool { return p.root() == other.root() }

func (p *PD) root() *PD {
	if p != nil && p.base != nil {
		return p.base
	}
	return p
}

// AllocPD creates a protection domain.
//
// Implements: ibv_alloc_pd.
func (c *Context) AllocPD() (*PD, error) {
	c = orZero(c)
	return c.newPD("ibv_alloc_pd", func() (*C.struct_ibv_pd, error) {
		v, err := C.ibv_alloc_pd(c.c)
		return v, err
	})
}

func (c *Context) newPD(verb string, call func() (*C.struct_ibv_pd, error)) (*PD, error) {
	p := &PD{ctx: c}
	return made(p, &p.life, kindPD, verb, &p.c, call, &c.life)
}

// Context returns the domain's device context.
//
// Extension.
func (p *PD) Context() *Context { return orZero(p).ctx }

// Close frees the domain. An imported domain stays allocated for its owner. Errors: ErrInUse while
// an object of the domain is open: a queue pair, region, window, SRQ, WQ, address handle or parent
// domain. A completion queue of a parent domain counts, too.
//
// Implements: ibv_dealloc_pd, ibv_unimport_pd.
func (p *PD) Close() error {
	p = orZero(p)
	return p.life.close(nil, func() error {
		if p.imported {
			C.ibv_unimport_pd(p.c)
			return nil
		}
		rc, err := C.ibv_dealloc_pd(p.c)
		return rcError("ibv_dealloc_pd", rc, err)
	})
}
