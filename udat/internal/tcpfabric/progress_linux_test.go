//go:build !portablesocket

// On other systems callers do not read sockets by polling, and acknowledgements are not postponed.

package tcpfabric

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/softnic"
	"github.com/godat/godat/udat/internal/tcpfabric/iwarp"
	"gotest.tools/v3/assert"
)

// writer is a raw socket that behaves as an end of this library, and writes into a victim's memory.
type writer struct {
	*peer
	v    *victim
	s    *session
	l    *link // the victim's end
	set  *progress
	sent uint64
	msn  uint32
}

func newWriter(t *testing.T, v *victim) *writer {
	t.Helper()
	p, s := v.joined()
	return &writer{peer: p, v: v, s: s, l: linkOf(s.qp.(*softnic.QP)), set: v.cq.(*softnic.CQ).Idler().(*progress)}
}

// still stops the ticks of the device before the first one.
func (v *victim) still() { v.dev.(*Device).poller.tick = func() {} }

// waits calls Wait in another goroutine. The channel gets the result.
func (v *victim) waits() <-chan bool {
	result := make(chan bool, 1)
	go func() {
		fired, err := v.cq.Wait(time.Now().Add(patience))
		result <- fired && err == nil
	}()
	return result
}

// put sends one write in a number of segments.
func (w *writer) put(segments int, payload []byte) {
	var stream []byte
	for n := range segments {
		h := iwarp.Header{Op: iwarp.OpWrite, Last: n == segments-1, Key: w.v.mr.RKey(), Offset: w.v.at(0)}
		stream = append(stream, frame(h, payload, false)...)
	}
	w.sent++
	w.bytes(stream)
}

// putImmediate sends one write with immediate data.
func (w *writer) putImmediate() {
	w.t.Helper()
	w.msn++
	immediate := frame(iwarp.Header{Op: iwarp.OpImmediate, Last: true, MSN: w.msn}, nil, false)
	h := iwarp.Header{Op: iwarp.OpWrite, Last: true, Key: w.v.mr.RKey(), Offset: w.v.at(0)}
	write := frame(h, []byte("some"), false)
	w.sent += 2
	w.bytes(append(write, immediate...))
	w.executed()
}

// completes waits for n completions.
func (w *writer) completes(n int) {
	w.t.Helper()
	var wcs [2]fabric.WC
	got, err := w.v.cq.Poll(wcs[:], 1)
	assert.NilError(w.t, err)
	assert.Equal(w.t, got, n)
}

// executed waits until the victim has executed the writes.
func (w *writer) executed() {
	w.t.Helper()
	for until := time.Now().Add(patience); w.l.heard.executed.Load() < w.sent; time.Sleep(time.Millisecond) {
		assert.Assert(w.t, time.Now().Before(until), "%d of %d writes", w.l.heard.executed.Load(), w.sent)
	}
}

// owed waits until the acknowledgement of the writes is left to the caller that polls.
func (w *writer) owed() {
	w.t.Helper()
	w.executed()
	for until := time.Now().Add(patience); w.set.owing.Load() != w.l; time.Sleep(time.Millisecond) {
		assert.Assert(w.t, time.Now().Before(until), "not left to the poller; told %d of %d", w.l.sent.executed.Load(),
			w.sent)
	}
	assert.Equal(w.t, w.l.sent.executed.Load(), w.sent-1)
}

// acknowledged checks that the next frame acknowledges all writes.
func (w *writer) acknowledged() {
	w.t.Helper()
	h, _ := w.read()
	assert.Equal(w.t, h.Op, iwarp.OpControl)
	assert.Equal(w.t, h.Control, iwarp.ControlAck)
	executed, _ := iwarp.ParseCounts(h.Value)
	assert.Equal(w.t, uint64(executed), w.sent)
}

// posts posts 4 bytes at the victim's end.
func (w *writer) posts(op fabric.Opcode, key uint32) {
	w.t.Helper()
	sge := fabric.SGE{Addr: w.v.at(0), Length: 4, LKey: key}
	_, err := w.s.qp.PostSend([]fabric.SendWR{{Opcode: op, NumSGE: 1}}, []fabric.SGE{sge})
	assert.NilError(w.t, err)
}

func (w *writer) poll() {
	w.t.Helper()
	var wcs [1]fabric.WC
	n, err := w.v.cq.Poll(wcs[:], 1)
	assert.NilError(w.t, err)
	assert.Equal(w.t, n, 0)
}

// TestAcknowledgement: requests are acknowledged at once if no caller polls. A write is, too, if a
// caller waits, because that caller learns nothing of a write. Otherwise the acknowledgement goes
// out with the next message to the peer, at the next poll without a completion, when the caller is
// about to sleep, or at the next tick. Two requests or 512 KiB are acknowledged without such an
// event.
func TestAcknowledgement(t *testing.T) {
	v := newVictim(t)
	v.still()
	w := newWriter(t, v)
	some := []byte("some")

	w.put(1, some) // nobody polls
	w.acknowledged()

	for range 2 {
		w.poll()
		w.put(1, some)
		w.owed()
		w.posts(fabric.OpSend, v.mr.LKey())
		h, _ := w.read()
		assert.Equal(t, h.Op, iwarp.OpSend)
		assert.Equal(t, uint64(h.Word>>16), w.sent)

		w.poll()
		w.put(1, some)
		w.owed()
		w.posts(fabric.OpSendImm, v.mr.LKey())
		w.acknowledged() // before the message
		h, _ = w.read()
		assert.Equal(t, h.Op, iwarp.OpSendImm)

		w.poll()
		w.put(1, some)
		w.owed()
		w.poll()
		w.acknowledged()

		w.poll()
		w.put(1, some)
		w.owed()
		assert.NilError(t, v.cq.Arm(false))
		w.acknowledged()

		w.poll()
		w.put(1, some)
		w.owed()
		w.set.polls.Add(1) // as a poll does that finds something
		v.dev.(*Device).tick()
		w.acknowledged()

		done := make(chan struct{})
		go func() { // a caller that waits will poll too
			v.cq.Wait(time.Now().Add(patience))
			close(done)
		}()
		for !v.cq.(*softnic.CQ).Waiting() {
			time.Sleep(time.Millisecond)
		}
		w.put(1, some)
		w.acknowledged()
		w.l.heard.delivered.Store(1 << 63) // as if the caller had a receive to answer
		w.put(1, some)
		w.owed()
		w.put(1, some)
		w.acknowledged()
		w.put(ackBytes/roomSize, v.room())
		w.acknowledged()
		w.put(ackBytes/roomSize-1, v.room())
		w.owed()
		w.l.heard.delivered.Store(0)
		v.cq.Wake()
		<-done
		w.poll()
		w.acknowledged()
	}
	w.Close()
	w.s.expect(fabric.EventDisconnected)
}

// TestAcknowledgementOfImmediate: the acknowledgement of a write with immediate data is left to the
// program's answer, too. The second such write is acknowledged at once.
func TestAcknowledgementOfImmediate(t *testing.T) {
	v := newVictim(t)
	v.still()
	w := newWriter(t, v)
	// owed sends a write whose acknowledgement is left to the caller that polls. A late event of the
	// socket may have come after the poll. Then owed sends another one.
	owed := func() {
		t.Helper()
		for until := time.Now().Add(patience); ; {
			w.poll()
			w.putImmediate()
			within(t, "neither acknowledged nor owed", func() bool {
				return w.set.owing.Load() == w.l || w.l.sent.executed.Load() == w.sent
			})
			if w.set.owing.Load() == w.l {
				assert.Equal(t, w.l.sent.executed.Load(), w.sent-2)
				return
			}
			assert.Assert(t, time.Now().Before(until), "not left to the poller")
			w.acknowledged()
			w.completes(1)
		}
	}

	owed()
	w.posts(fabric.OpSend, v.mr.LKey())
	h, _ := w.read()
	assert.Equal(t, h.Op, iwarp.OpSend)
	assert.Equal(t, uint64(h.Word>>16), w.sent)
	w.completes(1)

	owed()
	w.putImmediate()
	h, _ = w.read()
	assert.Equal(t, h.Op, iwarp.OpControl)
	assert.Assert(t, h.Value>>32 >= w.sent-1, "%d of %d", h.Value>>32, w.sent)
	w.completes(2)
	if h.Value>>32 < w.sent { // only the write is acknowledged
		w.poll()
		w.acknowledged()
	}
	w.Close()
	w.s.expect(fabric.EventDisconnected)
}

// TestAcknowledgementOfFailed: a Send that fails before it is sent does not keep back an
// acknowledgement.
func TestAcknowledgementOfFailed(t *testing.T) {
	v := newVictim(t)
	v.still()
	w := newWriter(t, v)
	w.posts(fabric.OpSendImm, v.mr.LKey()) // not acknowledged: what follows it does not complete
	h, _ := w.read()
	assert.Equal(t, h.Op, iwarp.OpSendImm)
	w.l.qp.In.Lock()
	for range ackRequests {
		w.sent++
		w.l.rx.executed(w.l)
	}
	w.l.qp.In.Unlock()
	w.posts(fabric.OpSend, 1)
	w.acknowledged()
	w.Close()
	w.s.expect(fabric.EventDisconnected)
}

// TestAcknowledgementOfTwo: the caller that polls a queue has the acknowledgement of one connection
// to send at a time. That of another connection is sent at once.
func TestAcknowledgementOfTwo(t *testing.T) {
	v := newVictim(t)
	v.still()
	first, second := newWriter(t, v), newWriter(t, v)
	for range 3 {
		first.poll()
		first.put(1, []byte("first"))
		first.owed()
		second.put(1, []byte("second"))
		second.acknowledged()
		assert.Equal(t, first.l.sent.executed.Load(), first.sent-1)
		first.poll()
		first.acknowledged()
	}
	for _, w := range []*writer{first, second} {
		w.Close()
		w.s.expect(fabric.EventDisconnected)
	}
}

// TestAcknowledgementTick: if the caller does not poll again, the tick sends the acknowledgement.
func TestAcknowledgementTick(t *testing.T) {
	v := newVictim(t)
	var set atomic.Pointer[progress]
	var paid atomic.Int32
	poller := v.dev.(*Device).poller
	tick := poller.tick
	poller.tick = func() {
		s := set.Load()
		owed := s != nil && s.owing.Load() != nil
		tick()
		if owed && s.owing.Load() == nil {
			paid.Add(1)
		}
	}
	w := newWriter(t, v)
	set.Store(w.set)
	for range 3 {
		w.poll()
		w.put(1, []byte("some"))
		w.acknowledged()
	}
	assert.Assert(t, paid.Load() > 0)
	w.Close()
	w.s.expect(fabric.EventDisconnected)
}

// led makes polls of the queue lead the device's poller instead of the keeper.
func (w *writer) led() {
	w.t.Helper()
	within(w.t, "polls do not make the keeper give way", func() bool {
		w.poll()
		return !w.v.dev.(*Device).poller.keeping.Load()
	})
}

// TestPollsLead: polls read the sockets themselves, of one link and of several, of their queue and
// of others. If the program polls no more, the keeper reads them.
func TestPollsLead(t *testing.T) {
	v := newVictim(t)
	p := v.dev.(*Device).poller
	cq, err := v.dev.CreateCQ(1)
	assert.NilError(t, err)
	other := v.dev.(*Device).progressOf(cq.(*softnic.CQ))
	var all []*writer
	for links := range 3 {
		w := newWriter(t, v)
		all = append(all, w)
		assert.Equal(t, w.set.only.Load() == w.l, links == 0)
		for range 3 {
			for _, w := range all {
				w.led()
				w.put(1, []byte("some"))
				for w.l.heard.executed.Load() < w.sent {
					w.poll()
				}
				w.led()
				w.put(1, []byte("some"))
				for w.l.heard.executed.Load() < w.sent {
					other.Idle()
				}
			}
			within(t, "the keeper does not lead again", p.keeping.Load)
			w.put(1, []byte("some"))
			w.executed()
		}
	}
	for _, w := range all {
		w.Close()
		w.s.expect(fabric.EventDisconnected)
		w.l.kill()
	}
	within(t, "links have not left", func() bool {
		all[0].set.mu.Lock()
		defer all[0].set.mu.Unlock()
		return all[0].set.links == 0
	})
	w := newWriter(t, v)
	assert.Assert(t, w.set.only.Load() == w.l)
	w.Close()
	w.s.expect(fabric.EventDisconnected)
	assert.NilError(t, cq.Close())
}

// TestPollsOfTwo: if a program polls one queue only, the acknowledgement that another queue owes is
// sent all the same.
func TestPollsOfTwo(t *testing.T) {
	v := newVictim(t)
	cq, err := v.dev.CreateCQ(1)
	assert.NilError(t, err)
	other := v.dev.(*Device).progressOf(cq.(*softnic.CQ))
	w := newWriter(t, v)
	for range 3 {
		w.led()
		w.put(1, []byte("some"))
		for w.l.heard.executed.Load() < w.sent {
			w.poll()
		}
		for w.l.sent.executed.Load() < w.sent {
			other.Idle()
		}
		w.acknowledged()
	}
	w.Close()
	w.s.expect(fabric.EventDisconnected)
	assert.NilError(t, cq.Close())
}

// TestLateDeadline: a deadline that is set for a call of again that was already handled stops no
// event.
func TestLateDeadline(t *testing.T) {
	v := newVictim(t)
	w := newWriter(t, v)
	for range 3 {
		v.dev.(*Device).poller.file.SetReadDeadline(past)
		w.put(1, []byte("some"))
		w.acknowledged()
	}
	w.Close()
	w.s.expect(fabric.EventDisconnected)
}
