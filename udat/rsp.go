package udat

import "github.com/godat/godat/udat/internal/fabric"

// CreateRSP listens on qual at the adapter's addresses for one connection request. The endpoint ep
// becomes RESERVED. It must be UNCONNECTED and have a zone, else CreateRSP returns InvalidState. If
// ep is nil, the provider makes the endpoint, as with PSPProvider.
//
// The request makes a CONNECTION_REQUEST event on evd. If ep is not nil, it is the endpoint of the
// event's CR, and becomes PASSIVE. Else the provider's endpoint, which is TENTATIVE, is that of the
// CR. The request also destroys the service point; further requests are refused. The other errors
// of CreateRSP are those of CreatePSP.
//
// Implements: dat_rsp_create.
func (ia *IA) CreateRSP(qual ConnQual, ep *EP, evd *EVD, opts ...ListenOption) (*RSP, error) {
	const op = "rsp_create"
	if err := ia.object().check(op, HandleIA); err != nil {
		return nil, err
	}
	port, err := qual.port(op, SubArg2)
	if err != nil {
		return nil, err
	}
	if ep != nil {
		if err := ep.object().check(op, HandleEP); err != nil {
			return nil, err
		}
		if err := sameIA(op, ia, &ep.obj); err != nil {
			return nil, err
		}
	}
	if err := ia.useForRequests(op, evd); err != nil {
		return nil, err
	}
	r := &RSP{qual: qual, evd: evd, ep: ep}
	if err := r.start(op, ia, port, opts); err != nil {
		evd.obj.unuse()
		return nil, err
	}
	return r, nil
}

func (r *RSP) start(op string, ia *IA, port uint16, opts []ListenOption) error {
	if err := r.ep.reserve(op); err != nil {
		return err
	}
	// A request may arrive before listen returns. Its handler then waits for r.mu.
	r.mu.Lock()
	defer r.mu.Unlock()
	listener, err := ia.listen(op, port, opts, r)
	if err != nil {
		r.ep.unreserve()
		return err
	}
	r.listener = listener
	if err := ia.adopt(op, &r.obj, r, HandleRSP, nil); err != nil {
		listener.Close()
		r.ep.unreserve()
		return err
	}
	return nil
}

// reserve reserves the endpoint for a service point. It does nothing if ep is nil.
func (ep *EP) reserve(op string) error {
	if ep == nil {
		return nil
	}
	ep.mu.Lock()
	defer ep.mu.Unlock()
	return ep.apply(op, callReserve, func() error {
		if ep.requests.qp == nil {
			return ep.notReady(op) // in RESERVED no zone can be set
		}
		return nil
	})
}

// unreserve makes the endpoint of a service point UNCONNECTED again. It does nothing if ep is nil.
func (ep *EP) unreserve() {
	if ep == nil {
		return
	}
	ep.mu.Lock()
	defer ep.mu.Unlock()
	ep.apply("rsp", causeUnreserved, nil)
}

func (r *RSP) concerns(ev fabric.AsyncEvent) bool {
	return ev.Listener != nil && r.listener == ev.Listener
}

func (r *RSP) port() uint16 { return r.listener.Addr().Port() }

// takeRequest destroys the service point, which serves only one request, and makes a CR of the
// request. If the dispatcher is full, takeRequest refuses the request, and the service point
// continues to listen.
func (r *RSP) takeRequest(request fabric.Request) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.obj.live.Load() || !r.evd.reserve() {
		return false
	}
	ep := r.ep
	if ep == nil {
		var err error
		if ep, err = r.obj.ia.providerEP(request); err != nil {
			r.evd.unreserve()
			return false
		}
	}
	if r.obj.release("rsp", HandleRSP, SubNone, "objects") != nil {
		r.evd.unreserve()
		if r.ep == nil {
			ep.discard()
		}
		return false // Free was called at this moment
	}
	r.listener.Close()
	if r.ep != nil {
		ep.await(request)
	}
	taken := r.obj.ia.newCR(arrival{request: request, qual: r.qual, evd: r.evd, ep: ep})
	r.evd.obj.unuse()
	return taken
}

// await stores a connection request in its reserved endpoint, which becomes PASSIVE. The Consumer
// must then answer the request.
func (ep *EP) await(request fabric.Request) {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	ep.apply("rsp", causeRequested, func() error {
		ep.request = request
		return nil
	})
}

// Qual returns the qualifier on which the service point listens. It remains valid after Free.
//
// Extension.
func (r *RSP) Qual() ConnQual {
	if r == nil {
		return 0
	}
	return r.qual
}

// RSPParam describes a reserved service point.
type RSPParam struct {
	IA       *IA
	ConnQual ConnQual
	EVD      *EVD
	EP       *EP // nil if the provider makes the endpoint
}

// Query returns a description of the service point.
//
// Implements: dat_rsp_query.
func (r *RSP) Query() (RSPParam, error) {
	const op = "rsp_query"
	if err := r.object().check(op, HandleRSP); err != nil {
		return RSPParam{}, err
	}
	return RSPParam{IA: r.obj.ia, ConnQual: r.qual, EVD: r.evd, EP: r.ep}, nil
}

// Free stops listening; the endpoint becomes UNCONNECTED. If a request has already come, it has
// destroyed the service point, and Free returns InvalidHandle.
//
// Implements: dat_rsp_free.
func (r *RSP) Free() error {
	if err := r.object().release("rsp_free", HandleRSP, SubNone, "objects"); err != nil {
		return err
	}
	r.destroy()
	return nil
}

func (r *RSP) destroy() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.listener.Close()
	r.ep.unreserve()
	r.evd.obj.unuse()
}
