package udat

import (
	"fmt"
	"syscall"
	"time"

	"github.com/godat/godat/udat/internal/fabric"
)

// This file implements the keep-alive. A device notices that a peer has vanished only if a request
// fails, and rdma_cm does not report a vanished peer. Therefore the keep-alive posts a request on
// an idle connection. If the peer has vanished, the device gives up the request after its retries.
// A device with a keep-alive of its own (WatchesPeers) needs none of this.

// Some devices never give up a request: soft-RoCE with 7 retries, and soft-iWARP if it stalls. But
// the device of a live peer always answers a request that needs no receive. If silentChecks
// consecutive checks find requests of this kind in flight, and nothing has completed since the
// previous check, the adapter breaks the connection. If many bytes are in flight, more checks are
// allowed, so that a network that carries only slowestWire bytes per second can carry them.
const (
	silentChecks = 3
	slowestWire  = 4096
)

// watchPeers starts the keep-alive of the adapter, unless the keep-alive runs already. The
// keep-alive ends when no endpoint is connecting or connected.
func (ia *IA) watchPeers() {
	ia.mu.Lock()
	defer ia.mu.Unlock()
	if ia.keepAlive == 0 || ia.watching || ia.has.WatchesPeers {
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

// checkPeer posts a keep-alive request if the connection is idle. If the peer has not answered for
// too long, checkPeer breaks the connection.
func (ep *EP) checkPeer() {
	if !ep.mu.TryLock() {
		return // a call is changing the endpoint; the next call of checkPeer checks the peer
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
		why := fmt.Errorf("the peer has not answered for %v: %w", time.Duration(w.silent)*interval, syscall.ETIMEDOUT)
		c.failed.CompareAndSwap(nil, &why) // the requests in flight have not been executed
		ep.advance("ep", causeBroken, fabric.ConnEvent{Err: why})
	}
}

// oldest examines the oldest requests in flight, up to and including the first that is not
// suppressed. The result waits reports whether any of them may wait for a receive of the peer. The
// result bytes is the total length of those that need no receive. q.mu is held.
func (q *requestQueue) oldest() (waits bool, bytes uint64) {
	for seq := q.inflight.freed; seq != q.inflight.tail; seq++ {
		en := q.inflight.entry(seq)
		switch {
		case en.op == DTOSend || en.op == DTORDMAWriteImm:
			waits = true
		case en.op != DTOBind: // the length of a bind is a serial number
			bytes += en.length
		}
		if en.flags&entrySuppressed == 0 {
			break
		}
	}
	return waits, bytes
}
