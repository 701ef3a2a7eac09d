package udat_test

import (
	"sync"
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

// softEVD makes a dispatcher of software events for the object.
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
		p, err := cno.Query(udat.CNOFieldAll)
		assert.NilError(t, err)
		assert.Equal(t, p.IA, ia)
		assert.Assert(t, p.Agent == nil)
		_, err = cno.Query(0x4)
		assert.ErrorIs(t, err, udat.ErrInvalidParameter)
		kind, err := udat.GetHandleType(cno)
		assert.NilError(t, err)
		assert.Equal(t, kind, udat.HandleCNO)
		untriggered(t, cno)
		assert.NilError(t, cno.Free())
		rule.Proves(t, "CNO-CREATE-01")
		assert.ErrorIs(t, cno.Free(), udat.ErrInvalidHandle)
		_, err = cno.Wait(0)
		assert.ErrorIs(t, err, udat.ErrInvalidHandle)
		_, err = cno.Query(udat.CNOFieldAll)
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
		rule.Proves(t, "CNO-CREATE-03", "CNO-WAIT-06")
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
		rule.Proves(t, "CNO-WAIT-02", "CNO-WAIT-06")
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
		soft(t, evd, 1) // nobody waits: it is latched
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
		p, err := cno.Query(udat.CNOFieldAgent)
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
		p, err = cno.Query(udat.CNOFieldAgent)
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

// TestCNOReleased shows that nobody is left waiting for what can never come.
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

// TestCNOStreams shows triggers by each kind of stream, under each control model.
func TestCNOStreams(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		t.Run("connections", func(t *testing.T) {
			a, b := newEnd(t, dev, setup{}), newEnd(t, dev, setup{})
			cno := newCNO(t, b.ia, nil)
			assert.NilError(t, b.cr.ModifyCNO(cno))
			assert.NilError(t, b.conn.ModifyCNO(cno))
			psp := listen(t, b)
			assert.NilError(t, a.ep.Connect(b.ia.Addr(), psp.Qual(), patience, nil, udat.QoSBestEffort, udat.ConnectDefault))
			triggered(t, cno, b.cr)
			req, err := b.cr.Dequeue()
			assert.NilError(t, err)
			assert.NilError(t, req.CR.Accept(b.ep, nil))
			triggered(t, cno, b.conn)
			rule.Proves(t, "CNO-01", "EVD-26")
		})
		t.Run("default", func(t *testing.T) {
			a, b := pair(t, dev, setup{unkept: true})
			cno := newCNO(t, b.ia, nil)
			assert.NilError(t, b.recv.ModifyCNO(cno))
			for i := range udat.Cookie(20) {
				b.receive(0, i)
				a.send(8, i, quietly)
				triggered(t, cno, b.recv)
				completion(t, b.recv, i)
			}
			rule.Proves(t, "CNO-01", "EVD-20")
		})
		t.Run("unsignalled", func(t *testing.T) {
			a, b := pair(t, dev, withFlags(udat.CompletionUnsignalled, 0))
			cno := newCNO(t, b.ia, nil)
			assert.NilError(t, b.recv.ModifyCNO(cno))
			b.receive(udat.CompletionUnsignalled, 0)
			b.receive(0, 1)
			a.send(8, 0, quietly)
			untriggered(t, cno)
			a.send(8, 1, quietly)
			triggered(t, cno, b.recv)
			untriggered(t, cno)
			completion(t, b.recv, 0)
			completion(t, b.recv, 1)
			rule.Proves(t, "EVD-22", "EVD-28", "CNO-01")
		})
		t.Run("solicited", func(t *testing.T) {
			a, b := pair(t, dev, withFlags(udat.CompletionSolicitedWait, 0))
			cno := newCNO(t, b.ia, nil)
			assert.NilError(t, b.recv.ModifyCNO(cno))
			for round := range udat.Cookie(3) {
				b.receive(0, 2*round, 2*round+1)
				a.send(8, 0, quietly)
				untriggered(t, cno)
				a.send(8, 0, udat.CompletionSolicitedWait)
				triggered(t, cno, b.recv)
				completion(t, b.recv, 2*round)
				completion(t, b.recv, 2*round+1)
			}
			untriggered(t, cno)
			rule.Proves(t, "EVD-23", "CNO-01")
			b.receive(0, 9)
			assert.NilError(t, a.ep.Disconnect(udat.CloseAbrupt))
			triggered(t, cno, b.recv)
			flushed(t, b.recv, 9)
			rule.Proves(t, "EVD-27")
		})
	})
}

// TestCNODisabled shows what enable and disable change and what they do not, for events of the device and others.
func TestCNODisabled(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		for _, flags := range []udat.CompletionFlags{0, udat.CompletionSolicitedWait} {
			a, b := pair(t, dev, withFlags(flags, 0))
			cno := newCNO(t, b.ia, nil)
			sw := softEVD(t, b.ia, cno)
			assert.NilError(t, b.recv.ModifyCNO(cno))
			for range 3 {
				for _, evd := range []*udat.EVD{sw, b.recv} {
					assert.NilError(t, evd.Disable())
					assert.NilError(t, evd.Disable())
				}
				b.receive(0, 1, 2)
				a.send(8, 0, udat.CompletionSolicitedWait)
				soft(t, sw, 0)
				untriggered(t, cno)
				rule.Proves(t, "CNO-02", "EVD-DISABLE-01")
				for _, evd := range []*udat.EVD{sw, b.recv} {
					assert.NilError(t, evd.Enable())
					assert.NilError(t, evd.Enable())
				}
				untriggered(t, cno)
				rule.Proves(t, "EVD-ENABLE-02")
				completion(t, b.recv, 1)
				expect(t, sw, udat.EventSoftware)
				a.send(8, 0, udat.CompletionSolicitedWait)
				triggered(t, cno, b.recv)
				soft(t, sw, 0)
				triggered(t, cno, sw)
				rule.Proves(t, "EVD-ENABLE-01")
				completion(t, b.recv, 2)
				expect(t, sw, udat.EventSoftware)
			}
			// Waiters neither notice nor mind.
			assert.NilError(t, b.recv.Disable())
			w := waitOn(t, b.recv, patience, 1)
			b.receive(0, 3, 4)
			a.send(8, 0, udat.CompletionSolicitedWait)
			assert.NilError(t, w.result(t).err)
			w = waitOn(t, b.recv, patience, 1)
			assert.NilError(t, b.recv.Enable())
			assert.NilError(t, b.recv.Disable())
			w.still(t)
			a.send(8, 0, udat.CompletionSolicitedWait)
			assert.NilError(t, w.result(t).err)
			rule.Proves(t, "EVD-32", "EVD-ENABLE-03")
		}
	})
}

// TestCNOUnwaitable shows that unwaitable dispatchers trigger as ever.
func TestCNOUnwaitable(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := pair(t, dev, setup{unkept: true})
		cno := newCNO(t, b.ia, nil)
		assert.NilError(t, b.recv.ModifyCNO(cno))
		assert.NilError(t, b.recv.SetUnwaitable())
		b.receive(0, 1)
		a.send(8, 0, quietly)
		triggered(t, cno, b.recv)
		ev, err := b.recv.Dequeue()
		assert.NilError(t, err)
		assert.Equal(t, ev.Cookie, udat.Cookie(1))
		rule.Proves(t, "EVD-SETUNW-02", "EVD-33", "EVD-DEQ-03")
	})
}

// TestCNODirectWaiter shows that a direct waiter has the dispatcher for itself, and the notification object has it
// again afterwards.
func TestCNODirectWaiter(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		for _, flags := range []udat.CompletionFlags{0, udat.CompletionUnsignalled, udat.CompletionSolicitedWait} {
			a, b := pair(t, dev, withFlags(flags, 0))
			cno := newCNO(t, b.ia, nil)
			assert.NilError(t, b.recv.ModifyCNO(cno))
			for range 3 {
				b.receive(0, 1, 2, 3)
				w := waitOn(t, b.recv, patience, 1)
				a.send(8, 0, udat.CompletionSolicitedWait)
				assert.Equal(t, w.result(t).ev.Cookie, udat.Cookie(1))
				untriggered(t, cno)
				rule.Proves(t, "EVD-WAIT-16", "EVD-31", "CNO-02")
				a.send(8, 0, udat.CompletionSolicitedWait)
				triggered(t, cno, b.recv)
				completion(t, b.recv, 2)
				_, _, err := b.recv.Wait(10*time.Millisecond, 1)
				assert.ErrorIs(t, err, udat.ErrTimeoutExpired)
				a.send(8, 0, udat.CompletionSolicitedWait)
				triggered(t, cno, b.recv)
				completion(t, b.recv, 3)
				rule.Proves(t, "CNO-01")
			}
		}
		// Not even what does not suffice for the waiter triggers.
		ia := open(t, dev)
		cno := newCNO(t, ia, nil)
		evd := softEVD(t, ia, cno)
		w := waitOn(t, evd, patience, 3)
		soft(t, evd, 0)
		soft(t, evd, 1)
		untriggered(t, cno)
		rule.Proves(t, "EVD-WAIT-16", "EVD-31")
		soft(t, evd, 2)
		assert.NilError(t, w.result(t).err)
		soft(t, evd, 3)
		triggered(t, cno, evd)
	})
}

func TestCNOModify(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := pair(t, dev, setup{unkept: true})
		first, second := newCNO(t, b.ia, nil), newCNO(t, b.ia, nil)
		b.receive(0, 0, 1, 2, 3)
		a.send(8, 0, quietly)
		assert.NilError(t, b.recv.ModifyCNO(first))
		untriggered(t, first) // that came before
		a.send(8, 0, quietly)
		triggered(t, first, b.recv)
		assert.NilError(t, b.recv.ModifyCNO(second))
		untriggered(t, second) // what is queued has been told
		a.send(8, 0, quietly)
		triggered(t, second, b.recv)
		untriggered(t, first)
		assert.NilError(t, b.recv.ModifyCNO(second))
		assert.NilError(t, b.recv.ModifyCNO(nil))
		p, err := b.recv.Query(udat.EVDFieldCNO)
		assert.NilError(t, err)
		assert.Assert(t, p.CNO == nil)
		a.send(8, 0, quietly)
		untriggered(t, second)
		assert.NilError(t, first.Free())
		assert.NilError(t, second.Free())
		rule.Proves(t, "EVD-MODCNO-01")
		for i := range udat.Cookie(4) {
			completion(t, b.recv, i)
		}
		rule.Proves(t, "EVD-MODCNO-03")
	})
}

// TestCNOHandover makes direct waiters come and go while completions arrive: whoever is responsible is told of every
// one, so that nothing is left lying without anybody knowing.
func TestCNOHandover(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		for _, flags := range []udat.CompletionFlags{0, udat.CompletionSolicitedWait} {
			const n = 100
			a, b := pair(t, dev, withFlags(flags, 0))
			cno := newCNO(t, b.ia, nil)
			assert.NilError(t, b.recv.ModifyCNO(cno))
			next := udat.Cookie(0)
			b.receive(0, next)
			var group sync.WaitGroup
			quit := make(chan struct{})
			group.Go(func() {
				for i := time.Duration(0); ; i++ {
					select {
					case <-quit:
						return
					case <-time.After(i % 5 * 100 * time.Microsecond):
						b.recv.Wait(i%7*50*time.Microsecond, queueLength(t, b.recv)) // never enough, or refused
					}
				}
			})
			for ; next < n; next++ {
				assert.NilError(t, a.ep.PostSend(a.iov(0, 8), next, udat.CompletionSolicitedWait|udat.CompletionSuppress))
				for {
					// An event that came while the direct waiter was blocked triggers nothing: look now and then.
					if _, err := cno.Wait(5 * time.Millisecond); err != nil {
						assert.ErrorIs(t, err, udat.ErrQueueEmpty)
					}
					ev, err := b.recv.Dequeue()
					if err != nil {
						continue
					}
					assert.Equal(t, ev.Cookie, next)
					break
				}
				b.receive(0, next+1)
			}
			close(quit)
			group.Wait()
			// With nobody else there, every arrival triggers.
			for range 30 {
				for {
					if _, err := cno.Wait(0); err != nil {
						break
					}
				}
				b.recv.Wait(time.Microsecond, 1)
				assert.NilError(t, a.ep.PostSend(a.iov(0, 8), next, udat.CompletionSolicitedWait|udat.CompletionSuppress))
				triggered(t, cno, b.recv)
				completion(t, b.recv, next)
				next++
				b.receive(0, next)
			}
		}
		rule.Proves(t, "CNO-01", "EVD-42")
	})
}
