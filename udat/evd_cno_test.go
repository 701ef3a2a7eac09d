package udat_test

import (
	"sync"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
	"github.com/godat/godat/udat/internal/fabric/faultfabric"
	"github.com/godat/godat/udat/internal/rule"
)

// TestCNOStreams shows triggers by each kind of stream, under each control model.
func TestCNOStreams(t *testing.T) {
	onEachOutside(t, func(t *testing.T, dev string) {
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
		t.Run("requests", func(t *testing.T) {
			a, b := pair(t, dev, setup{unkept: true})
			cno := newCNO(t, a.ia, nil)
			assert.NilError(t, a.request.ModifyCNO(cno))
			var r *udat.RMR
			if udat.DeviceAttr(a.ia).MaxMW > 0 {
				r = a.window(t)
			}
			for i := range udat.Cookie(20) {
				kind := posters[i%4]
				if kind.recv { // a bind instead
					if r != nil {
						_, err := r.Bind(a.mem.Triplet(0, 8), bothRights, a.ep, i, 0)
						assert.NilError(t, err)
						triggered(t, cno, a.request)
						bound(t, a.request, i)
					}
					continue
				}
				if !kind.remote {
					b.receive(0, i)
				}
				assert.NilError(t, kind.post(a, b, a.iov(0, 8), i, 0))
				triggered(t, cno, a.request)
				completion(t, a.request, i)
			}
			untriggered(t, cno)
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
			needSolicited(t, b)
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

// TestCNODisabled shows the effect of Enable and Disable on completions and on other events.
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
			// Blocked calls are not affected.
			assert.NilError(t, b.recv.Disable())
			w := waitOn(t, b.recv, udat.Infinite, 1)
			b.receive(0, 3, 4)
			a.send(8, 0, udat.CompletionSolicitedWait)
			assert.NilError(t, w.result(t).err)
			w = waitOn(t, b.recv, udat.Infinite, 1)
			assert.NilError(t, b.recv.Enable())
			assert.NilError(t, b.recv.Disable())
			w.still(t)
			a.send(8, 0, udat.CompletionSolicitedWait)
			assert.NilError(t, w.result(t).err)
			rule.Proves(t, "EVD-32", "EVD-ENABLE-03")
		}
	})
}

// TestCNOUnwaitable shows that unwaitable dispatchers trigger the object as usual.
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

// TestCNODirectWaiter shows that the dispatcher does not trigger the object while a call is blocked
// in EVD.Wait, and does so again afterwards.
func TestCNODirectWaiter(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		for _, flags := range []udat.CompletionFlags{0, udat.CompletionUnsignalled, udat.CompletionSolicitedWait} {
			a, b := pair(t, dev, withFlags(flags, 0))
			cno := newCNO(t, b.ia, nil)
			assert.NilError(t, b.recv.ModifyCNO(cno))
			for range 3 {
				b.receive(0, 1, 2, 3)
				w := waitOn(t, b.recv, udat.Infinite, 1)
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
		// Events do not trigger the CNO even if they are fewer than the threshold of the blocked
		// call.
		ia := open(t, dev)
		cno := newCNO(t, ia, nil)
		evd := softEVD(t, ia, cno)
		w := waitOn(t, evd, udat.Infinite, 3)
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

// arrived waits until the end holds at most n receives: the events of the other receives are
// queued.
func arrived(t *testing.T, e *end, n int) {
	t.Helper()
	for until := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		left, _, err := e.ep.RecvQuery()
		assert.NilError(t, err)
		if left <= n {
			return
		}
		assert.Assert(t, time.Now().Before(until), "%d receives are left, want %d", left, n)
	}
}

func TestCNOModify(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := pair(t, dev, setup{unkept: true})
		first, second := newCNO(t, b.ia, nil), newCNO(t, b.ia, nil)
		b.receive(0, 0, 1, 2, 3)
		a.send(8, 0, quietly)
		arrived(t, b, 3)
		assert.NilError(t, b.recv.ModifyCNO(first))
		untriggered(t, first) // that came before
		a.send(8, 0, quietly)
		triggered(t, first, b.recv)
		assert.NilError(t, b.recv.ModifyCNO(second))
		untriggered(t, second) // the queued events have already triggered
		a.send(8, 0, quietly)
		triggered(t, second, b.recv)
		untriggered(t, first)
		assert.NilError(t, b.recv.ModifyCNO(second))
		assert.NilError(t, b.recv.ModifyCNO(nil))
		p, err := b.recv.Query()
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

// TestCNOModifyUndrained sets a notification object while the device has completions that nobody
// has polled: they came before the call, and do not trigger the new object.
func TestCNOModifyUndrained(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := pair(t, dev, setup{unkept: true})
		needAcknowledged(t, a) // then a's completion is on the device when b has the message
		fresh := newCNO(t, a.ia, nil)
		for i := range udat.Cookie(3) {
			b.receive(0, i)
			a.receive(0, i)
			assert.NilError(t, a.ep.PostSend(a.iov(0, 8), i, 0))
			completion(t, b.recv, i)
			assert.NilError(t, b.ep.PostSend(b.iov(8, 8), 0, udat.CompletionSuppress))
			completion(t, a.recv, i) // on tcp the acknowledgement of a's Send has come with it
			time.Sleep(quiet)
			assert.NilError(t, a.request.ModifyCNO(fresh))
			untriggered(t, fresh)
			completion(t, a.request, i)
			assert.NilError(t, a.request.ModifyCNO(nil))
		}
		rule.Proves(t, "EVD-MODCNO-01")
	})
}

// TestCNOHandover makes calls of EVD.Wait come and go while completions arrive: each completion
// notifies the blocked call or the notification object, so that no event is left without a
// notification.
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
						b.recv.Wait(i%7*50*time.Microsecond, queueLength(t, b.recv)) // never enough events, or refused
					}
				}
			})
			for ; next < n; next++ {
				assert.NilError(t, a.ep.PostSend(a.iov(0, 8), next, udat.CompletionSolicitedWait|udat.CompletionSuppress))
				for {
					// An event that came while EVD.Wait was blocked triggers nothing: poll now and
					// then.
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
			// While no call is blocked in EVD.Wait, every arrival triggers.
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

// TestCNOArmedOnReturn: a call after which the dispatcher triggers its notification object returns
// with the completion queue armed. A message that is not solicited and comes after it never
// triggers, however long the device takes to arm.
func TestCNOArmedOnReturn(t *testing.T) {
	onEachOutside(t, func(t *testing.T, dev string) {
		for name, hand := range map[string]func(t *testing.T, a, b *end, cno *udat.CNO){
			"modify_cno": func(t *testing.T, _, b *end, cno *udat.CNO) {
				assert.NilError(t, b.recv.ModifyCNO(cno))
			},
			"enable": func(t *testing.T, _, b *end, cno *udat.CNO) {
				assert.NilError(t, b.recv.Disable())
				assert.NilError(t, b.recv.ModifyCNO(cno))
				assert.NilError(t, b.recv.Enable())
			},
			"wait": func(t *testing.T, a, b *end, cno *udat.CNO) {
				assert.NilError(t, b.recv.ModifyCNO(cno))
				w := waitOn(t, b.recv, udat.Infinite, 1)
				a.send(8, 0, udat.CompletionSolicitedWait)
				assert.NilError(t, w.result(t).err)
			},
		} {
			t.Run(name, func(t *testing.T) {
				s := withFlags(udat.CompletionSolicitedWait, 0)
				s.script = &faultfabric.Script{}
				a, b := pair(t, dev, s)
				needSolicited(t, b)
				cno := newCNO(t, b.ia, nil)
				b.receive(0, 1, 2, 3)
				s.script.On(faultfabric.Arm, udat.CompletionQueue(b.recv)).Delay(200 * time.Millisecond)
				hand(t, a, b, cno)
				a.send(8, 0, quietly)
				_, _, err := b.ep.RecvQuery() // after whoever arms
				assert.NilError(t, err)
				untriggered(t, cno)
				a.send(8, 0, udat.CompletionSolicitedWait)
				triggered(t, cno, b.recv)
			})
		}
		rule.Proves(t, "EVD-23", "CNO-01")
	})
}
