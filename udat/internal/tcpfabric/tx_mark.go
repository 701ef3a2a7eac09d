package tcpfabric

import "github.com/godat/godat/udat/internal/fabric"

// mark is how far a request of the send queue has come. A request takes its mark when it begins,
// and leaves the send queue only when done says so.
type mark struct {
	request uint64 // the number of the request in the send queue, from 1; a mark with another number is of an older one
	state   state
	by      doneBy
	status  fabric.Status // the result, if the state is decided
	end     uint64        // how many bytes have been put into batches when the request has been put as a whole
	numbers               // including the request
}

// state is the state of a request that has begun.
type state uint8

const (
	begun   state = iota // it is not in batches as a whole
	batched              // it is in batches as a whole
	written              // it has been written to the socket as a whole
	decided              // it has failed, or needed no message
)

// doneBy is the kind of progress that completes a request that has been written.
type doneBy uint8

const (
	byWriting doneBy = iota // nothing else
	byAck                   // the peer has acknowledged it
	byAnswer                // the peer has answered it
)

// numbers count what has begun.
type numbers struct {
	requests uint64 // as the peer counts them
	messages uint64 // sends and immediate data
	reads    uint64 // reads and atomics
}

func (m *mark) decide(st fabric.Status) { m.state, m.status = decided, st }

// done reports whether request n, counted from 0, has completed, and how.
func (l *link) done(n uint64) (bool, fabric.Status) {
	m := l.tx.mark(n)
	switch {
	case m.request != n+1:
		return false, 0 // it has not begun
	case m.state == decided:
		return true, m.status
	case m.state != written:
		return false, 0
	}
	switch m.by {
	case byAck:
		return l.heard.acked.Load() >= m.requests, fabric.StatusSuccess
	case byAnswer:
		return l.heard.answered.Load() >= m.reads, fabric.StatusSuccess
	}
	return true, fabric.StatusSuccess
}

// countWritten records what the latest write has written as a whole.
func (l *link) countWritten() {
	t := &l.tx
	for ; t.counted < t.next; t.counted++ {
		m := t.mark(t.counted)
		if m.request != t.counted+1 || m.state == decided { // also if it is done already
			continue
		}
		if m.end > t.written {
			break
		}
		m.state = written
		l.sent.requests.Store(m.requests)
		l.sent.reads.Store(m.reads)
	}
	for n := l.sent.answers.Load(); n < t.answered && t.pending[n%uint64(len(t.pending))].end <= t.written; n++ {
		l.sent.answers.Store(n + 1)
	}
	if t.askEnd != 0 && t.askEnd <= t.written {
		t.askEnd = 0
		l.sent.wanted.Store(t.wanted)
		l.sent.asks.Add(1)
	}
	if t.grantEnd != 0 && t.grantEnd <= t.written {
		t.grantEnd = 0
		l.sent.grants.Add(1)
	}
}
