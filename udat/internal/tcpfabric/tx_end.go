package tcpfabric

import (
	"time"

	"github.com/godat/godat/udat/internal/tcpfabric/iwarp"
)

// leave sends what is due when the queue pair ends, and closes the stream to the peer once this end
// has disconnected. It reports whether the peer has ended its stream too.
func (l *link) leave() (done bool) {
	t := &l.tx
	if !t.parted {
		t.parted = true
		l.makeLastBatch()
		l.linger = time.AfterFunc(partLimit, func() {
			l.leaving.Store(true)
			l.run()
		})
	}
	for !t.empty() && !t.cut {
		if !l.flushBatch() && !t.cut {
			return false
		}
	}
	if !t.closed && (l.leaving.Load() || t.refused || l.qp.Gone()) {
		t.closed = true
		l.sock.closeWrite()
		l.linger.Stop()
		l.linger = time.AfterFunc(lingerLimit, l.kill)
	}
	if !t.closed {
		return false
	}
	t.tidy(l)
	return l.eof
}

// lastFrames is the room for the frames of the last batch, in frames without payload.
const lastFrames = 4

// makeLastBatch makes the last batch. If some payload in the batch is not copied to stage, it must
// not be sent any more, so the batch is cut off before it. Otherwise an acknowledgement and a
// terminate message are added, if they are due.
func (l *link) makeLastBatch() {
	t := &l.tx
	for i := t.first; i < len(t.parts); i++ {
		if t.parts[i].kind != staged {
			t.parts = t.parts[:i]
			return
		}
	}
	if t.cut {
		return
	}
	if t.empty() {
		t.borrow(l)
	}
	if cap(t.stage)-len(t.stage) < lastFrames*frameRoom {
		return
	}
	if l.own && l.heard.executed.Load() != l.sent.executed.Load() {
		// A receive that is posted from now on is flushed at once, so the limit stays as it is.
		l.putControl(iwarp.ControlAck, iwarp.Counts(uint32(l.heard.executed.Load()), uint32(l.sent.limit.Load())))
	}
	l.qp.In.Lock()
	n := len(l.rx.last)
	l.qp.In.Unlock()
	if n > 0 {
		t.refused = true
		l.frame(&iwarp.Header{Op: iwarp.OpTerminate, MSN: 1, Payload: n}, part{n: n})
	}
}
