package tcpfabric

import (
	"time"

	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/softnic"
	"github.com/godat/godat/udat/internal/tcpfabric/iwarp"
)

// A message waits at its sender until the receiver has told of a receive for it. This file has both
// ends: what a sender asks, and what a receiver tells.

// credit is the part of tx that deals with receives. Messages are numbered from 1.
type credit struct {
	wanted   uint64 // the last message that this end has asked a receive for
	askEnd   uint64 // how many bytes have been put into batches after an ask that is not written; 0: none
	starving uint64 // the latest message that had to wait, and for which this end has asked
	waits    uint64 // the latest message for which rnr has been started
	granted  uint64 // grants that have been put into batches
	grantEnd uint64 // as askEnd, for a grant
	reserved uint64 // receives of the shared queue that have ever been reserved for the peer
}

// rnrTimer is the time between two retries that RNRRetry counts; unlimited is its value for retries
// without end.
const (
	rnrTimer  = 4 * time.Millisecond
	unlimited = 7
)

// takesReceive reports whether a request consumes a receive of the peer.
func takesReceive(op fabric.Opcode) bool {
	return op == fabric.OpSend || op == fabric.OpSendImm || op == fabric.OpSendInv || op == fabric.OpWriteImm
}

// starves reports whether a request has to wait for a receive at the peer.
func (l *link) starves(s *softnic.Slot) bool {
	return l.own && takesReceive(s.WR.Opcode) && l.tx.messages >= l.heard.limit.Load()
}

// starve asks the peer for a receive if the next request has to wait for one, or fails the request
// if it has waited too long. With retries each message asks for itself, and its time begins when
// the peer has answered that there is none.
func (l *link) starve() {
	t := &l.tx
	if !l.own || t.begun || t.stuck || !l.heard.greeted.Load() ||
		!l.starves(l.qp.Sends().Slot(t.next)) {
		return
	}
	n, retries := t.messages+1, l.qp.Device().Opts.RNRRetry
	switch {
	case t.askEnd != 0 || l.sent.asks.Load() != l.heard.grants.Load(): // the answer will come
	case n > t.wanted || retries < unlimited && t.starving != n:
		t.starving, t.wanted = n, max(t.wanted, t.messages+l.waiting())
		l.putControl(iwarp.ControlAsk, uint64(uint32(t.wanted)))
		t.askEnd = t.queued
	case l.exhausted.Load() == n:
		*t.mark(t.next) = mark{request: t.next + 1}
		l.decide(fabric.StatusRNRExceeded)
	case retries < unlimited && t.waits != n:
		t.waits = n
		l.rnr = time.AfterFunc(time.Duration(retries)*rnrTimer, func() {
			l.exhausted.Store(n)
			l.run()
		})
	}
}

// waiting returns how many messages the send queue holds that have not begun.
func (l *link) waiting() (n uint64) {
	sends := l.qp.Sends()
	for i := l.tx.next; i != sends.Tail(); i++ {
		if takesReceive(sends.Slot(i).WR.Opcode) {
			n++
		}
	}
	return n
}

// limit returns the last message of the peer for which there is a receive.
func (l *link) limit() uint64 {
	if l.qp.Shared() {
		return l.tx.reserved
	}
	return l.qp.Posted()
}

// reserve takes receives of the shared queue for messages that the peer has asked for. If there are
// none, a receive that is posted later runs the link.
func (l *link) reserve() {
	t, wanted := &l.tx, l.heard.wanted.Load()
	if t.reserved == wanted || !l.qp.Shared() {
		return
	}
	l.qp.In.Lock()
	defer l.qp.In.Unlock()
	for t.reserved < wanted && t.reserved < l.heard.messages.Load()+sharedWindow && l.qp.Reserve(l) {
		t.reserved++
	}
}

// sharedWindow is how many receives of a shared queue one connection reserves at a time.
const sharedWindow = 16

// helloOf returns the hello of this end.
func (l *link) helloOf() iwarp.Hello {
	h := iwarp.Hello{Segment: iwarp.MaxSegment, Shared: l.qp.Shared(), Window: sharedWindow}
	if !h.Shared {
		h.Window, h.Limit = uint16(l.qp.RecvDepth()), uint16(l.limit())
	}
	l.sent.limit.Store(uint64(h.Limit))
	return h
}

// awaited reports whether the peer waits for receives that it does not know.
func (l *link) awaited() bool { return l.heard.wanted.Load() > l.sent.limit.Load() }

// urgent reports whether there are receives that the peer waits for.
func (l *link) urgent() bool { return l.own && l.awaited() && l.limit() > l.sent.limit.Load() }

// due reports whether the peer should be told what it does not know: that requests have been
// executed, or that there are receives, if it has used half of those that it knows.
func (l *link) due() bool {
	return l.heard.executed.Load() != l.sent.executed.Load() || l.own && !l.qp.Shared() && l.creditDue(l.qp.Posted())
}

func (l *link) creditDue(limit uint64) bool {
	told := l.sent.limit.Load()
	return limit > told && limit-told >= told-l.heard.messages.Load()
}

// tell puts a control message with this end's counts into the batch.
func (l *link) tell(c iwarp.Control) {
	executed, limit := l.heard.executed.Load(), l.limit()
	l.sent.executed.Store(executed)
	l.sent.limit.Store(limit)
	l.putControl(c, iwarp.Counts(uint32(executed), uint32(limit)))
}

// A call of controls puts the control messages that are due into the batch. It returns true if it
// has left out one that is due, because the next Send says the same.
func (l *link) controls() (owes bool) {
	t := &l.tx
	if !l.own {
		return false
	}
	// ackNow is loaded before the counts: what comes between these loads sets ackNow again.
	now, pending := l.ackNow.Swap(false), l.heard.reads.Load() != t.answered
	switch {
	case l.heard.asks.Load() > t.granted:
		t.granted++
		l.tell(iwarp.ControlGrant)
		t.grantEnd = t.queued
	case l.urgent():
		l.tell(iwarp.ControlAck)
	case l.heard.executed.Load() == l.sent.executed.Load() && !l.creditDue(l.limit()):
	case !pending && l.sendsNext():
		owes = now
	case now, pending, l.requestsNext():
		l.tell(iwarp.ControlAck)
	}
	return owes
}
