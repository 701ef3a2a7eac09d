package udat

import "github.com/godat/godat/udat/internal/fabric"

// build attaches the endpoint's streams to their dispatchers. If the endpoint has a zone, build
// also makes the queue pair.
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
	ep.recvs.ep, ep.recvs.source = ep, newSource(recv, maxRecv, ep.attr.MaxRecvIOV, true)
	ep.requests.ep, ep.requests.source = ep, newSource(request, ep.attr.MaxRequestDTOs, 0, false)
	ep.recvs.inflight, ep.requests.inflight = &ep.recvs.source.inflight, &ep.requests.source.inflight
	ep.recvs.source.setOwner(ep, &ep.recvs)
	ep.requests.source.setOwner(ep, &ep.requests)
	ep.requests.reserve(1, ep.attr.requestIOV(), ep.requests.inflight)
	ep.recvs.reserve(1, ep.attr.MaxRecvIOV, ep.recvs.inflight)
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
	if err := r.attach(op, ep.attr.RecvCompletionFlags); err != nil {
		return err
	}
	if err := q.attach(op, ep.attr.RequestCompletionFlags); err != nil {
		r.detach()
		return err
	}
	return nil
}

func (ep *EP) detachStreams() {
	r, q := ep.recvs.source, ep.requests.source
	r.detach()
	q.detach()
}

// orDiscard returns e, or the dispatcher that discards completions (see sinkEVD) if e is nil.
func (ep *EP) orDiscard(op string, e *EVD) (*EVD, error) {
	if e != nil {
		return e, nil
	}
	return ep.obj.ia.sinkEVD(op)
}

// newQP makes a new queue pair and sets it in both queues. The locks of the queues are held, or the
// endpoint is not published yet.
func (ep *EP) newQP(op string) error {
	init := fabric.QPInit{
		PD:         ep.pz.pd,
		SendCQ:     ep.requests.source.evd.cq,
		RecvCQ:     ep.recvs.source.evd.cq,
		MaxSend:    ep.attr.MaxRequestDTOs + spareEntries,
		MaxRecv:    ep.attr.MaxRecvDTOs,
		MaxSendSGE: ep.attr.requestIOV(),
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

// dropQP destroys the endpoint's queue pair, if it has one.
func (ep *EP) dropQP() {
	qp := ep.requests.qp
	if qp == nil {
		return
	}
	ep.requests.qp, ep.recvs.qp = nil, nil
	ep.closeQP(qp)
}

// closeQP destroys a queue pair that the endpoint no longer uses. With a shared queue it also
// drains the remaining completions, because another queue pair may later get the same number.
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

// strip releases the memory of the queues of an endpoint that has been destroyed, because events
// that nobody dequeues keep the endpoint itself. All locks of ep are held.
func (ep *EP) strip() {
	ep.requests.wrs, ep.requests.sges = nil, nil
	ep.recvs.wrs, ep.recvs.sges = nil, nil
	for _, s := range []*source{ep.requests.source, ep.recvs.source} {
		s.evd.mu.Lock()
		s.inflight.strip()
		s.evd.mu.Unlock()
	}
}

// sources returns the two objects of type source that represent the queues at their dispatchers;
// the locks of the queues are not held.
func (ep *EP) sources() (requests, recvs *source) {
	ep.requests.mu.Lock()
	requests = ep.requests.source
	ep.requests.mu.Unlock()
	ep.recvs.mu.Lock()
	recvs = ep.recvs.source
	ep.recvs.mu.Unlock()
	return requests, recvs
}

// drainBoth drains both dispatchers. It first posts a request whose completion proves that the
// suppressed requests are done.
func (ep *EP) drainBoth() {
	ep.requests.mu.Lock()
	ep.requests.flushTail()
	ep.requests.mu.Unlock()
	requests, recvs := ep.sources()
	requests.evd.poll()
	recvs.evd.poll()
}
