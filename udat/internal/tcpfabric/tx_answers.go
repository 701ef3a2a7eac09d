package tcpfabric

import (
	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/tcpfabric/iwarp"
)

// answers holds the answers that the peer's reads and atomics wait for. An answer keeps its place
// in the ring until it is written.
type answers struct {
	pending  []answer // a ring as long as the read depth
	answered uint64   // answers put into batches
	open     bool     // the next answer is partly in batches
	turn     bool     // the next message is an answer, not a request
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
	end     uint64 // how many bytes have been put into batches when the answer has been put as a whole
}

// A call of answer puts the oldest answer into the batch, or as much of it as there is room for,
// and reports whether another message may follow.
func (l *link) answer() bool {
	t := &l.tx
	if t.begun || t.answered == l.heard.reads.Load() {
		return false
	}
	a := &t.pending[t.answered%uint64(len(t.pending))]
	if a.atomic {
		t.back++
		l.frame(&iwarp.Header{Op: iwarp.OpAtomicResponse, MSN: t.back, ID: a.sink, Value: a.value}, part{})
		a.end = t.queued
		t.answered++
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
	a.end = t.queued
	t.answered++
	return true
}
