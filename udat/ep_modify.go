package udat

import "github.com/godat/godat/udat/internal/fabric"

// epFixed are the fields that Modify cannot change.
const epFixed = EPFieldIA | EPFieldState | EPFieldLocalAddr | EPFieldLocalPortQual |
	EPFieldRemoteAddr | EPFieldRemotePortQual | EPFieldSRQ | EPFieldSRQSoftHW

// epSpecific are the fields that Modify can change only in UNCONNECTED.
const epSpecific = EPFieldNumTransportSpecific | EPFieldTransportSpecific |
	EPFieldNumProviderSpecific | EPFieldProviderSpecific

// epQueues are the fields whose change replaces the queues and the queue pair.
const epQueues = EPFieldPZ | EPFieldRecvEVD | EPFieldRequestEVD |
	EPFieldRecvCompletionFlags | EPFieldRequestCompletionFlags | EPFieldMaxRecvDTOs | EPFieldMaxRequestDTOs |
	EPFieldMaxRecvIOV | EPFieldMaxRequestIOV | EPFieldMaxRDMAReadIOV | EPFieldMaxRDMAWriteIOV

// Modify sets the fields of the endpoint that mask selects to the values in p. Here a value of 0
// means 0, not the default. In UNCONNECTED all fields can be changed, except those listed under
// Errors. In TENTATIVE the transport-specific and provider-specific attributes cannot be changed
// either; this library has no such attributes. In RESERVED and PASSIVE the zone cannot be changed
// either. In other states Modify returns InvalidState. An error changes nothing.
//
// Posted receives stay posted, in order. A receive whose region is not in the new zone fails with
// DTOErrLocalProtection when a message arrives for the receive. While receives are posted, a change
// of RecvCompletionFlags returns InvalidState.
//
// Errors: InvalidParameter for an unknown bit in mask, for a field that cannot be changed (IA,
// State, the addresses and qualifiers, SRQ, SRQSoftHW), and for a MaxRecvDTOs or MaxRecvIOV that is
// too small for the posted receives. For values that CreateEP does not accept, Modify returns the
// errors of CreateEP.
//
// Implements: dat_ep_modify.
func (ep *EP) Modify(mask EPField, p EPParam) error {
	const op = "ep_modify"
	if err := ep.object().check(op, HandleEP); err != nil {
		return err
	}
	if mask&^EPFieldAll != 0 {
		return fail(op, InvalidParameter, SubArg2, "mask 0x%x: only 0x%x is known", uint32(mask), uint32(EPFieldAll))
	}
	if bad := mask & epFixed; bad != 0 {
		return fail(op, InvalidParameter, SubArg2, "mask 0x%x: the fields 0x%x cannot be modified", uint32(mask), uint32(bad))
	}
	// The zone, the dispatchers and the attributes change only under this lock.
	ep.modifying.Lock()
	defer ep.modifying.Unlock()
	if err := ep.modifiable(op, mask); err != nil {
		return err
	}
	next, err := ep.withChanges(op, mask, &p)
	if err != nil {
		return err
	}
	var taken uses
	if err := next.takeAll(op, &taken); err != nil {
		taken.drop()
		return err
	}
	was := ep.pz
	next.pz.setPosting(ep, true)
	released, err := ep.become(op, mask, next)
	left := was
	if err != nil {
		left = next.pz
	}
	if was != next.pz {
		left.setPosting(ep, false)
	}
	if err != nil {
		taken.drop()
		return err
	}
	released.drop()
	return nil
}

// modifiable returns an error if the state does not allow a change of the fields in mask.
func (ep *EP) modifiable(op string, mask EPField) error {
	s := ep.getState()
	ok := false
	switch s {
	case EPUnconnected:
		ok = true
	case EPTentativeConnection:
		ok = mask&epSpecific == 0
	case EPReserved, EPPassiveConnectionPending:
		ok = mask&(epSpecific|EPFieldPZ) == 0
	}
	if !ok {
		return ep.wrongState(op, s)
	}
	return nil
}

// withChanges returns a new, unpublished endpoint. It has the values of p in the fields that mask
// selects, and the values of ep in all other fields.
func (ep *EP) withChanges(op string, mask EPField, p *EPParam) (*EP, error) {
	next := &EP{attr: ep.attr, pz: ep.pz, srq: ep.srq, recvEVD: ep.recvEVD, requestEVD: ep.requestEVD,
		connectEVD: ep.connectEVD}
	next.obj.ia = ep.obj.ia
	next.wmark.set(WatermarkInfinite, WatermarkInfinite)
	setField(mask, EPFieldPZ, &next.pz, p.PZ)
	setField(mask, EPFieldRecvEVD, &next.recvEVD, p.RecvEVD)
	setField(mask, EPFieldRequestEVD, &next.requestEVD, p.RequestEVD)
	setField(mask, EPFieldConnectEVD, &next.connectEVD, p.ConnectEVD)
	a, from := &next.attr, &p.Attr
	setField(mask, EPFieldServiceType, &a.ServiceType, from.ServiceType)
	setField(mask, EPFieldMaxMessageSize, &a.MaxMessageSize, from.MaxMessageSize)
	setField(mask, EPFieldMaxRDMASize, &a.MaxRDMASize, from.MaxRDMASize)
	setField(mask, EPFieldQoS, &a.QoS, from.QoS)
	setField(mask, EPFieldRecvCompletionFlags, &a.RecvCompletionFlags, from.RecvCompletionFlags)
	setField(mask, EPFieldRequestCompletionFlags, &a.RequestCompletionFlags, from.RequestCompletionFlags)
	setField(mask, EPFieldMaxRecvDTOs, &a.MaxRecvDTOs, from.MaxRecvDTOs)
	setField(mask, EPFieldMaxRequestDTOs, &a.MaxRequestDTOs, from.MaxRequestDTOs)
	setField(mask, EPFieldMaxRecvIOV, &a.MaxRecvIOV, from.MaxRecvIOV)
	setField(mask, EPFieldMaxRequestIOV, &a.MaxRequestIOV, from.MaxRequestIOV)
	setField(mask, EPFieldMaxRDMAReadIn, &a.MaxRDMAReadIn, from.MaxRDMAReadIn)
	setField(mask, EPFieldMaxRDMAReadOut, &a.MaxRDMAReadOut, from.MaxRDMAReadOut)
	setField(mask, EPFieldMaxRDMAReadIOV, &a.MaxRDMAReadIOV, from.MaxRDMAReadIOV)
	setField(mask, EPFieldMaxRDMAWriteIOV, &a.MaxRDMAWriteIOV, from.MaxRDMAWriteIOV)
	setField(mask, EPFieldTransportSpecific, &a.TransportSpecific, from.TransportSpecific)
	setField(mask, EPFieldProviderSpecific, &a.ProviderSpecific, from.ProviderSpecific)
	dev := ep.obj.ia.device.Attr()
	if err := a.check(op, &dev, ep.srq != nil); err != nil {
		return nil, err
	}
	return next, next.ensureSink(op)
}

func setField[T any](mask, field EPField, to *T, value T) {
	if mask&field != 0 {
		*to = value
	}
}

// ensureSink makes the dispatcher that discards completions (see sinkEVD) if build will need it,
// because build is called while locks are held under which it cannot be made.
func (ep *EP) ensureSink(op string) error {
	if ep.recvEVD != nil && ep.requestEVD != nil {
		return nil
	}
	_, err := ep.obj.ia.sinkEVD(op)
	return err
}

// become copies to ep the values of next, an endpoint that withChanges has made. It returns the
// references that ep held before.
func (ep *EP) become(op string, mask EPField, next *EP) (uses, error) {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	ep.requests.mu.Lock()
	defer ep.requests.mu.Unlock()
	ep.recvs.mu.Lock()
	defer ep.recvs.mu.Unlock()
	if err := ep.modifiable(op, mask); err != nil {
		return nil, err
	}
	if mask&EPFieldRecvCompletionFlags != 0 && ep.recvs.inflight.count() > 0 {
		return nil, fail(op, InvalidState, SubNone, "RecvCompletionFlags: %d receives are posted", ep.recvs.inflight.count())
	}
	if mask&epQueues != 0 {
		if err := ep.rebuild(op, next); err != nil {
			return nil, err
		}
	}
	if qp := ep.recvs.qp; ep.srq != nil && qp != nil {
		if mask&EPFieldMaxRecvDTOs != 0 {
			ep.wmark.hard = next.attr.MaxRecvDTOs
		}
		ep.armTaken(qp)
	}
	released := ep.used()
	ep.attr, ep.pz = next.attr, next.pz
	ep.recvEVD, ep.requestEVD, ep.connectEVD = next.recvEVD, next.requestEVD, next.connectEVD
	return released, nil
}

// rebuild replaces the queues and the queue pair of ep by those of next, an endpoint that
// withChanges has made. It posts the posted receives again on the new queue pair. After that the
// old queue pair makes no more events. All locks of ep are held.
func (ep *EP) rebuild(op string, next *EP) error {
	if err := ep.recvsFit(op, next); err != nil {
		return err
	}
	// While next.build runs, both the old and the new streams are attached to the dispatchers. The
	// calls of addReplaced make build ignore the completion flags of the old streams.
	ep.addReplaced(+1)
	err := next.build(op)
	ep.addReplaced(-1)
	if err == nil {
		next.recvs.source.setOwner(ep, &ep.recvs)
		next.requests.source.setOwner(ep, &ep.requests)
		if err = next.repost(op, ep.recvs.inflight); err != nil {
			next.dismantle()
		}
	}
	if err != nil {
		ep.recvs.source.restoreFlags(ep.attr.RecvCompletionFlags)
		ep.requests.source.restoreFlags(ep.attr.RequestCompletionFlags)
		return err
	}
	ep.detachStreams() // first, so that flushed work of the old queue pair makes no events
	ep.dropQP()
	ep.requests.requestState, ep.recvs.recvState = next.requests.requestState, next.recvs.recvState
	return nil
}

// addReplaced calls source.addReplaced for both queues of the endpoint.
func (ep *EP) addReplaced(n int) {
	ep.recvs.source.addReplaced(n)
	ep.requests.source.addReplaced(n)
}

// recvsFit returns an error if next.MaxRecvDTOs or next.MaxRecvIOV is too small for the posted
// receives.
func (ep *EP) recvsFit(op string, next *EP) error {
	q := ep.recvs.inflight
	n := q.count()
	switch {
	case n == 0:
		return nil
	case n > next.attr.MaxRecvDTOs:
		return fail(op, InvalidParameter, SubArg3, "MaxRecvDTOs is %d, %d receives are posted", next.attr.MaxRecvDTOs, n)
	}
	for seq := q.freed; seq != q.tail; seq++ {
		if k := int(q.entry(seq).segments); k > next.attr.MaxRecvIOV {
			return fail(op, InvalidParameter, SubArg3, "MaxRecvIOV is %d, a receive of %d segments is posted",
				next.attr.MaxRecvIOV, k)
		}
	}
	return nil
}

// repost posts the receives of an old queue again; the endpoint is not published yet.
func (ep *EP) repost(op string, old *inflight) error {
	q := &ep.recvs
	for seq := old.head(); seq != old.tail; seq++ {
		en := *old.entry(seq)
		at := q.inflight.tail + uint32(len(q.wrs))
		*q.inflight.entry(at) = en
		sges := q.inflight.saveSGEs(at, old.savedSGEs(seq))
		q.wrs = append(q.wrs, fabric.RecvWR{ID: q.inflight.workID(at), FirstSGE: uint32(len(q.sges)),
			NumSGE: uint32(len(sges))})
		q.sges = append(q.sges, sges...)
		if len(q.wrs) < cap(q.wrs) && seq+1 != old.tail {
			continue
		}
		if _, err := q.submit(); err != nil {
			return &Error{Op: op, Type: InternalError, Err: err}
		}
	}
	return nil
}
