package tcpfabric

import (
	"sync/atomic"

	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/tcpfabric/iwarp"
)

// answers are those that the peer's reads and atomics wait for: a ring as large as the read depth.
type answers struct {
	pending []answer
	pushed  atomic.Uint64 // by rx
	open    bool          // some frames of the oldest have been sent
	turn    bool          // it is an answer's, not a request's
}

// answer is the answer to a read or an atomic.
type answer struct {
	atomic  bool
	sink    uint32 // the peer's name for it
	at      uint64 // the peer's offset
	key     uint32 // what is read
	addr, n uint64
	sent    uint64
	value   uint64 // what an atomic has found
}

// answer puts the oldest answer into the batch, or as much of it as there is room for, and reports
// whether another message may follow.
func (l *link) answer() bool {
	t := &l.tx
	served := l.served.Load()
	if t.begun || served == t.pushed.Load() {
		return false
	}
	a := &t.pending[served%uint64(len(t.pending))]
	if a.atomic {
		t.back++
		l.frame(&iwarp.Header{Op: iwarp.OpAtomicResponse, MSN: t.back, ID: a.sink, Value: a.value}, part{})
		l.served.Store(served + 1)
		return true
	}
	t.open = true
	for done := false; !done; {
		n := l.fit(iwarp.OpReadResponse, a.n-a.sent)
		if !l.roomy() || n == 0 && a.sent < a.n {
			return false
		}
		done = a.sent+uint64(n) == a.n
		h := iwarp.Header{Op: iwarp.OpReadResponse, Last: done, Payload: n, Key: a.sink, Offset: a.at + a.sent}
		p := part{kind: ofPeer, off: a.addr + a.sent, n: n, key: a.key}
		if st := l.frame(&h, p); st != fabric.StatusSuccess {
			l.qp.In.Lock()
			l.rx.refuse(l, iwarp.FaultKey) // the memory has been there when the request came
			l.rx.fail(l)
			l.qp.In.Unlock()
			return false
		}
		a.sent += uint64(n)
	}
	t.open = false
	l.served.Store(served + 1)
	return true
}

// controls puts the control messages that are due into the batch. owes: an acknowledgement is due,
// which the Send that follows has.
func (l *link) controls() (owes bool) {
	t := &l.tx
	if !l.own {
		return false
	}
	if l.held.Load() {
		l.hold()
	}
	// The flags are read before the count: a request that is executed after this sets ackNow again,
	// and behind a starving request none is executed.
	now, starves := l.ackNow.Swap(false), l.starved.CompareAndSwap(hungry, waiting)
	executed := l.executed.Load()
	switch {
	case starves:
		l.acknowledge(iwarp.ControlNotReady, executed)
		l.feed()
	case executed == l.told.Load():
	case t.pushed.Load() == l.served.Load() && l.sendsNext():
		owes = now
	case now, t.pushed.Load() > l.served.Load(), l.requestsNext():
		l.acknowledge(iwarp.ControlAck, executed)
	}
	if t.ready {
		t.ready = false
		l.putControl(iwarp.ControlReady, executed)
	}
	return owes
}

// feed announces to the peer that a receive has been posted for its waiting request. Another queue
// pair of an SRQ may have taken that receive already: then the next one wakes the link again.
func (l *link) feed() {
	if l.starved.Load() == waiting && l.qp.Await(l) {
		l.tx.ready = true
		l.starved.Store(promised)
	}
}

func (l *link) acknowledge(c iwarp.Control, executed uint64) {
	l.told.Store(executed)
	l.putControl(c, executed)
}
