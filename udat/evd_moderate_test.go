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

// moderated are two connected endpoints; the second one's dispatcher may learn to moderate.
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

// send sends n messages, each a while after the other.
func (m *moderated) send(t *testing.T, n int, while time.Duration) {
	t.Helper()
	for range n {
		time.Sleep(while)
		m.b.receive(0, 1)
		assert.NilError(t, m.a.ep.PostSend(m.a.iov(0, 8), 1, udat.CompletionSuppress))
		synctest.Wait()
	}
}

// block blocks a goroutine in Wait; no time passes.
func (m *moderated) block(timeout time.Duration, threshold int) chan waited {
	done := make(chan waited, 1)
	go func() {
		ev, nmore, err := m.b.recv.Wait(timeout, threshold)
		done <- waited{ev, nmore, err}
	}()
	synctest.Wait()
	return done
}

// four waits for four messages that come while it waits, takes them all, and gives the notifications that it took, and how late it was.
func (m *moderated) four(t *testing.T, while time.Duration) (fires int, late time.Duration) {
	t.Helper()
	before := m.fires()
	done := m.block(udat.Infinite, 4)
	m.send(t, 4, while)
	sent := time.Now()
	r := <-done
	late = time.Since(sent)
	assert.NilError(t, r.err)
	assert.Equal(t, r.nmore, 3)
	for range 3 {
		next(t, m.b.recv)
	}
	return m.fires() - before, late
}

// atOnce blocks, and the next message ends it at once.
func (m *moderated) atOnce(t *testing.T, threshold int) {
	t.Helper()
	done := m.block(udat.Infinite, threshold)
	took(t, 0, func() {
		m.send(t, 1, 0)
		assert.NilError(t, (<-done).err)
	})
}

// learn waits until the dispatcher has learnt, and gives how many calls it took.
func (m *moderated) learn(t *testing.T) (calls int) {
	t.Helper()
	for calls = range 20 {
		fires, late := m.four(t, 0)
		assert.Equal(t, late, time.Duration(0))
		if fires == 1 {
			return calls
		}
		assert.Equal(t, fires, 4)
	}
	t.Fatal("it has not learnt")
	return calls
}

// TestModeration: waits for as many completions, again and again, come to cost one notification each.
func TestModeration(t *testing.T) {
	inFakeTime(t, func(t *testing.T, dev string) {
		m := moderate(t, dev, nil)
		assert.Equal(t, m.learn(t), 9)
		for range 3 {
			fires, late := m.four(t, 0)
			assert.Equal(t, fires, 1)
			assert.Equal(t, late, time.Duration(0))
		}
		assert.Equal(t, m.commands(), 1)
	})
}

// TestModerationEnds: whoever wants one event gets it at once, a direct waiter and a notification object.
func TestModerationEnds(t *testing.T) {
	inFakeTime(t, func(t *testing.T, dev string) {
		m := moderate(t, dev, nil)
		m.learn(t)
		m.atOnce(t, 1)
		assert.Equal(t, m.commands(), 2)
		m.learn(t) // anew

		cno, err := m.b.ia.CreateCNO(nil)
		assert.NilError(t, err)
		assert.NilError(t, m.b.recv.ModifyCNO(cno))
		synctest.Wait()
		took(t, 0, func() {
			m.send(t, 1, 0)
			_, err := cno.Wait(time.Hour)
			assert.NilError(t, err)
		})
		next(t, m.b.recv)
		for range 12 {
			fires, _ := m.four(t, 0)
			assert.Equal(t, fires, 4) // the notification object is told of what a waiter leaves
		}
	})
}

// TestModerationSlow: what comes slowly is held back once, and not any more.
func TestModerationSlow(t *testing.T) {
	inFakeTime(t, func(t *testing.T, dev string) {
		m := moderate(t, dev, nil)
		m.learn(t)
		_, late := m.four(t, time.Millisecond)
		assert.Assert(t, late > 0 && late <= heldBack, "%v", late)
		for range 12 {
			fires, late := m.four(t, time.Millisecond)
			assert.Equal(t, fires, 4)
			assert.Equal(t, late, time.Duration(0))
		}
		assert.Equal(t, m.commands(), 2)
	})
}

// TestModerationOneMore: a program that waits for four and takes one has three already: the next is not held back.
func TestModerationOneMore(t *testing.T) {
	inFakeTime(t, func(t *testing.T, dev string) {
		m := moderate(t, dev, nil)
		m.send(t, 3, 0)
		for range 20 {
			m.atOnce(t, 4)
		}
		assert.Equal(t, m.commands(), 0)
	})
}

// TestModerationHoldsNothingBack: what is less than the threshold is told in time, above all that the connection broke, and a wait that expires
// has counted everything.
func TestModerationHoldsNothingBack(t *testing.T) {
	inFakeTime(t, func(t *testing.T, dev string) {
		m := moderate(t, dev, nil)
		m.learn(t)
		done := m.block(time.Second, 4)
		m.send(t, 3, 0)
		r := <-done
		assert.ErrorIs(t, r.err, udat.ErrTimeoutExpired)
		assert.Equal(t, r.nmore, 3)
		for range 3 {
			next(t, m.b.recv)
		}
		m.learn(t)
		done = m.block(udat.Infinite, 4)
		m.b.receive(0, 7)
		start := time.Now()
		assert.NilError(t, m.a.ep.PostSend(m.a.iov(0, 2000), 1, udat.CompletionSuppress)) // longer than the receive
		expect(t, m.b.conn, udat.EventConnectionBroken)
		assert.Assert(t, time.Since(start) <= heldBack, "%v", time.Since(start))
		assert.NilError(t, m.b.recv.SetUnwaitable())
		<-done
	})
}

// TestModerationNothing: a dispatcher that no device feeds has none.
func TestModerationNothing(t *testing.T) {
	inFakeTime(t, func(t *testing.T, dev string) {
		evd, err := open(t, dev).CreateEVD(8, udat.EVDSoftware, nil)
		assert.NilError(t, err)
		for range 12 {
			done := make(chan error, 1)
			go func() { _, _, err := evd.Wait(udat.Infinite, 2); done <- err }()
			synctest.Wait()
			soft(t, evd, 1)
			soft(t, evd, 2)
			assert.NilError(t, <-done)
			next(t, evd)
		}
	})
}

// TestModerationRefused: a device that does not moderate is asked once.
func TestModerationRefused(t *testing.T) {
	inFakeTime(t, func(t *testing.T, dev string) {
		m := moderate(t, dev, errors.New("no"))
		for range 20 {
			fires, _ := m.four(t, 0)
			assert.Equal(t, fires, 4)
		}
		assert.Equal(t, m.commands(), 1)
	})
}
