package udat

import "time"

// CreateEP makes an endpoint in UNCONNECTED. The dispatcher recv gets the completions of receives.
// The dispatcher request gets the completions of sends, RDMAs and binds. The dispatcher connect
// gets the connection events. The events for a dispatcher that is nil are discarded. If attr is nil
// the defaults apply.
//
// Errors: InvalidHandle if a dispatcher does not accept the events that it would get;
// InvalidParameter if attributes exceed the limits of the adapter, or if completion flags are not
// allowed together with the other streams of a dispatcher; InvalidState for UNSIGNALLED and
// SOLICITED_WAIT while a call waits on the dispatcher for more than one event.
//
// Implements: dat_ep_create.
func (ia *IA) CreateEP(pz *PZ, recv, request, connect *EVD, attr *EPAttr) (*EP, error) {
	return ia.newEP("ep_create", pz, recv, request, connect, nil, attr)
}

func (ia *IA) newEP(op string, pz *PZ, recv, request, connect *EVD, srq *SRQ, attr *EPAttr) (*EP, error) {
	if err := ia.object().check(op, HandleIA); err != nil {
		return nil, err
	}
	dev, srqIOV := ia.device.Attr(), 0
	if srq != nil {
		srqIOV = srq.maxIOV
	}
	a, err := attr.resolve(op, &dev, srqIOV)
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
	ep.pz.setPosting(ep, true)
	if err := ia.adopt(op, &ep.obj, ep, HandleEP, mayPost); err != nil {
		ep.pz.setPosting(ep, false)
		ep.dismantle()
		used.drop()
		return nil, err
	}
	return ep, nil
}

// takeAll takes references to the objects that the endpoint uses, and checks that the endpoint can
// use them together.
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
	for _, o := range *used {
		if err := sameIA(op, ep.obj.ia, o); err != nil {
			return err
		}
	}
	for _, d := range ep.dispatchers() {
		if d.evd == nil {
			continue
		}
		if err := used.take(op, &d.evd.obj, HandleEVD); err != nil {
			return asRole(err, d.sub)
		}
		if d.evd.flags&d.stream == 0 {
			return fail(op, InvalidHandle, d.sub, "the %s takes no such stream: streams %v", d.sub, d.evd.flags)
		}
		if d.stream == EVDConnection && ep.obj.ia.foreignConnect && d.evd.cq == nil {
			continue // connection events need no resource of the device
		}
		if err := sameIA(op, ep.obj.ia, &d.evd.obj); err != nil {
			return asRole(err, d.sub)
		}
	}
	if ep.srq != nil && ep.pz != nil && ep.pz != ep.srq.pz && !ep.obj.ia.device.Attr().SRQOtherPD {
		return fail(op, InvalidParameter, SubNone,
			"on this device endpoint and shared receive queue must be in one protection zone")
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

// used returns the references that takeAll took.
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

// Free destroys the endpoint. Its connection ends, or an attempt to connect is given up, and no
// more events of the endpoint are queued. In RESERVED, PASSIVE and TENTATIVE Free returns
// InvalidState.
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

// releaseIfFree ends the life of the handle if the endpoint's state allows Free.
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
	requests, recvs := ep.sources()
	requests.mute()
	recvs.mute()
	ep.obj.ia.freed.Add(1)
	ep.dropConnection()
	ep.apply("ep_free", causeDestroyed, nil)
	ep.mu.Unlock()
	ep.obj.ia.mu.Lock()
	delete(ep.obj.ia.posting, ep) // only now, because posts that began before apply may have run until here
	ep.obj.ia.mu.Unlock()
	ep.pz.setPosting(ep, false)
	if ep.srq != nil && c != nil && ep.obj.ia.obj.live.Load() {
		ep.completeTaken(since)
	}
	ep.mu.Lock()
	ep.requests.mu.Lock()
	ep.recvs.mu.Lock()
	ep.dismantle()
	ep.strip()
	used := ep.used()
	ep.recvs.mu.Unlock()
	ep.requests.mu.Unlock()
	ep.mu.Unlock()
	used.drop()
}

// CreateEPWithSRQ makes an endpoint whose receives come from a shared receive queue. attr must not
// be nil. MaxRecvIOV is ignored. MaxRecvDTOs is the hard high watermark, and SRQSoftHW is the soft
// one. The provider attribute SRQWatermarksSupported lists the watermarks that make events.
//
// Implements: dat_ep_create_with_srq.
func (ia *IA) CreateEPWithSRQ(pz *PZ, recv, request, connect *EVD, srq *SRQ, attr *EPAttr) (*EP, error) {
	const op = "ep_create_with_srq"
	if err := ia.object().check(op, HandleIA); err != nil {
		return nil, err
	}
	if err := srq.object().check(op, HandleSRQ); err != nil {
		return nil, err
	}
	if attr == nil {
		return nil, fail(op, InvalidParameter, SubArg7, "attr is nil")
	}
	return ia.newEP(op, pz, recv, request, connect, srq, attr)
}
