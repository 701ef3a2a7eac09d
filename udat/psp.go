package udat

import (
	"sync"

	"github.com/godat/godat/udat/internal/fabric"
)

// PSP is a public service point: it listens on a connection qualifier until it is freed.
type PSP struct {
	obj      object
	qual     ConnQual
	evd      *EVD
	flags    PSPFlags
	mu       sync.Mutex
	listener fabric.Listener
}

func (p *PSP) object() *object {
	if p == nil {
		return nil
	}
	return &p.obj
}

// CreatePSP listens on qual at the adapter's address. Each request makes a CONNECTION_REQUEST on evd, whose length is
// the backlog: what finds it full is refused. The Consumer answers every request with an endpoint of its own.
// Errors: ConnQualInUse; ConnQualUnavailable for a port that this process may not take; InvalidParameter for
// qualifier 0; InvalidHandle for a dispatcher that takes no connection requests; ModelNotSupported for PSPProvider.
//
// Implements: dat_psp_create.
func (ia *IA) CreatePSP(qual ConnQual, evd *EVD, flags PSPFlags) (*PSP, error) {
	const op = "psp_create"
	if err := ia.object().check(op, HandleIA); err != nil {
		return nil, err
	}
	port, err := qual.port(op, SubArg2)
	if err != nil {
		return nil, err
	}
	return ia.newPSP(op, qual, port, evd, flags)
}

// CreatePSPAny is CreatePSP on a free qualifier above 1023 of the provider's choice; Qual tells which. None left is
// ConnQualUnavailable.
//
// Implements: dat_psp_create_any.
func (ia *IA) CreatePSPAny(evd *EVD, flags PSPFlags) (ConnQual, *PSP, error) {
	const op = "psp_create_any"
	if err := ia.object().check(op, HandleIA); err != nil {
		return 0, nil, err
	}
	p, err := ia.newPSP(op, 0, 0, evd, flags)
	if err != nil {
		return 0, nil, err
	}
	return p.qual, p, nil
}

func (ia *IA) newPSP(op string, qual ConnQual, port uint16, evd *EVD, flags PSPFlags) (*PSP, error) {
	switch flags {
	case PSPConsumer:
	case PSPProvider:
		return nil, fail(op, ModelNotSupported, SubNone, "endpoints made by the provider are not supported")
	default:
		return nil, fail(op, InvalidParameter, SubArg4, "flags %d: must be PSPConsumer or PSPProvider", flags)
	}
	if err := ia.useForRequests(op, evd); err != nil {
		return nil, err
	}
	p := &PSP{qual: qual, evd: evd, flags: flags}
	// A request may come before Listen returns: it waits for the lock.
	p.mu.Lock()
	defer p.mu.Unlock()
	listener, err := ia.device.Listen(port, evd.length(), p.request)
	if err != nil {
		evd.obj.unuse()
		return nil, failAs(op, err, SubResourceMemory)
	}
	p.listener = listener
	if qual == 0 {
		p.qual = ConnQual(listener.Addr().Port())
	}
	if err := ia.adopt(op, &p.obj, p, HandlePSP, nil); err != nil {
		listener.Close()
		evd.obj.unuse()
		return nil, err
	}
	return p, nil
}

// useForRequests takes a reference on a dispatcher of connection requests.
func (ia *IA) useForRequests(op string, evd *EVD) error {
	if err := evd.object().check(op, HandleEVD); err != nil {
		return err
	}
	if err := sameIA(op, ia, &evd.obj); err != nil {
		return err
	}
	if evd.flags&EVDCR == 0 {
		return fail(op, InvalidHandle, SubHandleEVDCR, "the dispatcher takes no connection requests: streams 0x%x", uint32(evd.flags))
	}
	return evd.obj.use(op, HandleEVD)
}

func (e *EVD) length() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.qlen
}

// request takes the fabric's connection requests.
func (p *PSP) request(r fabric.Request) {
	p.mu.Lock()
	live := p.obj.live.Load()
	p.mu.Unlock()
	if !live {
		r.Reject(nil, false)
		return
	}
	p.obj.ia.newCR(r, &Event{Number: EventConnectionRequest, ConnQual: p.qual, Object: p}, p.evd, nil)
}

// Qual is the qualifier that the service point listens on.
//
// Extension.
func (p *PSP) Qual() ConnQual { return p.qual }

// Free stops listening. Requests that have been told stay valid; later ones are refused as where nobody listens.
//
// Implements: dat_psp_free.
func (p *PSP) Free() error {
	if err := p.object().release("psp_free", HandlePSP, SubNone, "objects"); err != nil {
		return err
	}
	p.destroy()
	return nil
}

func (p *PSP) destroy() {
	p.listener.Close()
	p.evd.obj.unuse()
}
