package tcpfabric

import (
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/softnic"
	"github.com/godat/godat/udat/internal/tcpfabric/iwarp"
)

// share makes the sessions of the victim use a shared queue for n receives, and returns a function
// that posts receives to it.
func (v *victim) share(n int) (post func(n int)) {
	v.t.Helper()
	var err error
	v.shared, err = v.pd.CreateSRQ(n, 1)
	assert.NilError(v.t, err)
	v.t.Cleanup(func() { assert.NilError(v.t, v.shared.Close()) })
	return func(n int) {
		v.t.Helper()
		for range n {
			sge := fabric.SGE{Addr: addressOf(v.mem[rxAt:]), Length: receiveSize, LKey: v.rx.LKey()}
			_, err := v.shared.PostRecv([]fabric.RecvWR{{NumSGE: 1}}, []fabric.SGE{sge})
			assert.NilError(v.t, err)
		}
	}
}

// told reads a control message.
func (p *peer) told(c iwarp.Control, value uint64) {
	p.t.Helper()
	h, _ := p.read()
	assert.Equal(p.t, h.Op, iwarp.OpControl)
	assert.Equal(p.t, h.Control, c)
	assert.Equal(p.t, h.Value, value)
}

// TestSharedReceives: a message to a shared queue needs a receive that was asked for. Each ask has
// one answer, at once; each receive that is posted later goes to one connection, and its peer hears
// of it.
func TestSharedReceives(t *testing.T) {
	v := newVictim(t)
	post := v.share(receives)
	waits, waiter := v.joined()
	takes, taker := v.joined()
	for n := range uint32(3) {
		waits.write(control(2+n, iwarp.ControlAsk, uint64(n)+1), nil)
		waits.told(iwarp.ControlGrant, iwarp.Counts(n, n)) // there is none
		takes.write(control(2+n, iwarp.ControlAsk, uint64(n)+1), nil)
		takes.told(iwarp.ControlGrant, iwarp.Counts(n, n))
		post(1)
		waits.told(iwarp.ControlAck, iwarp.Counts(n, n+1))
		post(1)
		takes.told(iwarp.ControlAck, iwarp.Counts(n, n+1))
		for _, p := range []*peer{waits, takes} {
			p.write(send(n+1, 0, true), []byte("some"))
			p.told(iwarp.ControlAck, iwarp.Counts(n+1, n+1))
		}
	}
	waits.write(send(4, 0, true), nil) // without a receive, although there may be one
	waits.terminatedWith(iwarp.FaultNoBuffer)
	for _, p := range []*peer{waits, takes} {
		p.Close()
	}
	waiter.expect(fabric.EventDisconnected)
	taker.expect(fabric.EventDisconnected)
}

// TestSharedReceivesAreShared: a peer that asks for much and sends nothing reserves a part of the
// receives at most, and one if there are few. Those that it has not used are flushed with it.
func TestSharedReceivesAreShared(t *testing.T) {
	const deep, few = 100, 3
	for n, want := range map[int]int{deep: sharedWindow, few: 1} {
		v := newVictim(t)
		v.share(deep)(n)
		p, s := v.joined()
		p.write(control(2, iwarp.ControlAsk, mostAsked), nil)
		p.told(iwarp.ControlGrant, iwarp.Counts(0, uint32(want)))
		assert.Equal(t, v.shared.Available(), n-want)
		l := linkOf(s.qp.(*softnic.QP))
		p.write(send(1, 0, true), nil)
		p.told(iwarp.ControlAck, iwarp.Counts(1, uint32(want+1))) // the place of the used one is filled
		assert.Equal(t, l.qp.Taken(), want)
		p.Close()
		s.leaves(t)
		var wcs [deep]fabric.WC
		got := 0
		within(t, "they are not flushed", func() bool {
			k, err := v.cq.Poll(wcs[:], 1)
			assert.NilError(t, err)
			got += k
			return got == 1+want
		})
	}
}

// TestSharedReceiveCutOff: the peer leaves in the middle of a message. The receive of this message
// and those that were asked for are flushed, and the queue pair then holds none.
func TestSharedReceiveCutOff(t *testing.T) {
	const asked, posted = 2, 16
	v := newVictim(t)
	v.share(posted)(posted)
	p, s := v.joined()
	p.write(control(2, iwarp.ControlAsk, asked), nil)
	p.told(iwarp.ControlGrant, iwarp.Counts(0, asked))
	q := s.qp.(*softnic.QP)
	p.write(send(1, 0, false), []byte("the first part"))
	p.write(control(3, iwarp.ControlAsk, asked+1), nil)
	p.told(iwarp.ControlGrant, iwarp.Counts(0, asked+1)) // so the first part has come
	p.Close()
	s.leaves(t)
	var wcs [asked + 2]fabric.WC
	got := 0
	within(t, "they are not flushed", func() bool {
		k, err := v.cq.Poll(wcs[got:], 1)
		assert.NilError(t, err)
		got += k
		return got == asked+1
	})
	for _, wc := range wcs[:got] {
		assert.Equal(t, wc.Status, fabric.StatusFlush)
	}
	assert.Equal(t, q.Taken(), 0)
}
