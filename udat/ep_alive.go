package udat

import (
	"fmt"
	"time"

	"github.com/godat/godat/udat/internal/fabric"
)

// This file is the keep-alive. Without requests no device notices that a peer has vanished, and
// rdma_cm does not report it: so an idle connection sends a request, which the device gives up
// after its retries.

// Some devices never give up: soft-RoCE with 7 retries, soft-iWARP when it stands still. A request
// that needs no receive is answered by the device of any peer. If silentChecks consecutive checks
// find it in flight the connection is broken, later if it has so many bytes that a wire of
// slowestWire bytes per second takes longer.
const (
	silentChecks = 3
	slowestWire  = 4096
)

// watchPeers starts the checks of the peers, unless they run already. They end when no endpoint is
// active.
func (ia *IA) watchPeers() {
	ia.mu.Lock()
	defer ia.mu.Unlock()
	if ia.keepAlive == 0 || ia.watching {
		return
	}
	ia.watching = true
	ia.flusher.every(ia.keepAlive, func() (done bool) {
		ia.mu.Lock()
		ia.watching = ia.activeEPs > 0
		done = !ia.watching
		ia.mu.Unlock()
		if done {
			return true
		}
		for _, ep := range ia.posters() {
			ep.checkPeer()
		}
		return false
	})
}

// checkPeer sends a keep-alive if the connection is idle, and breaks it if its peer has not
// answered for too long.
func (ep *EP) checkPeer() {
	if !ep.mu.TryLock() {
		return // a call is changing the endpoint: at the next check
	}
	defer ep.mu.Unlock()
	if s := ep.exactState(); s != EPConnected && s != EPDisconnectPending {
		return
	}
	requests, recvs := ep.sources()
	requests.evd.poll()
	recvs.evd.poll()
	c := ep.conn.Load()
	w, received := &c.watch, recvs.inflight.head()
	ep.requests.mu.Lock()
	waiting := ep.requests.inflight.count() > 0
	head := ep.requests.inflight.freed
	waits, bytes := ep.requests.oldest()
	heard := head != w.requests || received != w.recvs
	switch {
	case waiting:
		ep.requests.flushTail()
	case received == w.recvs:
		ep.requests.mark()
	}
	ep.requests.mu.Unlock()
	w.requests, w.recvs = head, received
	if heard || !waiting {
		w.silent = 0
		return
	}
	w.silent++
	interval := ep.obj.ia.keepAlive
	limit := silentChecks + int(bytes/slowestWire/uint64(interval/time.Second+1))
	if !waits && w.silent >= limit {
		c.failed.Store(true) // what is in flight has not been carried out
		why := fmt.Errorf("the peer has not answered for %v", time.Duration(w.silent)*interval)
		ep.advance("ep", causeBroken, fabric.ConnEvent{Err: why})
	}
}

// oldest reports whether one of the oldest requests in flight, up to the first that makes a
// completion, may wait for a receive of the peer, and how many bytes the others have; q.mu is held.
func (q *requestQueue) oldest() (waits bool, bytes uint64) {
	for seq := q.inflight.freed; seq != q.inflight.tail; seq++ {
		en := q.inflight.entry(seq)
		switch {
		case en.op == DTOSend || en.op == DTORDMAWriteImm:
			waits = true
		case en.op != DTOBind: // whose length is a serial number
			bytes += en.length
		}
		if en.flags&entrySuppressed == 0 {
			break
		}
	}
	return waits, bytes
}
