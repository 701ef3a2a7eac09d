package udat

import "github.com/godat/godat/udat/internal/fabric"

// complete implements completionSink: a request or a bind has ended.
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

// complete implements completionSink: a receive has ended.
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
		received(ev, wc)
	}
	return nil
}

// received fills in what a message has brought.
func received(ev *Event, wc *fabric.WC) {
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

// failedEvent fills in how work failed; a nil ev means that there is no event.
func failedEvent(ev *Event, status DTOStatus, wc *fabric.WC) {
	if ev != nil {
		ev.Status, ev.RawStatus, ev.VendorError, ev.Length = status, uint32(wc.Status), wc.VendorErr, 0
	}
}

// workFailed notes on the connection that work has failed. It returns a function that reports the
// failure to the endpoint, to be called when no dispatcher is locked; nil if there is nothing to
// report.
func (ep *EP) workFailed(status fabric.Status) (after func()) {
	c := ep.conn.Load()
	if c == nil {
		return nil
	}
	if status != fabric.StatusFlush {
		c.failed.Store(true)
	}
	if ep.getState() == EPDisconnected {
		return nil
	}
	return workFailure{ep: ep, conn: c, status: status}.report
}

// status is the DAT status of a request that failed. rxe reports a bad local key as an operation
// error. The key was good when the request was posted: the state of the region now tells the two
// apart.
func (q *requestQueue) status(en *inflightEntry, s fabric.Status) DTOStatus {
	switch {
	case s != fabric.StatusLocalQPOp:
		return dtoStatus(s)
	case q.ep.lostRegion(en.lmr):
		return DTOErrLocalProtection
	}
	return DTOErrLocalEP
}

// status is the DAT status of a receive that failed. rxe reports a bad local key, and a message
// longer than its receive, as an operation error, siw as a general error: the state of the region
// tells them apart.
func (q *recvQueue) status(en *inflightEntry, s fabric.Status) DTOStatus {
	switch {
	case s != fabric.StatusLocalQPOp && s != fabric.StatusGeneral:
		return dtoStatus(s)
	case q.ep.lostRegion(en.lmr):
		return DTOErrLocalProtection
	}
	return DTOErrLocalLength
}

// lostRegion reports whether the region of posted work has been freed, or is in another zone than
// the endpoint now.
func (ep *EP) lostRegion(l *LMR) bool { return l != nil && (!l.obj.live.Load() || l.pz != ep.pz) }
