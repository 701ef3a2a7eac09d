package udat

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/godat/godat/udat/internal/fabric"
)

// This file is the keep-alive: it breaks connections whose peer has vanished without a word, which
// rdma_cm does not report. Devices give up a request after some retries, but soft-RoCE retries it
// for ever, and without requests no device notices anything.

// A request that needs no receive is answered by the device of any peer. If silentChecks
// consecutive checks find it in flight the connection is broken, later if it has so many bytes that
// a wire of slowestWire bytes per second takes longer.
const (
	silentChecks = 3
	slowestWire  = 4096
)

// If the oldest request is the program's, the peer's adapter is asked too: pings times, once in
// each pingPart of an interval. That tells a host that has vanished or started anew from a Send
// that finds no receive and from a long transfer.
const (
	pingPart = 5
	pings    = 2 * pingPart
)

// watchPeers starts the checks of the peers.
func (ia *IA) watchPeers() {
	if ia.keepAlive == 0 {
		return
	}
	ia.repeat(&ia.watching, ia.keepAlive, func() {
		for _, ep := range ia.posters() {
			ep.checkPeer()
		}
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
	switch limit := silentChecks + int(bytes/slowestWire/uint64(interval/time.Second+1)); {
	case !waits && w.silent >= limit:
		ep.vanished(fmt.Errorf("the peer has not answered for %v", time.Duration(w.silent)*interval))
	case (waits || bytes > 0) && !w.asking:
		ep.askAdapter(c)
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
		case en.op != DTOBind: // its length is no length
			bytes += en.length
		}
		if en.flags&entrySuppressed == 0 {
			break
		}
	}
	return waits, bytes
}

// askAdapter asks the peer's adapter for an answer, and breaks the connection if none has come
// after some attempts and no request has completed; ep.mu is held.
func (ep *EP) askAdapter(c *connection) {
	c.watch.asking = true
	var answers [fabric.PingBusy + 1]atomic.Bool
	asked, head := 0, c.watch.requests
	every := ep.obj.ia.keepAlive / pingPart
	ep.obj.ia.flusher.every(every, func() (done bool) {
		if !ep.mu.TryLock() {
			return false
		}
		defer ep.mu.Unlock()
		requests, _ := ep.sources()
		switch {
		case ep.conn.Load() != c || !c.ended.IsZero():
			return true
		case answers[fabric.PingAlive].Load() || requests.inflight.head() != head:
		case asked < pings:
			asked++
			c.conn.Ping(func(a fabric.PingAnswer) { answers[a].Store(true) })
			return false
		case answers[fabric.PingGone].Load():
			ep.vanished(errors.New("the peer's adapter does not have the connection any more"))
		case !answers[fabric.PingBusy].Load():
			ep.vanished(fmt.Errorf("neither the peer nor its adapter has answered for %v", pings*every))
		}
		c.watch.asking = false
		return true
	})
}

// vanished breaks the connection because the peer does not answer; ep.mu is held.
func (ep *EP) vanished(why error) {
	ep.conn.Load().failed.Store(true) // what is in flight has not been carried out
	ep.advance("ep", causeBroken, fabric.ConnEvent{Err: why})
}
