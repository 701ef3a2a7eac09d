package udat_test

import (
	"context"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
	"github.com/godat/godat/udat/internal/rule"
)

func newCNO(t *testing.T, ia *udat.IA, agent udat.WaitAgent) *udat.CNO {
	t.Helper()
	cno, err := ia.CreateCNO(agent)
	assert.NilError(t, err)
	return cno
}

// softEVD makes a dispatcher of software events that triggers the object.
func softEVD(t *testing.T, ia *udat.IA, cno *udat.CNO) *udat.EVD {
	t.Helper()
	evd, err := ia.CreateEVD(16, udat.EVDSoftware, cno)
	assert.NilError(t, err)
	return evd
}

// triggered waits for a trigger, which must name the dispatcher.
func triggered(t *testing.T, cno *udat.CNO, evd *udat.EVD) {
	t.Helper()
	got, err := cno.Wait(patience)
	assert.NilError(t, err)
	assert.Equal(t, got, evd)
}

// untriggered checks that no trigger comes.
func untriggered(t *testing.T, cno *udat.CNO) {
	t.Helper()
	got, err := cno.Wait(quiet)
	assert.ErrorIs(t, err, udat.ErrQueueEmpty)
	assert.Assert(t, got == nil)
}

type cnoWait struct {
	evd *udat.EVD
	err error
}

// waitOnCNO blocks n goroutines in Wait.
func waitOnCNO(t *testing.T, cno *udat.CNO, n int) <-chan cnoWait {
	t.Helper()
	out := make(chan cnoWait, n)
	before := udat.CNOWaiters(cno)
	for range n {
		go func() {
			evd, err := cno.Wait(udat.Infinite)
			out <- cnoWait{evd, err}
		}()
	}
	until(t, "the calls block", func() bool { return udat.CNOWaiters(cno) == before+n })
	return out
}

func one[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatal("nothing came")
		panic("unreachable")
	}
}

func none[T any](t *testing.T, c <-chan T) {
	t.Helper()
	select {
	case v := <-c:
		t.Fatalf("%v came", v)
	case <-time.After(quiet):
	}
}

func TestCNOCreate(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		ia := open(t, dev)
		cno := newCNO(t, ia, nil)
		p, err := cno.Query()
		assert.NilError(t, err)
		assert.Equal(t, p.IA, ia)
		assert.Assert(t, p.Agent == nil)
		kind, err := udat.GetHandleType(cno)
		assert.NilError(t, err)
		assert.Equal(t, kind, udat.HandleCNO)
		untriggered(t, cno)
		assert.NilError(t, cno.Free())
		rule.Proves(t, "CNO-CREATE-01")
		assert.ErrorIs(t, cno.Free(), udat.ErrInvalidHandle)
		_, err = cno.Wait(0)
		assert.ErrorIs(t, err, udat.ErrInvalidHandle)
		_, err = cno.Query()
		assert.ErrorIs(t, err, udat.ErrInvalidHandle)
		assert.ErrorIs(t, cno.ModifyAgent(nil), udat.ErrInvalidHandle)
		_, err = ia.CreateEVD(4, udat.EVDSoftware, cno)
		assert.ErrorIs(t, err, udat.WithSubtype(udat.InvalidHandle, udat.SubHandleCNO))
		rule.Proves(t, "CNO-FREE-03", "CNO-MODIFY-02", "EVD-CREATE-02", "GEN-02", "GEN-03")
		var missing *udat.CNO
		_, err = missing.Wait(0)
		assert.ErrorIs(t, err, udat.ErrInvalidHandle)
		assert.NilError(t, ia.Close(udat.CloseGraceful))
		_, err = ia.CreateCNO(nil)
		assert.ErrorIs(t, err, udat.ErrInvalidHandle)
		rule.Proves(t, "CNO-CREATE-03")
	})
}

func TestCNOWait(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		ia := open(t, dev)
		cno := newCNO(t, ia, nil)
		evd, other := softEVD(t, ia, cno), softEVD(t, ia, cno)
		for _, timeout := range []time.Duration{0, time.Millisecond} {
			got, err := cno.Wait(timeout)
			assert.ErrorIs(t, err, udat.ErrQueueEmpty)
			assert.Assert(t, got == nil)
		}
		_, err := cno.Wait(-1)
		assert.ErrorIs(t, err, udat.ErrInvalidParameter)
		rule.Proves(t, "CNO-WAIT-02")
		soft(t, evd, 0)
		_, nmore, err := evd.Wait(0, 2)
		assert.ErrorIs(t, err, udat.ErrTimeoutExpired)
		assert.Equal(t, nmore, 1, "the other result of a call that fails")
		rule.Proves(t, "GEN-04")
		expect(t, evd, udat.EventSoftware)
		triggered(t, cno, evd)
		w := waitOnCNO(t, cno, 1)
		none(t, w)
		soft(t, evd, 0)
		r := one(t, w)
		assert.NilError(t, r.err)
		assert.Equal(t, r.evd, evd)
		rule.Proves(t, "CNO-WAIT-01", "CNO-WAIT-03", "CNO-WAIT-04", "CNO-01")
		ev, err := evd.Dequeue()
		assert.NilError(t, err)
		assert.Equal(t, ev.Software, any(0))
		rule.Proves(t, "CNO-WAIT-07")
		soft(t, evd, 1) // nobody waits: the trigger is stored
		triggered(t, cno, evd)
		untriggered(t, cno)
		rule.Proves(t, "CNO-08")
		soft(t, evd, 2) // three triggers before anybody waits
		soft(t, other, 3)
		soft(t, evd, 4)
		_, err = cno.Wait(0)
		assert.NilError(t, err)
		untriggered(t, cno)
		rule.Proves(t, "CNO-10")
		soft(t, other, 5)
		assert.Equal(t, one(t, cno.Triggered()), other)
		got := []any{}
		for _, e := range []*udat.EVD{evd, other} {
			for {
				ev, err := e.Dequeue()
				if err != nil {
					break
				}
				got = append(got, ev.Software)
			}
		}
		assert.DeepEqual(t, got, []any{1, 2, 4, 3, 5})
		soft(t, evd, 6)
		_, err = evd.Dequeue()
		assert.NilError(t, err)
		triggered(t, cno, evd) // a hint: the event has been taken
		empty(t, evd)
		rule.Proves(t, "CNO-04")
	})
}

// TestCNOWaitContext: a context ends only the call to which it was passed.
func TestCNOWaitContext(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		ia := open(t, dev)
		cno := newCNO(t, ia, nil)
		evd := softEVD(t, ia, cno)
		wait := func(ctx context.Context) <-chan cnoWait {
			t.Helper()
			out := make(chan cnoWait, 1)
			before := udat.CNOWaiters(cno)
			go func() {
				evd, err := cno.WaitContext(ctx)
				out <- cnoWait{evd, err}
			}()
			until(t, "the call blocks", func() bool { return udat.CNOWaiters(cno) == before+1 })
			return out
		}
		ctx, cancel := context.WithCancel(t.Context())
		first, second, third, other := wait(ctx), wait(t.Context()), wait(ctx), waitOnCNO(t, cno, 1)
		cancel()
		for _, w := range []<-chan cnoWait{first, third} {
			r := one(t, w)
			assert.ErrorIs(t, r.err, udat.ErrInterruptedCall)
			assert.ErrorIs(t, r.err, context.Canceled)
			assert.Assert(t, r.evd == nil)
		}
		none(t, second)
		none(t, other)
		for range 2 {
			soft(t, evd, 0)
			var r cnoWait
			select {
			case r = <-second:
			case r = <-other:
			case <-time.After(patience):
				t.Fatal("nobody is woken")
			}
			assert.NilError(t, r.err)
			assert.Equal(t, r.evd, evd)
		}
		_, err := cno.WaitContext(ctx)
		assert.ErrorIs(t, err, udat.ErrInterruptedCall)
		soft(t, evd, 1)
		got, err := cno.WaitContext(ctx) // a trigger that has come counts
		assert.NilError(t, err)
		assert.Equal(t, got, evd)
		rule.Proves(t, "CNO-WAIT-01", "CNO-08")

		ctx, cancel = context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		for range 2 { // the second call finds the deadline passed
			got, err := cno.WaitContext(ctx)
			assert.ErrorIs(t, err, udat.ErrQueueEmpty)
			assert.ErrorIs(t, err, context.DeadlineExceeded)
			assert.Assert(t, got == nil)
		}
		rule.Proves(t, "CNO-WAIT-02")
		_, err = cno.WaitContext(nil) //lint:ignore SA1012 that is the test
		assert.ErrorIs(t, err, udat.ErrInvalidParameter)
		_, err = cno.Wait(-1)
		assert.ErrorIs(t, err, udat.ErrInvalidParameter)
		last := wait(t.Context())
		assert.ErrorIs(t, cno.Free(), udat.WithSubtype(udat.InvalidState, udat.SubStateCNOInUse))
		assert.NilError(t, evd.Free())
		r := one(t, last)
		assert.NilError(t, r.err)
		assert.Assert(t, r.evd == nil)
		rule.Proves(t, "CNO-WAIT-05")
		assert.Equal(t, udat.CNOWaiters(cno), 0)
		assert.NilError(t, cno.Free())
		_, err = cno.WaitContext(t.Context())
		assert.ErrorIs(t, err, udat.ErrInvalidHandle)
		_, err = (*udat.CNO)(nil).WaitContext(t.Context())
		assert.ErrorIs(t, err, udat.ErrInvalidHandle)
		_, err = cno.Wait(0)
		assert.ErrorIs(t, err, udat.ErrInvalidHandle)
		rule.Proves(t, "CNO-WAIT-06")
	})
}

func TestCNOManyWaiters(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		ia := open(t, dev)
		cno := newCNO(t, ia, nil)
		evd := softEVD(t, ia, cno)
		w := waitOnCNO(t, cno, 3)
		for range 3 {
			soft(t, evd, 0)
			assert.Equal(t, one(t, w).evd, evd)
			none(t, w)
		}
		rule.Proves(t, "CNO-09", "CNO-WAIT-01")
	})
}

func TestCNOAgent(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		ia := open(t, dev)
		calls := make(chan *udat.EVD, 10)
		agent := func(evd *udat.EVD) { calls <- evd }
		cno := newCNO(t, ia, agent)
		evd := softEVD(t, ia, cno)
		p, err := cno.Query()
		assert.NilError(t, err)
		assert.Assert(t, p.Agent != nil)
		rule.Proves(t, "CNO-QUERY-01")
		w := waitOnCNO(t, cno, 1)
		soft(t, evd, 0)
		assert.Equal(t, one(t, calls), evd)
		assert.Equal(t, one(t, w).evd, evd)
		rule.Proves(t, "CNO-05")
		soft(t, evd, 1)
		none(t, calls)
		triggered(t, cno, evd)
		p, err = cno.Query()
		assert.NilError(t, err)
		assert.Assert(t, p.Agent == nil)
		assert.NilError(t, cno.ModifyAgent(agent))
		soft(t, evd, 2)
		assert.Equal(t, one(t, calls), evd)
		triggered(t, cno, evd)
		rule.Proves(t, "CNO-06", "CNO-CREATE-02")
		assert.NilError(t, cno.ModifyAgent(agent))
		assert.NilError(t, cno.ModifyAgent(nil))
		soft(t, evd, 3)
		triggered(t, cno, evd)
		none(t, calls)
		rule.Proves(t, "CNO-MODIFY-01")
	})
}

// TestCNOReleased shows that no call keeps waiting when no trigger can come any more.
func TestCNOReleased(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		ia := open(t, dev)
		calls := make(chan *udat.EVD, 10)
		agent := func(evd *udat.EVD) { calls <- evd }
		cno := newCNO(t, ia, agent)
		evd, other := softEVD(t, ia, cno), softEVD(t, ia, cno)
		released := func(w <-chan cnoWait) {
			t.Helper()
			for range cap(w) {
				r := one(t, w)
				assert.NilError(t, r.err)
				assert.Assert(t, r.evd == nil)
			}
			assert.Assert(t, one(t, calls) == nil)
		}
		w := waitOnCNO(t, cno, 2)
		assert.ErrorIs(t, cno.Free(), udat.WithSubtype(udat.InvalidState, udat.SubStateCNOInUse))
		assert.NilError(t, evd.Free())
		none(t, w)
		none(t, calls)
		assert.NilError(t, other.Free())
		released(w)
		rule.Proves(t, "CNO-07", "EVD-FREE-06")
		w = waitOnCNO(t, cno, 1)
		assert.ErrorIs(t, cno.Free(), udat.WithSubtype(udat.InvalidState, udat.SubStateCNOInUse))
		evd = softEVD(t, ia, cno) // the way to unblock a waiter
		soft(t, evd, 0)
		assert.Equal(t, one(t, w).evd, evd)
		rule.Proves(t, "CNO-FREE-02")
		assert.ErrorIs(t, cno.Free(), udat.WithSubtype(udat.InvalidState, udat.SubStateCNOInUse))
		assert.NilError(t, evd.ModifyCNO(nil))
		until(t, "the waiter has left", func() bool { return udat.CNOWaiters(cno) == 0 })
		assert.NilError(t, cno.Free())
		rule.Proves(t, "CNO-FREE-01", "EVD-MODCNO-01")
		cno = newCNO(t, ia, agent)
		softEVD(t, ia, cno)
		lonely := newCNO(t, ia, agent)
		w1, w2 := waitOnCNO(t, cno, 2), waitOnCNO(t, lonely, 1)
		assert.NilError(t, ia.Close(udat.CloseAbrupt))
		released(w1)
		released(w2)
		rule.Proves(t, "CNO-WAIT-05", "CNO-07")
	})
}

// TestCNOFreedDispatcher frees dispatchers between their triggers and Wait: Wait does not return
// freed dispatchers, and does not lose the triggers that coalesced with theirs.
func TestCNOFreedDispatcher(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		ia := open(t, dev)
		cno := newCNO(t, ia, nil)
		idle, busy := softEVD(t, ia, cno), softEVD(t, ia, cno)
		for round := range 3 {
			freed := []*udat.EVD{softEVD(t, ia, cno), softEVD(t, ia, cno)}
			soft(t, freed[0], 0)
			soft(t, freed[1], 0)
			if round > 0 {
				soft(t, busy, round)
			}
			for _, evd := range freed {
				assert.NilError(t, evd.Free())
			}
			got, err := cno.Wait(quiet)
			if round > 0 {
				assert.NilError(t, err)
				assert.Equal(t, got, busy)
				assert.Equal(t, expect(t, busy, udat.EventSoftware).Software, round)
			}
			got, err = cno.Wait(0)
			assert.ErrorIs(t, err, udat.ErrQueueEmpty)
			assert.Assert(t, got == nil)
		}
		w := waitOnCNO(t, cno, 1)
		soft(t, idle, 0)
		assert.Equal(t, one(t, w).evd, idle)
		rule.Proves(t, "EVD-FREE-05", "CNO-WAIT-03", "CNO-10")
	})
}

func TestCNOOfOneAdapter(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		ia, other := open(t, dev), open(t, dev)
		foreign := newCNO(t, other, nil)
		_, err := ia.CreateEVD(4, udat.EVDSoftware, foreign)
		assert.ErrorIs(t, err, udat.ErrInvalidHandle)
		cno := newCNO(t, ia, nil)
		evd := softEVD(t, ia, cno)
		assert.ErrorIs(t, evd.ModifyCNO(foreign), udat.ErrInvalidHandle)
		soft(t, evd, 0)
		triggered(t, cno, evd) // nothing has changed
		assert.NilError(t, foreign.Free())
		assert.ErrorIs(t, evd.ModifyCNO(foreign), udat.ErrInvalidHandle)
		rule.Proves(t, "CNO-WAIT-08", "EVD-MODCNO-04", "EVD-CREATE-02")
	})
}
