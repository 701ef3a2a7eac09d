//go:build !portablesocket

package tcpfabric

import (
	"os"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/softnic"
)

// TestLead: a Wait leads the device's poller, so that its own goroutine makes its completion. It
// ends by a completion, a Wake, its deadline and the close of its queue. The keeper leads before,
// and again once no Wait does.
func TestLead(t *testing.T) {
	v := newVictim(t)
	w := newWriter(t, v)
	p := v.dev.(*Device).poller
	for range 3 {
		within(t, "the keeper does not lead", p.keeping.Load)
		w.put(1, []byte("some"))
		w.executed() // without a Wait

		for range 2 {
			assert.NilError(t, v.cq.Arm(false))
			fired := v.waits()
			within(t, "the Wait does not lead", func() bool { return p.leader.Load() == w.set.queue })
			assert.Assert(t, !p.keeping.Load())
			w.put(1, []byte("some"))
			w.executed() // without a completion
			assert.Assert(t, p.leader.Load() == w.set.queue, "a write has ended the Wait")
			w.putImmediate()
			assert.Assert(t, <-fired)
			w.completes(1)
			_, err := w.s.qp.PostRecv([]fabric.RecvWR{{}}, nil)
			assert.NilError(t, err)

			fired = v.waits()
			within(t, "the Wait does not lead", func() bool { return p.leader.Load() == w.set.queue })
			v.cq.Wake()
			assert.Assert(t, !<-fired)
		}
		_, err := v.cq.Wait(time.Now().Add(2 * tickEvery))
		assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
	}
	cq, err := v.dev.CreateCQ(1)
	assert.NilError(t, err)
	v.dev.(*Device).progressOf(cq.(*softnic.CQ))
	closed := make(chan error, 1)
	go func() {
		_, err := cq.Wait(time.Time{})
		closed <- err
	}()
	within(t, "the Wait does not lead", func() bool { return p.leader.Load() == cq })
	assert.NilError(t, cq.Close())
	assert.ErrorIs(t, <-closed, fabric.ErrClosed)
	w.Close()
	w.s.expect(fabric.EventDisconnected)
}

// TestLeadOfTwo: of two Waits one leads, and makes the completions of both. When it ends, the other
// leads.
func TestLeadOfTwo(t *testing.T) {
	v := newVictim(t)
	w := newWriter(t, v)
	p := v.dev.(*Device).poller
	cq, err := v.dev.CreateCQ(1)
	assert.NilError(t, err)
	v.dev.(*Device).progressOf(cq.(*softnic.CQ))
	for range 3 {
		other := make(chan error, 1)
		go func() {
			_, err := cq.Wait(time.Time{})
			other <- err
		}()
		within(t, "the first Wait does not lead", func() bool { return p.leader.Load() == cq })
		for range 2 {
			assert.NilError(t, v.cq.Arm(false))
			fired := v.waits()
			within(t, "the second does not wait", v.cq.(*softnic.CQ).Waiting)
			assert.Assert(t, p.leader.Load() == cq)
			w.putImmediate()
			assert.Assert(t, <-fired)
			w.completes(1)
			_, err := w.s.qp.PostRecv([]fabric.RecvWR{{}}, nil)
			assert.NilError(t, err)
		}
		fired := v.waits()
		within(t, "the second does not wait", v.cq.(*softnic.CQ).Waiting)
		cq.Wake()
		assert.NilError(t, <-other)
		within(t, "the second does not lead", func() bool { return p.leader.Load() == w.set.queue })
		v.cq.Wake()
		assert.Assert(t, !<-fired)
	}
	assert.NilError(t, cq.Close())
	w.Close()
	w.s.expect(fabric.EventDisconnected)
}
