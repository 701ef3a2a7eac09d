package udat

import "github.com/godat/godat/udat/internal/fabric"

// build attaches the endpoint's streams to their dispatchers and makes the queue pair, if there is
// a zone.
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

// orDiscard returns the dispatcher, or the adapter's sink for nil.
func (ep *EP) orDiscard(op string, e *EVD) (*EVD, error) {
	if e != nil {
		return e, nil
	}
	return ep.obj.ia.sinkEVD(op)
}

// newQP makes a new queue pair for both queues; their locks are held, or the endpoint is not
// published yet.
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

// dropQP destroys the queue pair, if there is one.
func (ep *EP) dropQP() {
	qp := ep.requests.qp
	if qp == nil {
		return
	}
	ep.requests.qp, ep.recvs.qp = nil, nil
	ep.closeQP(qp)
}

// closeQP destroys a queue pair that has been replaced. Completions that come later must not be
// taken for work of another queue pair that gets its number.
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

// sources returns both queues' sources; no lock of the queues is held.
func (ep *EP) sources() (requests, recvs *source) {
	ep.requests.mu.Lock()
	requests = ep.requests.source
	ep.requests.mu.Unlock()
	ep.recvs.mu.Lock()
	recvs = ep.recvs.source
	ep.recvs.mu.Unlock()
	return requests, recvs
}

// drainBoth drains both dispatchers, after a request that makes suppressed ones complete.
func (ep *EP) drainBoth() {
	ep.requests.mu.Lock()
	ep.requests.flushTail()
	ep.requests.mu.Unlock()
	requests, recvs := ep.sources()
	requests.evd.poll()
	recvs.evd.poll()
}
