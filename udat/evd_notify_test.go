package udat_test

import (
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
	"github.com/godat/godat/udat/internal/fabric/faultfabric"
	"github.com/godat/godat/udat/internal/rule"
)

// quietly are the flags of a Send that is not solicited.
const quietly udat.CompletionFlags = 0

// TestNotifyUnsignalledReceives shows that events of unsignalled receives are queued and counted,
// but wake no call.
func TestNotifyUnsignalledReceives(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		s := withFlags(udat.CompletionUnsignalled, 0)
		s.unkept = false
		a, b := pair(t, dev, s)
		b.receive(udat.CompletionUnsignalled, 0, 1)
		b.receive(0, 2)
		w := waitOn(t, b.recv, udat.Infinite, 1)
		a.send(8, 0, quietly)
		a.send(8, 1, quietly)
		time.Sleep(untended)
		w.still(t)
		rule.Proves(t, "EVD-22")
		a.send(8, 2, quietly)
		r := w.result(t)
		assert.NilError(t, r.err)
		assert.Equal(t, r.ev.Cookie, udat.Cookie(0), "the first on the queue, not the one that notified")
		assert.Equal(t, r.nmore, 2)
		rule.Proves(t, "EVD-WAIT-30", "EVD-28")
		completion(t, b.recv, 1) // without blocking: it is there
		completion(t, b.recv, 2)
		// When the timeout expires, Wait returns a queued event even if its completion was unsignalled.
		b.receive(udat.CompletionUnsignalled, 3)
		w = waitOn(t, b.recv, 300*time.Millisecond, 1)
		a.send(8, 3, quietly)
		r = w.result(t)
		assert.NilError(t, r.err)
		assert.Equal(t, r.ev.Cookie, udat.Cookie(3))
		rule.Proves(t, "EVD-WAIT-09")
		// At entry too.
		b.receive(udat.CompletionUnsignalled, 4)
		a.send(8, 4, quietly)
		r.ev, _, r.err = b.recv.Wait(udat.Infinite, 1)
		assert.NilError(t, r.err)
		assert.Equal(t, r.ev.Cookie, udat.Cookie(4))
		rule.Proves(t, "EVD-WAIT-10")
	})
}

func TestNotifyUnsignalledRequests(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := pair(t, dev, withFlags(0, udat.CompletionUnsignalled))
		b.receive(0, 0, 1, 2)
		w := waitOn(t, a.request, udat.Infinite, 1)
		a.send(8, 0, udat.CompletionUnsignalled)
		assert.NilError(t, a.ep.PostRDMAWrite(a.iov(0, 8), 1, b.mem.RMRTriplet(0, 8), udat.CompletionUnsignalled))
		assert.NilError(t, a.ep.PostRDMARead(a.iov(0, 8), 2, b.mem.RMRTriplet(0, 8), udat.CompletionUnsignalled))
		w.still(t)
		a.send(8, 3, udat.CompletionSuppress|udat.CompletionUnsignalled)
		w.still(t)
		a.send(8, 4, 0)
		r := w.result(t)
		assert.NilError(t, r.err)
		assert.Equal(t, r.ev.Cookie, udat.Cookie(0))
		rule.Proves(t, "EVD-21", "EVD-WAIT-30", "EVD-28")
		completion(t, a.request, 1)
		completion(t, a.request, 2)
		completion(t, a.request, 4)
		empty(t, a.request)
		rule.Proves(t, "EVD-29", "F-11")
	})
}

// TestNotifyByOthers: if the device does not notify, a call that drains the completions wakes the
// call that waits for them.
func TestNotifyByOthers(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		var script faultfabric.Script
		a, b := pair(t, dev, setup{unkept: true, script: &script, opts: []udat.Option{udat.WithSpin(0)}})
		script.On(faultfabric.Arm, udat.CompletionQueue(b.recv)).Drop()
		parked := script.On(faultfabric.Wait, udat.CompletionQueue(b.recv)).Count()
		for _, look := range []func() error{
			func() error { _, _, _, err := b.ep.GetStatus(); return err },
			func() error { return b.ep.SetWatermark(udat.WatermarkInfinite, udat.WatermarkInfinite) },
		} {
			b.receive(0, 1)
			before := parked.Calls()
			w := waitOn(t, b.recv, udat.Infinite, 1)
			until(t, "the call has polled for the last time", func() bool { return parked.Calls() > before })
			a.send(8, 0, quietly)
			w.still(t)
			assert.NilError(t, look())
			r := w.result(t)
			assert.NilError(t, r.err)
			assert.Equal(t, r.ev.Cookie, udat.Cookie(1))
		}
	})
}

// TestNotifySolicited shows that the sender chooses which receives wake the receiver.
func TestNotifySolicited(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		s := withFlags(udat.CompletionSolicitedWait, 0)
		s.unkept = false
		a, b := pair(t, dev, s)
		needSolicited(t, b)
		for round := range udat.Cookie(3) {
			b.receive(0, 10*round, 10*round+1, 10*round+2)
			w := waitOn(t, b.recv, udat.Infinite, 1)
			a.send(8, 0, quietly)
			a.send(8, 0, quietly)
			if round == 0 {
				time.Sleep(untended)
			}
			w.still(t)
			rule.Proves(t, "EVD-23")
			a.send(8, 0, udat.CompletionSolicitedWait)
			r := w.result(t)
			assert.NilError(t, r.err)
			assert.Equal(t, r.ev.Cookie, 10*round)
			assert.Equal(t, r.nmore, 2)
			rule.Proves(t, "EVD-WAIT-30", "EVD-23", "F-05")
			completion(t, b.recv, 10*round+1)
			completion(t, b.recv, 10*round+2)
		}
		// A notification for events that have been dequeued already wakes no call.
		for range 5 {
			b.receive(0, 1, 2)
			_, _, err := b.recv.Wait(time.Millisecond, 1) // leaves the queue armed
			assert.ErrorIs(t, err, udat.ErrTimeoutExpired)
			a.send(8, 0, udat.CompletionSolicitedWait)
			completion(t, b.recv, 1)
			w := waitOn(t, b.recv, udat.Infinite, 1)
			a.send(8, 0, quietly)
			w.still(t)
			b.receive(0, 3)
			a.send(8, 0, udat.CompletionSolicitedWait)
			assert.Equal(t, w.result(t).ev.Cookie, udat.Cookie(2))
			completion(t, b.recv, 3)
		}
		rule.Proves(t, "EVD-23")
	})
}

// TestNotifySolicitedElsewhere shows that a solicited Send makes no difference to a receiver
// without SOLICITED_WAIT.
func TestNotifySolicitedElsewhere(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := pair(t, dev, withFlags(udat.CompletionUnsignalled, 0))
		b.receive(udat.CompletionUnsignalled, 0)
		w := waitOn(t, b.recv, udat.Infinite, 1)
		a.send(8, 0, udat.CompletionSolicitedWait)
		w.still(t)
		rule.Proves(t, "F-05")
		b.receive(0, 1)
		a.send(8, 0, 0)
		assert.NilError(t, w.result(t).err)
	})
}

// TestNotifyFailures shows that failures notify under every control model.
func TestNotifyFailures(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		for _, flags := range []udat.CompletionFlags{0, udat.CompletionUnsignalled, udat.CompletionSolicitedWait,
			udat.CompletionEVDThreshold} {
			s := withFlags(flags, 0)
			s.unkept = false // not every device notifies of every failure
			a, b := pair(t, dev, s)
			b.receive(flags&udat.CompletionUnsignalled, 0, 1)
			w := waitOn(t, b.recv, udat.Infinite, 1)
			assert.NilError(t, a.ep.Disconnect(udat.CloseAbrupt))
			r := w.result(t)
			assert.NilError(t, r.err)
			assert.Equal(t, r.ev.Status, udat.DTOErrFlushed)
			assert.Equal(t, r.ev.Cookie, udat.Cookie(0))
			flushed(t, b.recv, 1)
			rule.Proves(t, "EVD-27", "EVD-52")
			// The failed receive of a message that is too long, and not solicited.
			a, b = pair(t, dev, s)
			b.receive(flags&udat.CompletionUnsignalled, 2)
			w = waitOn(t, b.recv, udat.Infinite, 1)
			assert.NilError(t, a.ep.PostSend(a.iov(0, 2000), 0, quietly))
			r = w.result(t)
			assert.NilError(t, r.err)
			assert.Equal(t, r.ev.Status, udat.DTOErrLocalLength, "%s", describe(r.ev))
			rule.Proves(t, "EVD-27")
		}
		a, b := pair(t, dev, withFlags(0, udat.CompletionUnsignalled))
		w := waitOn(t, a.request, udat.Infinite, 1)
		const silent = udat.CompletionUnsignalled | udat.CompletionSuppress
		b.receive(0, 1)
		assert.NilError(t, a.ep.PostSend(a.iov(0, 8), 2, silent))
		for range 12 { // so many that the device is asked for the completion of one
			assert.NilError(t, a.ep.PostRDMAWrite(a.iov(0, 8), 3, b.mem.RMRTriplet(0, 8), silent))
		}
		assert.NilError(t, a.ep.PostRDMARead(a.iov(0, 8), 4, b.mem.RMRTriplet(0, 8), silent))
		completion(t, b.recv, 1)
		eventually(t, func() bool { _, _, idle, err := a.ep.GetStatus(); return err == nil && idle }, "work is left")
		w.still(t) // successes make no event: the failure is the first event
		want, bad := udat.DTOErrRemoteAccess, b.mem.RMRTriplet(0, 8)
		if acknowledged(a) {
			bad.RMRContext ^= 0xff00
		} else { // there a refusal of the peer makes no failure, but a flush does
			part(t, a, b, udat.CloseAbrupt)
			want = udat.DTOErrFlushed
		}
		assert.NilError(t, a.ep.PostRDMAWrite(a.iov(0, 8), 5, bad, silent))
		r := w.result(t)
		assert.NilError(t, r.err)
		assert.Equal(t, r.ev.Status, want, "%s", describe(r.ev))
		assert.Equal(t, r.ev.Cookie, udat.Cookie(5))
		assert.Equal(t, r.nmore, 0)
		rule.Proves(t, "EVD-27", "F-07", "F-04")
	})
}

// TestNotifyOtherStreams shows that connection and software events wake a waiter that is parked for
// completions.
func TestNotifyOtherStreams(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		all := udat.EVDDefault | udat.EVDSoftware
		a, b := newEnd(t, dev, setup{}), newEnd(t, dev, setup{streams: all, unkept: true})
		psp := listen(t, b)
		w := waitOn(t, b.conn, udat.Infinite, 1)
		assert.NilError(t, a.ep.Connect(b.ia.Addr(), psp.Qual(), patience, nil, udat.QoSBestEffort, udat.ConnectDefault))
		req := w.result(t)
		assert.NilError(t, req.err)
		assert.Equal(t, req.ev.Number, udat.EventConnectionRequest)
		w = waitOn(t, b.conn, udat.Infinite, 1)
		assert.NilError(t, req.ev.CR.Accept(b.ep, nil))
		assert.Equal(t, w.result(t).ev.Number, udat.EventConnectionEstablished)
		expect(t, a.conn, udat.EventConnectionEstablished)
		w = waitOn(t, b.conn, udat.Infinite, 1)
		soft(t, b.conn, "x")
		assert.Equal(t, w.result(t).ev.Software, any("x"))
		w = waitOn(t, b.conn, udat.Infinite, 1)
		assert.NilError(t, a.ep.Disconnect(udat.CloseAbrupt))
		assert.Equal(t, w.result(t).ev.Number, udat.EventConnectionDisconnected)
		c := newEnd(t, dev, setup{})
		w = waitOn(t, c.ia.AsyncEVD(), udat.Infinite, 1)
		c.alarm()
		assert.Equal(t, w.result(t).ev.Number, udat.EventAsyncEPSoftHighWatermark)
		rule.Proves(t, "EVD-26", "EVD-02", "EVD-POSTSE-02")
	})
}

// TestNotifyOthersTake shows that a waiter is woken no matter which call drains its completions:
// posts and queries of the endpoint drain too.
func TestNotifyOthersTake(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		for _, flags := range []udat.CompletionFlags{0, udat.CompletionSolicitedWait} {
			a, b := pair(t, dev, withFlags(flags, 0))
			stop := make(chan struct{})
			stopped := make(chan struct{})
			go func() {
				defer close(stopped)
				for {
					select {
					case <-stop:
						return
					default:
						b.ep.GetStatus()
						b.ep.RecvQuery()
					}
				}
			}()
			for i := range udat.Cookie(100) {
				b.receive(0, i)
				w := make(chan waited, 1)
				go func() {
					ev, nmore, err := b.recv.Wait(patience, 1)
					w <- waited{ev, nmore, err}
				}()
				assert.NilError(t, a.ep.PostSend(a.iov(0, 8), i, udat.CompletionSolicitedWait))
				r := <-w
				assert.NilError(t, r.err)
				assert.Equal(t, r.ev.Cookie, i)
				completion(t, a.request, i)
			}
			close(stop)
			<-stopped
		}
		rule.Proves(t, "EVD-20")
	})
}

// TestNotifyArmsLate shows that a call that waits on a dispatcher before it has a stream gets the
// events of a later stream.
func TestNotifyArmsLate(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		for _, direct := range []bool{true, false} {
			a, b := newEnd(t, dev, setup{unkept: true}), newEnd(t, dev, setup{unkept: true})
			needSolicited(t, b)
			assert.NilError(t, b.ep.Free())
			var cno *udat.CNO
			if !direct {
				cno = newCNO(t, b.ia, nil)
			}
			var err error
			b.recv, err = b.ia.CreateEVD(64, udat.EVDDTO, cno)
			assert.NilError(t, err)
			var w *waiting
			if direct {
				w = waitOn(t, b.recv, udat.Infinite, 1)
			}
			b.ep, err = b.ia.CreateEP(b.pz, b.recv, b.request, b.conn,
				&udat.EPAttr{RecvCompletionFlags: udat.CompletionSolicitedWait})
			assert.NilError(t, err)
			connect(t, a, b)
			b.receive(0, 1, 2)
			a.send(8, 1, quietly)
			if direct {
				w.still(t)
			} else {
				untriggered(t, cno)
			}
			a.send(8, 1, udat.CompletionSolicitedWait)
			if !direct {
				triggered(t, cno, b.recv)
				completion(t, b.recv, 1)
				continue
			}
			r := w.result(t)
			assert.NilError(t, r.err)
			assert.Equal(t, r.ev.Cookie, udat.Cookie(1))
		}
		rule.Proves(t, "EVD-23", "CNO-01")
	})
}

// TestNotifyTwoSenders: two endpoints share a dispatcher, and only the sender of one of them
// solicits. Only its message wakes the call, which then gets the first event on the queue.
func TestNotifyTwoSenders(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		quietOne, b1 := pair(t, dev, withFlags(udat.CompletionSolicitedWait, 0))
		needSolicited(t, b1)
		loud, b2 := newEnd(t, dev, setup{}), *b1
		b2.ep = b1.another(&udat.EPAttr{RecvCompletionFlags: udat.CompletionSolicitedWait})
		connect(t, loud, &b2)
		for round := range udat.Cookie(3) {
			b1.receive(0, 10*round, 10*round+1)
			b2.receive(0, 10*round+5)
			w := waitOn(t, b1.recv, udat.Infinite, 1)
			quietOne.send(8, 0, quietly)
			quietOne.send(8, 1, quietly)
			w.still(t)
			loud.send(8, 0, udat.CompletionSolicitedWait)
			r := w.result(t)
			assert.NilError(t, r.err)
			assert.Equal(t, r.ev.Cookie, 10*round)
			assert.Equal(t, r.ev.EP, b1.ep)
			assert.Equal(t, completion(t, b1.recv, 10*round+1).EP, b1.ep)
			assert.Equal(t, completion(t, b1.recv, 10*round+5).EP, b2.ep)
			for range 2 {
				next(t, quietOne.request)
			}
			next(t, loud.request)
		}
		rule.Proves(t, "EVD-23", "EVD-WAIT-30", "F-05")
	})
}

// TestNotifyBeforeArm makes a completion come when the device does not notify of it: after the
// dispatcher has polled and before it has armed the queue.
func TestNotifyBeforeArm(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		for _, flags := range []udat.CompletionFlags{0, udat.CompletionUnsignalled, udat.CompletionSolicitedWait} {
			ready := func() (a, b *end) {
				var script faultfabric.Script
				s := withFlags(flags, 0)
				s.script = &script
				a, b = pair(t, dev, s)
				b.receive(0, 1)
				script.On(faultfabric.Arm, udat.CompletionQueue(b.recv)).Times(1).Before(func() {
					udat.Elsewhere(func() { a.send(8, 0, udat.CompletionSolicitedWait) })
				})
				return a, b
			}
			_, b := ready()
			completion(t, b.recv, 1)
			_, b = ready()
			cno := newCNO(t, b.ia, nil)
			assert.NilError(t, b.recv.ModifyCNO(cno))
			triggered(t, cno, b.recv)
			completion(t, b.recv, 1)
		}
		rule.Proves(t, "EVD-20", "EVD-23", "CNO-01")
	})
}

// TestNotifyWithoutSpin: completions that do not notify do not end a call that parks without
// spinning either.
func TestNotifyWithoutSpin(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		with := withFlags(udat.CompletionUnsignalled, 0)
		with.opts = []udat.Option{udat.WithSpin(0)}
		a, b := pair(t, dev, with)
		b.receive(udat.CompletionUnsignalled, 0)
		b.receive(0, 1)
		w := waitOn(t, b.recv, udat.Infinite, 1)
		a.send(8, 0, 0)
		w.still(t)
		a.send(8, 1, 0)
		r := w.result(t)
		assert.NilError(t, r.err)
		assert.Equal(t, r.ev.Cookie, udat.Cookie(0))
		assert.Equal(t, r.nmore, 1)
		rule.Proves(t, "EVD-22")
	})
}
