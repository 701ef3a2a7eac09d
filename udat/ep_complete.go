package udat

import "github.com/godat/godat/udat/internal/fabric"

// complete implements completionSink for requests and binds.
func (q *requestQueue) complete(en *inflightEntry, wc *fabric.WC, ev *Event) (after func()) {
	if en.rmr != nil {
		en.rmr.settle(en.length, wc.Status)
	}
	if ev != nil {
		ev.Number, ev.EP, ev.Cookie, ev.Operation, ev.Length = EventDTOCompletion, q.ep, en.cookie, en.op, en.length
		if en.op == DTOBind {
			ev.Number, ev.RMR, ev.Length = EventRMRBindCompletion, en.rmr, 0
		}
	}
	if wc.Status == fabric.StatusSuccess {
		return nil
	}
	failedEvent(ev, q.status(en, wc.Status), wc)
	return q.ep.workFailed(wc.Status)
}

// complete implements completionSink for receives.
func (q *recvQueue) complete(en *inflightEntry, wc *fabric.WC, ev *Event) (after func()) {
	if ev != nil {
		ev.Number, ev.EP, ev.Cookie, ev.Operation = EventDTOCompletion, q.ep, en.cookie, en.op
	}
	if wc.Status != fabric.StatusSuccess {
		failedEvent(ev, q.status(en, wc.Status), wc)
		return q.ep.workFailed(wc.Status)
	}
	if wc.Flags&fabric.WCWithInv != 0 {
		q.ep.obj.ia.windows.invalidated(wc.Imm)
	}
	if ev != nil {
		receivedEvent(ev, wc)
	}
	return nil
}

// receivedEvent sets the fields of the event that describe the received message.
func receivedEvent(ev *Event, wc *fabric.WC) {
	ev.Length = uint64(wc.ByteLen)
	switch {
	case wc.Flags&fabric.WCWithInv != 0:
		ev.Operation, ev.RMRContext = DTOReceiveInv, wc.Imm
	case wc.Flags&fabric.WCWithImm != 0 && wc.Opcode == fabric.OpWCRecvWithImm:
		ev.Operation, ev.Immediate, ev.HasImmediate = DTOReceiveWriteImm, rawImmediate(wc.Imm), true
	case wc.Flags&fabric.WCWithImm != 0:
		ev.Operation, ev.Immediate, ev.HasImmediate = DTOReceiveImm, rawImmediate(wc.Imm), true
	}
}

// failedEvent sets the fields of the event that describe a failure. It does nothing if ev is nil.
func failedEvent(ev *Event, status DTOStatus, wc *fabric.WC) {
	if ev != nil {
		ev.Status, ev.RawStatus, ev.VendorError, ev.Length = status, uint32(wc.Status), wc.VendorErr, 0
	}
}

// workFailed records on the connection that work has failed. It returns a function that reports the
// failure to the endpoint, or nil if there is nothing to report. The caller calls the function
// while no dispatcher is locked.
func (ep *EP) workFailed(status fabric.Status) (after func()) {
	c := ep.conn.Load()
	if c == nil {
		return nil
	}
	f := workFailure{ep: ep, conn: c, status: status}
	if status != fabric.StatusFlush {
		why := f.cause()
		c.failed.CompareAndSwap(nil, &why)
	}
	if ep.getState() == EPDisconnected {
		return nil
	}
	return f.report
}

// status returns the DAT status of a request that failed. rxe reports an invalid local key as a
// queue pair operation error. The key was valid when the request was posted. So the key is the
// cause of the error only if lostRegion reports that the region has been lost since then.
func (q *requestQueue) status(en *inflightEntry, s fabric.Status) DTOStatus {
	switch {
	case s != fabric.StatusLocalQPOp:
		return dtoStatus(s)
	case q.ep.lostRegion(en.lkey):
		return DTOErrLocalProtection
	}
	return DTOErrLocalEP
}

// status returns the DAT status of a receive that failed. For both an invalid local key and a
// message longer than the receive, rxe reports a queue pair operation error, and siw reports a
// general error. The key is the cause if lostRegion reports that the region has been lost since the
// receive was posted.
func (q *recvQueue) status(en *inflightEntry, s fabric.Status) DTOStatus {
	switch {
	case s != fabric.StatusLocalQPOp && s != fabric.StatusGeneral:
		return dtoStatus(s)
	case q.ep.lostRegion(en.lkey):
		return DTOErrLocalProtection
	}
	return DTOErrLocalLength
}

// lostRegion reports whether the region of posted work has been freed, or is no longer in the zone
// of the endpoint. The parameter lkey is the region's context, or 0 if the work has no region.
func (ep *EP) lostRegion(lkey uint32) bool {
	l, found := ep.obj.ia.regions.Load(lkey)
	return lkey != 0 && (!found || l.(*LMR).pz != ep.pz)
}
