package udat

import (
	"log/slog"
	"net/netip"

	"github.com/godat/godat/udat/internal/fabric"
)

// CreatePSP listens on qual at the addresses of the adapter, which [Open] determines. Each
// connection request makes a CONNECTION_REQUEST event on evd. The queue of evd is the backlog: a
// request that comes while the queue is full is refused, and its peer sees NON_PEER_REJECTED. A
// request occupies a place on the queue only until its event is dequeued, even if the request is
// answered later. [EVD.Resize] changes the number of places.
//
// With PSPConsumer the Consumer answers each request with an endpoint of its own. With PSPProvider
// the provider makes an endpoint for each request. The endpoint is in the state TENTATIVE and has
// no zone and no dispatchers. Set the zone and the dispatchers with [EP.Modify] before Accept.
//
// On tcp each connection needs a file descriptor. While the process or the host has none for a new
// connection, requests wait, and the asynchronous dispatcher gets PROVIDER_INTERNAL_ERROR with the
// service point as Object, once a second. [Event.Err] names the limit.
//
// Errors: ConnQualInUse if another program or service point listens on the port;
// ConnQualUnavailable if this process may not use the port; InvalidParameter if qual is 0 or flags
// are unknown; InvalidHandle if evd does not accept connection requests.
//
// Implements: dat_psp_create.
func (ia *IA) CreatePSP(qual ConnQual, evd *EVD, flags PSPFlags, opts ...ListenOption) (*PSP, error) {
	const op = "psp_create"
	if err := ia.object().check(op, HandleIA); err != nil {
		return nil, err
	}
	port, err := qual.port(op, SubArg2)
	if err != nil {
		return nil, err
	}
	return ia.newPSP(op, qual, port, evd, flags, opts)
}

// CreatePSPAny is like CreatePSP, but it chooses a free qualifier above 1023 and returns the
// qualifier. It returns ConnQualUnavailable if no qualifier is free.
//
// Implements: dat_psp_create_any.
func (ia *IA) CreatePSPAny(evd *EVD, flags PSPFlags, opts ...ListenOption) (ConnQual, *PSP, error) {
	const op = "psp_create_any"
	if err := ia.object().check(op, HandleIA); err != nil {
		return 0, nil, err
	}
	p, err := ia.newPSP(op, 0, 0, evd, flags, opts)
	if err != nil {
		return 0, nil, err
	}
	return p.qual, p, nil
}

func (ia *IA) newPSP(op string, qual ConnQual, port uint16, evd *EVD, flags PSPFlags,
	opts []ListenOption) (*PSP, error) {
	if flags != PSPConsumer && flags != PSPProvider {
		return nil, fail(op, InvalidParameter, SubArg4, "flags %d: must be PSPConsumer or PSPProvider", flags)
	}
	if err := ia.useForRequests(op, evd); err != nil {
		return nil, err
	}
	p := &PSP{qual: qual, evd: evd, flags: flags}
	// A request may arrive before listen returns. Its handler then waits for p.mu.
	p.mu.Lock()
	defer p.mu.Unlock()
	listener, err := ia.listen(op, port, opts, p)
	if err != nil {
		evd.obj.unuse()
		return nil, err
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

// ListenOption is an option of a service point.
//
// Extension.
type ListenOption func(*listenOptions)

type listenOptions struct {
	accept func(peer netip.AddrPort) error // nil: every peer may connect
}

// WithAccept sets a function that decides which peers may connect to the service point. The adapter
// calls accept with the address and port of each peer that requests a connection, before it
// allocates anything for the peer; on tcp that is before it reads the first byte. If accept returns
// an error, the request is refused: it makes no event, and the peer sees NON_PEER_REJECTED.
// [WithLogger] logs the error at the level Debug. The calls come one at a time from a goroutine of
// the device. Other requests wait for that goroutine, so accept must not block. The address is the
// one that the network reports; it proves nothing about who the peer is.
//
// Extension.
func WithAccept(accept func(peer netip.AddrPort) error) ListenOption {
	return func(o *listenOptions) { o.accept = accept }
}

// filter returns the function that decides which peers may connect, or nil if all may.
func (o *listenOptions) filter(log *slog.Logger) func(netip.AddrPort) error {
	if o.accept == nil || log == nil {
		return o.accept
	}
	return func(peer netip.AddrPort) error {
		err := o.accept(peer)
		if err != nil {
			log.Debug("udat: a peer is refused", "remote", peer, "error", err)
		}
		return err
	}
}

// listen makes the fabric pass the connection requests on a port to the service point.
func (ia *IA) listen(op string, port uint16, opts []ListenOption, p servicePoint) (fabric.Listener, error) {
	var o listenOptions
	for _, opt := range opts {
		opt(&o)
	}
	l, err := ia.device.Listen(port, o.filter(ia.log), func(r fabric.Request) {
		if !p.takeRequest(r) {
			r.Reject(nil, false)
		}
	})
	if err == nil {
		if ia.exposed && ia.log != nil {
			ia.told.Do(func() { ia.log.Info("udat: tcp listens on all addresses of this host, without TLS") })
		}
		return l, nil
	}
	bad := failAs(op, err, SubResourceMemory)
	if port == 0 && bad.Type == ConnQualInUse {
		bad.Type = ConnQualUnavailable // the caller accepts any port, so no port is free
	}
	return nil, bad
}

// useForRequests adds a reference to a dispatcher. It returns InvalidHandle if the dispatcher does
// not accept connection requests.
func (ia *IA) useForRequests(op string, evd *EVD) error {
	if err := evd.object().check(op, HandleEVD); err != nil {
		return asRole(err, SubHandleEVDCR)
	}
	if err := sameIA(op, ia, &evd.obj); err != nil {
		return asRole(err, SubHandleEVDCR)
	}
	if evd.flags&EVDCR == 0 {
		return fail(op, InvalidHandle, SubHandleEVDCR, "the dispatcher takes no connection requests: streams %v", evd.flags)
	}
	return evd.obj.use(op, HandleEVD)
}

func (p *PSP) concerns(ev fabric.AsyncEvent) bool {
	return ev.Listener != nil && p.listener == ev.Listener
}

func (p *PSP) port() uint16 { return p.listener.Addr().Port() }

func (p *PSP) takeRequest(r fabric.Request) bool {
	p.mu.Lock()
	live := p.obj.live.Load()
	p.mu.Unlock()
	if !live || !p.evd.reserve() {
		return false
	}
	a := arrival{request: r, qual: p.qual, point: p, evd: p.evd}
	if p.flags == PSPProvider {
		ep, err := p.obj.ia.providerEP(r)
		if err != nil {
			p.evd.unreserve()
			return false
		}
		a.ep = ep
	}
	return p.obj.ia.newCR(a)
}

// providerEP makes the endpoint of a request, for PSPProvider. The endpoint has no zone and no
// dispatchers, and has the read depths that the peer offers.
func (ia *IA) providerEP(r fabric.Request) (*EP, error) {
	in, out := r.ReadDepths()
	ep, err := ia.newEP("psp", nil, nil, nil, nil, nil, &EPAttr{MaxRDMAReadIn: orNone(in), MaxRDMAReadOut: orNone(out)})
	if err != nil {
		return nil, err
	}
	ep.mu.Lock()
	ep.request = r
	ep.apply("psp", causeOffered, nil)
	ep.mu.Unlock()
	return ep, nil
}

// orNone converts a count to a field of EPAttr: it returns None for 0, because a field that is 0
// selects the default.
func orNone(n uint8) int {
	if n == 0 {
		return None
	}
	return int(n)
}

// Qual returns the qualifier on which the service point listens. It remains valid after Free.
//
// Extension.
func (p *PSP) Qual() ConnQual {
	if p == nil {
		return 0
	}
	return p.qual
}

// PSPParam describes a public service point.
type PSPParam struct {
	IA       *IA
	ConnQual ConnQual
	EVD      *EVD
	Flags    PSPFlags
}

// Query returns a description of the service point.
//
// Implements: dat_psp_query.
func (p *PSP) Query() (PSPParam, error) {
	const op = "psp_query"
	if err := p.object().check(op, HandlePSP); err != nil {
		return PSPParam{}, err
	}
	return PSPParam{IA: p.obj.ia, ConnQual: p.qual, EVD: p.evd, Flags: p.flags}, nil
}

// Free stops listening and refuses later requests. Requests whose events have been queued stay
// valid, and so do the endpoints that the provider made for them.
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
