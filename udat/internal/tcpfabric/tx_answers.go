package tcpfabric

import (
	"sync/atomic"

	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/tcpfabric/iwarp"
)

// answers holds the answers that the peer's reads and atomics wait for, in a ring with one slot
// more than the read depth.
type answers struct {
	pending []answer
	pushed  atomic.Uint64 // the number of answers that rx has added
	open    bool          // the oldest answer is partly in batches
	turn    bool          // the next message is an answer, not a request
}

// answer is the answer to a read or an atomic.
type answer struct {
	atomic  bool
	sink    uint32 // the key or the ID in the peer's request
	at      uint64 // the offset at the peer
	key     uint32 // the memory that is read
	addr, n uint64
	sent    uint64
	value   uint64 // the old value, for an atomic
}

// A call of answer puts the oldest answer into the batch, or as much of it as there is room for,
// and reports whether another message may follow.
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
			l.rx.refuse(l, iwarp.FaultKey) // the memory could be accessed when the request came
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

// A call of controls puts the control messages that are due into the batch. It returns true if it
// has left out an acknowledgement that is due, because the next Send can carry it.
func (l *link) controls() (owes bool) {
	t := &l.tx
	if !l.own {
		return false
	}
	if l.held.Load() {
		l.hold()
	}
	// The fields ackNow and starved are loaded before the field executed. A request that is executed
	// between these loads sets ackNow again. While a request waits for a receive, no later request is
	// executed.
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

// feed makes ControlReady due if there is now a receive for the peer's waiting request. If another
// queue pair of the SRQ has taken the receive, the next receive wakes the link again.
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
