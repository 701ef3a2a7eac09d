package udat

import (
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/godat/godat/udat/internal/fabric"
)

// EP is an endpoint: one end of a reliable connection. All its methods may be called concurrently; posts of one kind
// (requests, receives) go out in the order in which the calls took the endpoint.
type EP struct {
	obj  object
	attr EPAttr
	pz   *PZ
	srq  *SRQ

	// As the Consumer gave them; nil is "not interested".
	recvEVD, requestEVD, connectEVD *EVD

	modifying ranked[rankModifying] // Modify alone changes what is above

	mu    ranked[rankEP] // changes of state
	state atomic.Uint32
	conn  atomic.Pointer[connection] // or the attempt at one; nil: none; changed under mu
	timer *time.Timer
	wmark watermarks

	request fabric.Request // that it waits to answer, in PASSIVE and TENTATIVE; under mu

	requests requestQueue
	recvs    recvQueue
}

// requestQueue posts sends, RDMAs and binds.
type requestQueue struct {
	mu         ranked[rankRequests]
	qp         fabric.QP
	inline     int
	readOut    int    // reads that the connection allows outstanding
	suppressed uint32 // consecutive posts that ask for no completion
	marked     bool   // the library has posted work of its own,
	marker     uint32 // which has this number
	fenced     bool   // a fenced request may be in flight,
	fence      uint32 // the latest of them has this number
	wrs        []fabric.SendWR
	sges       []fabric.SGE
	ep         *EP
	inflight   *inflight // replaced by Modify with source, under ep.mu and mu
	source     *source
}

// recvQueue posts receives.
type recvQueue struct {
	mu   ranked[rankRecvs]
	qp   fabric.QP
	wrs  []fabric.RecvWR
	sges []fabric.SGE
	ep   *EP

	inflight *inflight // replaced by Modify with source, under ep.mu and mu
	source   *source
}

func (ep *EP) object() *object {
	if ep == nil {
		return nil
	}
	return &ep.obj
}

// CreateEP makes an endpoint in UNCONNECTED. recv, request and connect are the dispatchers of receive completions,
// of completions of sends, RDMAs and binds, and of connection events; a nil one means that they are of no interest.
// A dispatcher that does not take the stream is InvalidHandle; attributes that the adapter cannot keep, or completion
// flags that do not go with the other streams of a dispatcher, are InvalidParameter. attr nil takes the defaults.
//
// Implements: dat_ep_create.
func (ia *IA) CreateEP(pz *PZ, recv, request, connect *EVD, attr *EPAttr) (*EP, error) {
	return ia.newEP("ep_create", pz, recv, request, connect, nil, attr)
}

func (ia *IA) newEP(op string, pz *PZ, recv, request, connect *EVD, srq *SRQ, attr *EPAttr) (*EP, error) {
	if err := ia.object().check(op, HandleIA); err != nil {
		return nil, err
	}
	a, err := attr.resolve(op, ia, srq)
	if err != nil {
		return nil, err
	}
	ep := &EP{attr: a, pz: pz, srq: srq, recvEVD: recv, requestEVD: request, connectEVD: connect}
	ep.wmark.set(WatermarkInfinite, WatermarkInfinite)
	if srq != nil {
		ep.wmark.set(a.SRQSoftHW, a.MaxRecvDTOs)
	}
	ep.obj.ia = ia
	var used uses
	if err := ep.takeAll(op, &used); err != nil {
		used.drop()
		return nil, err
	}
	if err := ep.build(op); err != nil {
		used.drop()
		return nil, err
	}
	mayPost := func() error { ia.posting[ep] = struct{}{}; return nil }
	if err := ia.adopt(op, &ep.obj, ep, HandleEP, mayPost); err != nil {
		ep.dismantle()
		used.drop()
		return nil, err
	}
	return ep, nil
}

// takeAll takes references on all that the endpoint is made of.
func (ep *EP) takeAll(op string, used *uses) error {
	if ep.pz != nil {
		if err := used.take(op, &ep.pz.obj, HandlePZ); err != nil {
			return err
		}
	}
	if ep.srq != nil {
		if err := used.take(op, &ep.srq.obj, HandleSRQ); err != nil {
			return err
		}
	}
	for _, d := range ep.dispatchers() {
		if d.evd == nil {
			continue
		}
		if err := used.take(op, &d.evd.obj, HandleEVD); err != nil {
			return err
		}
		if d.evd.flags&d.stream == 0 {
			return fail(op, InvalidHandle, d.sub, "the %s takes no such stream: streams %v", d.sub, d.evd.flags)
		}
	}
	for _, o := range *used {
		if err := sameIA(op, ep.obj.ia, o); err != nil {
			return err
		}
	}
	if ep.srq != nil && ep.pz != nil && ep.pz != ep.srq.pz && !ep.obj.ia.device.Attr().SRQOtherPD {
		return fail(op, InvalidParameter, SubNone, "on this device endpoint and shared receive queue must be in one protection zone")
	}
	return nil
}

type epDispatcher struct {
	evd    *EVD
	stream EVDFlags
	sub    Subtype
}

func (ep *EP) dispatchers() [3]epDispatcher {
	return [3]epDispatcher{
		{ep.recvEVD, EVDDTO, SubHandleEVDRecv},
		{ep.requestEVD, EVDDTO, SubHandleEVDRequest},
		{ep.connectEVD, EVDConnection, SubHandleEVDConn},
	}
}

// used lists what takeAll has taken.
func (ep *EP) used() uses {
	var u uses
	if ep.pz != nil {
		u = append(u, &ep.pz.obj)
	}
	if ep.srq != nil {
		u = append(u, &ep.srq.obj)
	}
	for _, d := range ep.dispatchers() {
		if d.evd != nil {
			u = append(u, &d.evd.obj)
		}
	}
	return u
}

// build attaches the endpoint's streams to their dispatchers and makes the queue pair, if there is a zone for it.
func (ep *EP) build(op string) error {
	recv, err := ep.orDiscard(op, ep.recvEVD)
	if err != nil {
		return err
	}
	request, err := ep.orDiscard(op, ep.requestEVD)
	if err != nil {
		return err
	}
	maxRecv := ep.attr.MaxRecvDTOs
	if ep.srq != nil {
		maxRecv = 0
	}
	ep.recvs.ep, ep.recvs.source = ep, recv.newSource(maxRecv, ep.attr.MaxRecvIOV, true)
	ep.requests.ep, ep.requests.source = ep, request.newSource(ep.attr.MaxRequestDTOs, 0, false)
	ep.recvs.inflight, ep.requests.inflight = ep.recvs.source.inflight, ep.requests.source.inflight
	ep.recvs.source.setOwner(ep, &ep.recvs)
	ep.requests.source.setOwner(ep, &ep.requests)
	iov := max(ep.attr.MaxRequestIOV, ep.attr.MaxRDMAReadIOV, ep.attr.MaxRDMAWriteIOV, 1)
	batch := min(batchMax, ep.attr.MaxRequestDTOs+spareEntries)
	ep.requests.wrs = make([]fabric.SendWR, 0, batch)
	ep.requests.sges = make([]fabric.SGE, 0, batch*iov)
	batch = min(batchMax, maxRecv+spareEntries)
	ep.recvs.wrs = make([]fabric.RecvWR, 0, batch)
	ep.recvs.sges = make([]fabric.SGE, 0, batch*max(ep.attr.MaxRecvIOV, 1))
	if err := ep.attachStreams(op); err != nil {
		return err
	}
	if ep.pz == nil {
		return nil
	}
	if err := ep.newQP(op); err != nil {
		ep.detachStreams()
		return err
	}
	return nil
}

func (ep *EP) attachStreams(op string) error {
	r, q := ep.recvs.source, ep.requests.source
	if err := r.attach(op, ep.attr.RecvCompletionFlags, ep.recvCompletions()); err != nil {
		return err
	}
	if err := q.attach(op, ep.attr.RequestCompletionFlags, len(q.inflight.entries)); err != nil {
		r.detach(ep.recvCompletions())
		return err
	}
	return nil
}

func (ep *EP) detachStreams() {
	r, q := ep.recvs.source, ep.requests.source
	r.detach(ep.recvCompletions())
	q.detach(len(q.inflight.entries))
}

// recvCompletions is how many receive completions may be outstanding.
func (ep *EP) recvCompletions() int {
	return len(ep.recvs.inflight.entries)
}

// orDiscard returns the dispatcher, or the adapter's own where there is none.
func (ep *EP) orDiscard(op string, e *EVD) (*EVD, error) {
	if e != nil {
		return e, nil
	}
	return ep.obj.ia.sinkEVD(op)
}

// sinkEVD makes the dispatcher for completions that are of no interest, once.
func (ia *IA) sinkEVD(op string) (*EVD, error) {
	if e := ia.sink.Load(); e != nil {
		return e, nil // also for those who may not take ia.mu
	}
	ia.mu.Lock()
	defer ia.mu.Unlock()
	if ia.closed {
		return nil, badHandle(op, HandleIA, &ia.obj)
	}
	if e := ia.sink.Load(); e != nil {
		return e, nil
	}
	cq, err := ia.device.CreateCQ(defaultDTOs)
	if err != nil {
		return nil, failAs(op, err, SubResourceTEVD)
	}
	e := &EVD{flags: EVDDTO | EVDRMRBind, qlen: 1, ring: newEventRing(1), cq: cq, discard: true}
	e.waiting.init(&e.mu)
	e.obj.kind, e.obj.ia = HandleEVD, ia
	e.obj.live.Store(true)
	ia.sink.Store(e)
	return e, nil
}

// newQP makes a fresh queue pair for both queues; their locks are held, or nobody knows the endpoint yet.
func (ep *EP) newQP(op string) error {
	init := fabric.QPInit{
		PD:         ep.pz.pd,
		SendCQ:     ep.requests.source.evd.cq,
		RecvCQ:     ep.recvs.source.evd.cq,
		MaxSend:    ep.attr.MaxRequestDTOs + spareEntries,
		MaxRecv:    ep.attr.MaxRecvDTOs,
		MaxSendSGE: max(ep.attr.MaxRequestIOV, ep.attr.MaxRDMAReadIOV, ep.attr.MaxRDMAWriteIOV, 1),
		MaxRecvSGE: max(ep.attr.MaxRecvIOV, 1),
		MaxInline:  ep.obj.ia.inlineWanted(),
	}
	if ep.srq != nil {
		init.SRQ, init.MaxRecv, init.MaxRecvSGE = ep.srq.hw, 0, 0
	}
	qp, err := ep.obj.ia.device.CreateQP(init)
	if err != nil {
		return failAs(op, err, SubResourceTEP)
	}
	old := ep.requests.qp
	ep.requests.qp, ep.recvs.qp = qp, qp
	ep.requests.inline = qp.MaxInline()
	if ep.srq != nil {
		if err := ep.recvs.source.attachShared(op, qp.Num(), ep.srq, ep.srq.hw.Depth()); err != nil {
			ep.requests.qp, ep.recvs.qp = old, old
			qp.Close()
			return err
		}
		ep.wmark.passed = false
		ep.armTaken(qp)
	}
	return nil
}

// maxInlineWanted is enough for small messages; larger ones gain little and make every queue entry larger.
const maxInlineWanted = 128

func (ia *IA) inlineWanted() int { return min(maxInlineWanted, ia.device.Attr().MaxInline) }

// dropQP destroys the queue pair, if there is one.
func (ep *EP) dropQP() {
	qp := ep.requests.qp
	if qp == nil {
		return
	}
	ep.requests.qp, ep.recvs.qp = nil, nil
	ep.closeQP(qp)
}

// closeQP destroys a queue pair that is no longer the endpoint's. What completes late must not be taken for the work of
// another queue pair that gets its number.
func (ep *EP) closeQP(qp fabric.QP) {
	if ep.srq == nil {
		qp.Close()
		return
	}
	num := qp.Num()
	qp.Close()
	ep.recvs.source.detachShared(num, ep.srq)
}

func (ep *EP) dismantle() {
	ep.dropQP()
	forgetBinds(ep.requests.inflight, ep.requests.inflight.head())
	ep.detachStreams()
}

// GetStatus is a snapshot: the state, and whether no receives and no requests are outstanding. Suppressed requests
// count until they have really completed. With a shared receive queue recvIdle is about the receives that the endpoint has
// taken from it. Where the device does not tell (the provider attribute SRQInfoSupported has no SRQInfoAvailable) it is
// true only while the endpoint can hold none: before it connects or accepts, and after its connection once the device
// has said that it takes no more, or has had 20 ms to complete what it took.
//
// Implements: dat_ep_get_status.
func (ep *EP) GetStatus() (state EPState, recvIdle, requestIdle bool, err error) {
	if err := ep.object().check("ep_get_status", HandleEP); err != nil {
		return 0, false, false, err
	}
	ep.drainBoth()
	requestIdle = ep.requests.outstanding() == 0
	recvIdle = ep.recvsIdle()
	return ep.getState(), recvIdle, requestIdle, nil
}

// recvsIdle says whether no receives are allocated to the endpoint, as far as the device tells; of its locks none is held.
func (ep *EP) recvsIdle() bool {
	ep.recvs.mu.Lock()
	n := ep.allocated()
	ep.recvs.mu.Unlock()
	if n != ValueUnknown {
		return n == 0
	}
	ep.mu.Lock()
	defer ep.mu.Unlock()
	switch ep.getState() {
	case EPActiveConnectionPending, EPCompletionPending, EPConnected, EPDisconnectPending:
		return false
	}
	return !ep.takesShared()
}

func (q *requestQueue) outstanding() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.inflight.count()
}

func (q *recvQueue) outstanding() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.inflight.count()
}

// sources returns both queues as their dispatchers see them; the locks of neither are held.
func (ep *EP) sources() (requests, recvs *source) {
	ep.requests.mu.Lock()
	requests = ep.requests.source
	ep.requests.mu.Unlock()
	ep.recvs.mu.Lock()
	recvs = ep.recvs.source
	ep.recvs.mu.Unlock()
	return requests, recvs
}

// RecvQuery gives the number of receives that are allocated to the endpoint and not completed, and the span of
// messages that they stand for; both of one moment. With a shared receive queue a receive is allocated when the endpoint
// takes it from the queue; where the device does not tell of that (the provider attribute SRQInfoSupported has no
// SRQInfoAvailable), both are ValueUnknown.
//
// Implements: dat_ep_recv_query.
func (ep *EP) RecvQuery() (allocated, span int, err error) {
	const op = "ep_recv_query"
	if err := ep.object().check(op, HandleEP); err != nil {
		return 0, 0, err
	}
	ep.recvs.mu.Lock()
	defer ep.recvs.mu.Unlock()
	n := ep.allocated()
	return n, n, nil // receives complete in order: the span is as wide as their number
}

// allocated counts the receives that are the endpoint's and not completed: posted, or taken from a shared queue. The lock of
// its receives is held.
func (ep *EP) allocated() int {
	taken := 0
	if ep.srq != nil {
		if !ep.tellsTaken() {
			return ValueUnknown
		}
		if qp := ep.recvs.qp; qp != nil {
			taken = qp.Taken() // first: what completes meanwhile was still allocated
		}
	}
	s := ep.recvs.source
	s.evd.poll()
	return taken + s.inflight.count() + s.deferredCount()
}

// Free destroys the endpoint, in any state but RESERVED, PASSIVE and TENTATIVE (InvalidState). A connection ends,
// an attempt at one is given up, and nothing of the endpoint is queued any more.
//
// Implements: dat_ep_free.
func (ep *EP) Free() error {
	const op = "ep_free"
	if err := ep.object().check(op, HandleEP); err != nil {
		return err
	}
	if err := ep.releaseIfFree(op); err != nil {
		return err
	}
	ep.destroy()
	return nil
}

// releaseIfFree ends the life of the handle, if the state allows that.
func (ep *EP) releaseIfFree(op string) error {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if _, err := ep.transition(op, callFree); err != nil {
		return err
	}
	return ep.obj.release(op, HandleEP, SubNone, "objects")
}

func (ep *EP) destroy() {
	ep.mu.Lock()
	c, since := ep.conn.Load(), time.Now()
	if c != nil && !c.ended.IsZero() {
		since = c.ended
	}
	ep.dropConnection()
	ep.apply("ep_free", causeDestroyed, nil)
	ep.recvs.source.mute()
	ep.mu.Unlock()
	ep.obj.ia.mu.Lock()
	delete(ep.obj.ia.posting, ep) // not before now: a post that began earlier has let go of the requests
	ep.obj.ia.mu.Unlock()
	if ep.srq != nil && c != nil && ep.obj.ia.obj.live.Load() {
		ep.completeTaken(since)
	}
	ep.mu.Lock()
	ep.requests.mu.Lock()
	ep.recvs.mu.Lock()
	ep.dismantle()
	used := ep.used()
	ep.recvs.mu.Unlock()
	ep.requests.mu.Unlock()
	ep.mu.Unlock()
	used.drop()
}

// RemoteAddr is the peer's address and port while there is a connection or an attempt at one.
//
// Extension. It is part of dat_ep_query.
func (ep *EP) RemoteAddr() netip.AddrPort {
	if !ep.object().alive() {
		return netip.AddrPort{}
	}
	ep.mu.Lock()
	defer ep.mu.Unlock()
	c := ep.conn.Load()
	if c == nil || c.conn == nil {
		return netip.AddrPort{}
	}
	return c.conn.RemoteAddr()
}
