package tcpfabric

import (
	"sync/atomic"

	"github.com/godat/godat/udat/internal/tcpfabric/iwarp"
)

// This file decides what a peer may say: it compares each frame with what this end has written to
// the socket and what is still without an answer. There is one function for each kind of frame; rx
// calls it before the frame has an effect. Only here do the counts of heard that a peer tells
// change: so nothing that this end has not written whole can be acknowledged, answered or granted,
// and nothing twice. A frame that is verified again has changed nothing but counts. docs/tcp.md,
// "The wire", has the rules.
//
// Memory that a frame names (keys, bounds, rights) is checked by softnic, the form of a frame by
// iwarp.

// wrote reports whether this end has written n of what count counts. If it has not, but a write is
// under way, the peer may have got what is not counted yet: then x keeps the frame (early), and the
// goroutine that writes makes x verify it again.
func (x *rx) wrote(l *link, count *atomic.Uint64, n uint64) bool {
	if count.Load() >= n {
		return true
	}
	l.sent.recheck.Store(true) // before the load: a write that ends after the load finds it
	if l.sent.writing.Load() {
		x.early = true
		return false
	}
	return count.Load() >= n
}

// since returns the number whose lower bits are the peer's, and which is the first from base on.
func since[T uint16 | uint32](base uint64, lower T) uint64 { return base + uint64(lower-T(base)) }

// verifyFirst: the first frame of an end of this library is its hello.
func (x *rx) verifyFirst(l *link) iwarp.Fault {
	if !x.greeted && l.own != (x.h.Op == iwarp.OpControl && x.h.Control == iwarp.ControlHello) {
		return iwarp.FaultOpcode
	}
	return fine
}

// verifyOrder: the messages of a queue come in order, and the segments of a message, too.
func (x *rx) verifyOrder() iwarp.Fault {
	h := &x.h
	if h.Op.Tagged() {
		return fine
	}
	want, off := x.queues[h.Op.Queue()]+1, uint64(0)
	if h.Op.Queue() == iwarp.QueueSend && x.open {
		want, off = want-1, x.size
		if h.Op != x.openOp {
			return iwarp.FaultOpcode
		}
	}
	switch {
	case h.MSN != want:
		return iwarp.FaultMSN
	case uint64(h.MO) != off:
		return iwarp.FaultMO
	}
	return fine
}

// verifyMessage: a message begins only if the peer was told of a receive for it.
func (x *rx) verifyMessage(l *link) iwarp.Fault {
	n := l.heard.messages.Load() + 1
	if l.own && n > l.sent.limit.Load() {
		return iwarp.FaultNoBuffer
	}
	l.heard.messages.Store(n)
	return fine
}

// verifyRead: a read or an atomic comes only if fewer than the depth are without an answer.
func (x *rx) verifyRead(l *link) iwarp.Fault {
	n, depth := l.heard.reads.Load()+1, uint64(len(l.tx.pending))
	if depth == 0 || n > depth && !x.wrote(l, &l.sent.answers, n-depth) {
		return iwarp.FaultReadDepth
	}
	return fine
}

// verifyAnswer: an answer belongs to the oldest read or atomic without an answer. It returns that
// request.
func (x *rx) verifyAnswer(l *link) (*ask, iwarp.Fault) {
	h, n := &x.h, l.heard.answered.Load()+1
	if !x.wrote(l, &l.sent.reads, n) {
		return nil, iwarp.FaultOpcode
	}
	a := &l.asked[n%uint64(len(l.asked))]
	length := uint64(h.Payload)
	switch {
	case a.atomic != (h.Op == iwarp.OpAtomicResponse):
		return nil, iwarp.FaultOpcode
	case a.atomic && h.ID != a.key:
		return nil, iwarp.FaultOperation
	case a.atomic:
		return a, fine
	case h.Key != a.key:
		return nil, iwarp.FaultTaggedKey
	case h.Offset != x.got || length > a.length-x.got || h.Last != (length == a.length-x.got) || length == 0 && !h.Last:
		return nil, iwarp.FaultTaggedBounds
	}
	return a, fine
}

// verifyExecuted: the peer has executed no request that it has not got, and as many as it said
// before. n is the number that it says.
func (x *rx) verifyExecuted(l *link, n uint64) iwarp.Fault {
	if !x.wrote(l, &l.sent.requests, n) {
		return iwarp.FaultOperation
	}
	l.heard.acked.Store(n)
	return fine
}

// verifyLimit: the peer has no more receives than its window, those of a shared queue only for
// messages that were asked for, and as many as it said before. n is the number that it says.
func (x *rx) verifyLimit(l *link, n uint64) iwarp.Fault {
	if n > l.sent.messages.Load()+l.heard.window.Load() || l.heard.shared.Load() && !x.wrote(l, &l.sent.wanted, n) {
		return iwarp.FaultOperation
	}
	l.heard.limit.Store(n)
	return fine
}

// verifyControl checks a control message.
func (x *rx) verifyControl(l *link) iwarp.Fault {
	switch h := &x.h; h.Control {
	case iwarp.ControlHello:
		return x.verifyHello(l, h.Value)
	case iwarp.ControlAsk:
		return x.verifyAsk(l, h.Value)
	case iwarp.ControlGrant:
		n := l.heard.grants.Load() + 1
		if !x.wrote(l, &l.sent.asks, n) {
			return iwarp.FaultOperation
		}
		f := x.verifyCounts(l)
		if f == fine {
			l.heard.grants.Store(n) // after the limit, which tx compares when there is no ask under way
		}
		return f
	}
	return x.verifyCounts(l)
}

// verifyCounts checks the counts of a control message.
func (x *rx) verifyCounts(l *link) iwarp.Fault {
	executed, limit := iwarp.ParseCounts(x.h.Value)
	return verifyTold(x, l, executed, limit)
}

// verifyWord checks what a Send says beside its message.
func (x *rx) verifyWord(l *link) iwarp.Fault {
	executed, limit := iwarp.ParseWord(x.h.Word)
	return verifyTold(x, l, executed, limit)
}

func verifyTold[T uint16 | uint32](x *rx, l *link, executed, limit T) iwarp.Fault {
	if f := x.verifyExecuted(l, since(l.heard.acked.Load(), executed)); f != fine {
		return f
	}
	return x.verifyLimit(l, since(l.heard.limit.Load(), limit))
}

// verifyHello: there is one hello.
func (x *rx) verifyHello(l *link, value uint64) iwarp.Fault {
	h, err := iwarp.ParseHello(value)
	switch {
	case x.greeted:
		return iwarp.FaultOperation
	case err != nil:
		return asFault(err)
	}
	l.heard.shared.Store(h.Shared)
	l.heard.window.Store(uint64(h.Window))
	l.heard.limit.Store(uint64(h.Limit))
	l.heard.segment.Store(int64(h.Segment))
	l.heard.greeted.Store(true)
	return fine
}

// mostAsked is how many messages an end may ask receives for: the depth of the longest send queue.
const mostAsked = 1 << 15

// verifyAsk: the peer asks for messages that it has not sent, for no fewer than before, and only
// after the answer to its last ask.
func (x *rx) verifyAsk(l *link, value uint64) iwarp.Fault {
	messages, asks := l.heard.messages.Load(), l.heard.asks.Load()
	n := since(messages, uint32(value))
	if value>>32 != 0 || n == messages || n > messages+mostAsked || n < l.heard.wanted.Load() ||
		!x.wrote(l, &l.sent.grants, asks) {
		return iwarp.FaultOperation
	}
	l.heard.wanted.Store(n)
	l.heard.asks.Store(asks + 1)
	return fine
}
