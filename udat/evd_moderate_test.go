package udat_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
)

// heldBack is how long a device may hold a completion back.
const heldBack = 50 * time.Microsecond

// moderated are two connected endpoints; waits for four receives at a time have taught the second one's dispatcher to moderate.
type moderated struct {
	a, b            *end
	fires, commands func() int
}

func moderate(t *testing.T, dev string, refusal error) *moderated {
	a, b := pair(t, dev, setup{unkept: true})
	m := &moderated{a: a, b: b}
	m.fires, m.commands = udat.Notified(b.recv, refusal)
	return m
}

// send sends n messages, one after the other, and no time passes.
func (m *moderated) send(t *testing.T, n int) {
	t.Helper()
	for range n {
		m.b.receive(0, 1)
		assert.NilError(t, m.a.ep.PostSend(m.a.iov(0, 8), 1, udat.CompletionSuppress))
		synctest.Wait()
	}
}

// four waits for four messages that come while it waits, takes them, and gives the notifications that it took.
func (m *moderated) four(t *testing.T) int {
	t.Helper()
	before := m.fires()
	w := waitOn(t, m.b.recv, udat.Infinite, 4)
	synctest.Wait()
	m.send(t, 4)
	r := <-w.done
	assert.NilError(t, r.err)
	assert.Equal(t, r.nmore, 3)
	for range 3 {
		next(t, m.b.recv)
	}
	return m.fires() - before
}

// learn waits until the dispatcher has learnt.
func (m *moderated) learn(t *testing.T) {
	t.Helper()
	for range 7 {
		assert.Equal(t, m.four(t), 4)
	}
	assert.Equal(t, m.commands(), 0)
	assert.Equal(t, m.four(t), 1)
	assert.Equal(t, m.commands(), 1)
}

// TestModeration: waits for the same threshold, again and again, come to cost one notification each.
func TestModeration(t *testing.T) {
	inFakeTime(t, func(t *testing.T, dev string) {
		m := moderate(t, dev, nil)
		m.learn(t)
		for range 3 {
			assert.Equal(t, m.four(t), 1)
		}
		assert.Equal(t, m.commands(), 1)
	})
}

// TestModerationEnds: whoever wants one event gets it at once, a direct waiter and a notification object.
func TestModerationEnds(t *testing.T) {
	inFakeTime(t, func(t *testing.T, dev string) {
		m := moderate(t, dev, nil)
		m.learn(t)
		w := waitOn(t, m.b.recv, udat.Infinite, 1)
		synctest.Wait()
		took(t, 0, func() {
			m.send(t, 1)
			assert.NilError(t, (<-w.done).err)
		})
		assert.Equal(t, m.commands(), 2)
		assert.Equal(t, m.four(t), 4) // anew

		m = moderate(t, dev, nil)
		m.learn(t)
		cno, err := m.b.ia.CreateCNO(nil)
		assert.NilError(t, err)
		assert.NilError(t, m.b.recv.ModifyCNO(cno))
		synctest.Wait()
		took(t, 0, func() {
			m.send(t, 1)
			_, err := cno.Wait(time.Hour)
			assert.NilError(t, err)
		})
		next(t, m.b.recv)
		for range 9 {
			assert.Equal(t, m.four(t), 4) // the notification object is told of what a waiter leaves
		}
	})
}

// TestModerationHoldsNothingBack: what is less than the threshold is told in time, above all that the connection broke, and a wait that expires
// has counted everything.
func TestModerationHoldsNothingBack(t *testing.T) {
	inFakeTime(t, func(t *testing.T, dev string) {
		m := moderate(t, dev, nil)
		m.learn(t)
		w := waitOn(t, m.b.recv, time.Second, 4)
		m.send(t, 3)
		r := <-w.done
		assert.ErrorIs(t, r.err, udat.ErrTimeoutExpired)
		assert.Equal(t, r.nmore, 3)
		for range 3 {
			next(t, m.b.recv)
		}
		w = waitOn(t, m.b.recv, udat.Infinite, 4)
		m.b.receive(0, 7)
		synctest.Wait()
		start := time.Now()
		assert.NilError(t, m.a.ep.PostSend(m.a.iov(0, 2000), 1, udat.CompletionSuppress)) // longer than the receive
		expect(t, m.b.conn, udat.EventConnectionBroken)
		assert.Assert(t, time.Since(start) <= heldBack, "%v", time.Since(start))
		assert.NilError(t, m.b.recv.SetUnwaitable())
		<-w.done
	})
}

// TestModerationNothing: a dispatcher that no device feeds has none.
func TestModerationNothing(t *testing.T) {
	inFakeTime(t, func(t *testing.T, dev string) {
		evd, err := open(t, dev).CreateEVD(8, udat.EVDSoftware, nil)
		assert.NilError(t, err)
		for range 10 {
			w := waitOn(t, evd, udat.Infinite, 2)
			soft(t, evd, 1)
			soft(t, evd, 2)
			assert.NilError(t, (<-w.done).err)
			next(t, evd)
		}
	})
}

// TestModerationRefused: a device that does not moderate is asked once.
func TestModerationRefused(t *testing.T) {
	inFakeTime(t, func(t *testing.T, dev string) {
		m := moderate(t, dev, errors.New("no"))
		for range 20 {
			assert.Equal(t, m.four(t), 4)
		}
		assert.Equal(t, m.commands(), 1)
	})
}
