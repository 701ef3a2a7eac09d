//go:build !portablesocket

package tcpfabric

import (
	"runtime"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/internal/blocker"
	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/softnic"
)

func no() bool { return false }

// blocks makes another goroutine call Block of the set, for at most patience, and waits until it
// blocks. The channel gets the result of Block.
func (w *writer) blocks() <-chan bool {
	w.t.Helper()
	result := make(chan bool, 1)
	go func() { result <- w.set.Block(patience, no) }()
	within(w.t, "it does not block", func() bool { return w.set.blocked.Load() != nil })
	return result
}

func ended(t *testing.T, result <-chan bool) bool {
	t.Helper()
	select {
	case got := <-result:
		return got
	case <-time.After(patience):
		t.Fatal("Block does not return")
		return false
	}
}

// TestBlock: data on a hot link, and Kick, end Block. While Block waits, no other goroutine reads
// the link. Afterwards the device's poller reads it, whatever the link was hot for.
func TestBlock(t *testing.T) {
	if runtime.GOMAXPROCS(0) < 2 {
		t.Skip("no thread may block")
	}
	v := newVictim(t)
	v.still()
	w := newWriter(t, v)
	assert.Assert(t, !w.set.Block(patience, no)) // no link is hot
	for _, byWait := range []bool{false, true, true} {
		w.set.Sleep()
		assert.Assert(t, w.set.add(w.l, byWait))
		for range 2 {
			blocked := w.blocks()
			w.set.dev.heat(w.set)
			for range 2 {
				w.set.dev.tick() // leaves the link hot
			}
			assert.Assert(t, w.l.hot.Load() == w.set)
			w.put(1, []byte("some"))
			assert.Assert(t, ended(t, blocked))
			assert.Equal(t, w.l.heard.executed.Load(), w.sent)

			blocked = w.blocks()
			w.set.Kick()
			assert.Assert(t, ended(t, blocked))
		}
		assert.Assert(t, !w.set.Block(time.Millisecond, no)) // nothing comes
		assert.Assert(t, w.set.Block(patience, func() bool { return true }))
		assert.Assert(t, w.l.hot.Load() == w.set)
		w.poll()
		for w.l.sent.executed.Load() < w.sent {
			time.Sleep(time.Millisecond)
		}
		w.put(1, []byte("some"))
		w.executed() // without a poll
	}

	w.set.Sleep()
	assert.Assert(t, w.set.add(w.l, true))
	blocked := w.blocks()
	w.Close() // the end of the stream
	ended(t, blocked)
	w.s.expect(fabric.EventDisconnected)
	assert.Assert(t, !w.set.Block(patience, no))
}

// TestBlockedThreads: Block needs a blocker, and gives it back; it has room for all links of a set.
func TestBlockedThreads(t *testing.T) {
	v := newVictim(t)
	v.still()
	w := newWriter(t, v)
	assert.Assert(t, w.set.add(w.l, false))
	free := blocker.Free()
	var all []*blocker.Blocker
	for range free {
		all = append(all, blocker.Take())
	}
	assert.Assert(t, !w.set.Block(patience, func() bool { return true }))
	for _, b := range all {
		b.GiveBack()
	}
	for range len(w.set.links) - 1 { // the set is full
		other := newWriter(t, v)
		assert.Assert(t, w.set.add(other.l, false))
		defer other.Close()
	}
	assert.Equal(t, w.set.Block(patience, func() bool { return true }), free > 0)
	assert.Equal(t, blocker.Free(), free)
	assert.Assert(t, w.set.blocked.Load() == nil, "later kicks are for another")
	w.Close()
}

// TestBriefWaits: two events during brief Waits make a link hot for waits. An event during a Wait
// that follows a long one does not count, and an event between polls makes the link cool again.
func TestBriefWaits(t *testing.T) {
	v := newVictim(t)
	v.still()
	w := newWriter(t, v)
	arrives := func(after time.Duration) {
		t.Helper()
		assert.NilError(t, v.cq.Arm(false))
		fired := v.waits()
		within(t, "no Wait", v.cq.(*softnic.CQ).Waiting)
		time.Sleep(after)
		w.putImmediate()
		assert.Assert(t, <-fired)
		w.completes(1)
		_, err := w.s.qp.PostRecv([]fabric.RecvWR{{}}, nil)
		assert.NilError(t, err)
	}
	for range 4 {
		arrives(2 * blocker.For)
		assert.Assert(t, w.l.hot.Load() == nil)
	}
	within(t, "brief waits do not heat the link", func() bool { // on a busy machine waits are seldom brief
		arrives(0)
		return w.l.hot.Load() != nil
	})
	assert.Assert(t, w.l.byWait.Load())
	for range manyPolls {
		w.poll()
	}
	w.put(1, []byte("some"))
	w.executed()
	within(t, "an event between polls leaves the link hot for waits", func() bool { return !w.l.byWait.Load() })
	w.set.Sleep()
	w.Close()
	w.s.expect(fabric.EventDisconnected)
}
