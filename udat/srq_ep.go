package udat

import (
	"time"

	"github.com/godat/godat/udat/internal/fabric"
)

// CreateEPWithSRQ makes an endpoint whose receives come from a shared receive queue. attr must not
// be nil; its MaxRecvIOV is ignored, its MaxRecvDTOs and SRQSoftHW are the hard and soft high
// watermarks, which never fire where the provider attribute SRQWatermarksSupported has them not.
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

// sharedWait bounds how long a device that does not tell when it is done may take to complete what
// a queue pair in error has taken from a shared queue.
const sharedWait = 20 * time.Millisecond

// hasTaken reports whether a queue pair in error since then may still complete receives that it
// took from a shared queue.
func hasTaken(qp fabric.QP, since time.Time) bool {
	switch n := qp.Taken(); {
	case n == 0:
		return false
	case n < 0:
		return time.Since(since) < sharedWait
	}
	return time.Since(since) < flushWait
}

// takesShared reports whether the queue pair of a connection that is over may still complete
// receives of its shared queue; ep.mu is held.
func (ep *EP) takesShared() bool {
	c := ep.conn.Load()
	if ep.srq == nil || c == nil || c.ended.IsZero() {
		return false
	}
	ep.requests.mu.Lock()
	defer ep.requests.mu.Unlock()
	return ep.requests.qp != nil && hasTaken(ep.requests.qp, c.ended)
}

// completeTaken waits until an endpoint that is being freed has completed what it took from its
// shared queue: a queue pair that is destroyed in mid-message keeps the receive for ever. No lock
// of the endpoint is held.
func (ep *EP) completeTaken(since time.Time) {
	ep.requests.mu.Lock()
	qp := ep.requests.qp
	if qp != nil {
		qp.SetError()
	}
	ep.requests.mu.Unlock()
	if qp != nil {
		pollUntil(since.Add(flushWait), func() bool { return !hasTaken(qp, since) })
	}
}
