package memfabric

import (
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/softnic"
	"github.com/godat/godat/udat/internal/softnic/nicfault"
)

func TestFailOp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := pair(t, endOptions{})
		nicfault.Of(a.dev).FailOp(2, fabric.StatusRemoteOp)
		for id := range uint64(3) {
			b.recv(id)
			a.send(10 + id)
		}
		a.completion(10, fabric.StatusSuccess)
		a.completion(11, fabric.StatusRemoteOp)
		a.completion(12, fabric.StatusFlush)
		b.completion(0, fabric.StatusSuccess)
		b.quiet()
	})
}

func TestFailRecv(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := pair(t, endOptions{})
		nicfault.Of(b.dev).FailRecv(1, fabric.StatusLocalProt)
		b.recv(1)
		a.send(2)
		b.completion(1, fabric.StatusLocalProt)
		a.completion(2, fabric.StatusRemoteOp)
		b.recv(3)
		b.completion(3, fabric.StatusFlush)
	})
}

func TestDelayHoldsBackAndKeepsOrder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := pair(t, endOptions{})
		b.recv(1)
		b.recv(2)
		nicfault.Of(a.dev).Delay(time.Second)
		start := time.Now()
		a.send(3)
		time.Sleep(100 * time.Millisecond)
		a.send(4)
		nicfault.Of(a.dev).Delay(0)
		a.remote(5, fabric.OpWrite, b.at(0, 0), a.at(0, 8)) // not delayed, and yet not first
		b.completion(1, fabric.StatusSuccess)
		assert.Equal(t, time.Since(start), time.Second)
		b.completion(2, fabric.StatusSuccess)
		assert.Equal(t, time.Since(start), 1100*time.Millisecond)
		for id := uint64(3); id <= 5; id++ {
			a.completion(id, fabric.StatusSuccess)
		}
	})
}

func TestReadDepthThrottles(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := pair(t, endOptions{}) // 4 reads at a time
		nicfault.Of(a.dev).Delay(time.Second)
		start := time.Now()
		for id := range uint64(10) {
			a.remote(id, fabric.OpRead, b.at(0, 0), a.at(0, 8))
		}
		a.remote(10, fabric.OpWrite, b.at(0, 0), a.at(0, 8))
		for id := range uint64(11) {
			a.completion(id, fabric.StatusSuccess)
			assert.Equal(t, time.Since(start), time.Duration(1+min(id, 9)/4)*time.Second)
		}
	})
}

// TestDelayAndReadDepths: delayed reads wait for each other only if the read depth requires it,
// delayed writes never. The delay of a request is fixed when the request is posted.
func TestDelayAndReadDepths(t *testing.T) {
	shallow := func(t *testing.T, depth uint8) (a, b *end) {
		f := New()
		a, b = newEnd(t, f, endOptions{}), newEnd(t, f, endOptions{})
		addr, requests, _ := b.listen()
		a.connect(fabric.ConnectParams{Remote: addr, ReadOut: depth})
		b.accept(next(t, requests), fabric.AcceptParams{ReadIn: 4})
		a.wants(fabric.EventEstablished)
		nicfault.Of(a.dev).Delay(time.Second)
		return a, b
	}
	bubble(t, func(t *testing.T) {
		a, b := shallow(t, 4)
		start := time.Now()
		for id := range uint64(10) {
			a.remote(id, fabric.OpWrite, b.at(0, 0), a.at(0, 8))
		}
		for id := range uint64(10) {
			a.completion(id, fabric.StatusSuccess)
			assert.Equal(t, time.Since(start), time.Second)
		}
	})
	bubble(t, func(t *testing.T) {
		a, b := shallow(t, 1)
		start := time.Now()
		for id := range uint64(3) {
			a.remote(id, fabric.OpRead, b.at(0, 0), a.at(0, 8))
		}
		nicfault.Of(a.dev).Delay(0)
		a.remote(3, fabric.OpRead, b.at(0, 0), a.at(0, 8))
		nicfault.Of(a.dev).Delay(time.Second)
		for id, after := range []time.Duration{1, 2, 3, 3} {
			a.completion(uint64(id), fabric.StatusSuccess)
			assert.Equal(t, time.Since(start), after*time.Second)
		}
	})
	bubble(t, func(t *testing.T) {
		a, b := shallow(t, 0)
		a.remote(1, fabric.OpRead, b.at(0, 0), a.at(0, 8))
		a.completion(1, fabric.StatusLocalQPOp)
	})
}

// TestSlowReadIsOvertaken: a request after a read in flight does not send the data of that read,
// unless the request is fenced.
func TestSlowReadIsOvertaken(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := pair(t, endOptions{})
		store(a.mem, 1)
		store(b.mem, 2)
		nicfault.Of(a.dev).Delay(time.Second)
		to := func(op fabric.Opcode, off int, flags fabric.SendFlags) fabric.SendWR {
			return fabric.SendWR{Opcode: op, Flags: flags | fabric.Signaled, RemoteAddr: b.at(off, 0).Addr, RKey: b.mr.RKey(),
				NumSGE: 1}
		}
		_, err := a.qp.PostSend([]fabric.SendWR{to(fabric.OpRead, 0, 0), to(fabric.OpWrite, 8, 0),
			to(fabric.OpWrite, 16, fabric.Fence)}, []fabric.SGE{a.at(0, 8)})
		assert.NilError(t, err)
		for _, wc := range a.completions(3) {
			assert.Equal(t, wc.Status, fabric.StatusSuccess)
		}
		assert.Equal(t, load(b.mem[8:]), uint64(1))
		assert.Equal(t, load(b.mem[16:]), uint64(2))
	})
}

func TestDelayEndsWithTheQueuePair(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, _ := pair(t, endOptions{})
		nicfault.Of(a.dev).Delay(time.Hour)
		a.send(1)
		start := time.Now()
		assert.NilError(t, a.qp.SetError())
		a.completion(1, fabric.StatusFlush)
		assert.Equal(t, time.Since(start), time.Duration(0))
	})
}

func TestDelayedHandshake(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := New()
		a, b := newEnd(t, f, endOptions{}), newEnd(t, f, endOptions{})
		nicfault.Of(a.dev).Delay(time.Second)
		nicfault.Of(b.dev).Delay(time.Minute / 2)
		start := time.Now()
		addr, requests, _ := b.listen()
		a.connect(fabric.ConnectParams{Remote: addr})
		b.accept(next(t, requests), fabric.AcceptParams{})
		assert.Equal(t, time.Since(start), time.Second)
		a.wants(fabric.EventEstablished)
		assert.Equal(t, time.Since(start), 31*time.Second)
		b.wants(fabric.EventEstablished)
		assert.Equal(t, time.Since(start), 32*time.Second)
	})
}

func TestKill(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := pair(t, endOptions{Options: fabric.Options{Retry: 3}})
		b.recv(1)
		nicfault.Of(b.dev).Kill()
		start := time.Now()
		a.send(2)
		time.Sleep(ackTimeout / 2)
		nicfault.Of(b.dev).Kill() // again: the sender tries again, which uses no retry
		a.completion(2, fabric.StatusRetryExceeded)
		assert.Equal(t, time.Since(start), 4*ackTimeout)
		a.quiet()
		b.quiet()
		// It does not answer a connect either.
		nicfault.Of(b.dev).Revive()
		addr, requests, _ := b.listen()
		nicfault.Of(b.dev).Kill()
		a.renew()
		a.connect(fabric.ConnectParams{Remote: addr})
		a.wants(fabric.EventUnreachable)
		assert.Equal(t, len(requests), 0)
	})
}

// TestKilledDeviceReachesNobody: messages of a killed device do not arrive.
func TestKilledDeviceReachesNobody(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := pair(t, endOptions{})
		b.recv(1)
		nicfault.Of(a.dev).Kill()
		a.send(2)
		a.completion(2, fabric.StatusRetryExceeded)
		b.quiet()
	})
}

// TestWaitForAReceiveEnds: a request that waits for a receive fails if the peer's device is killed
// or the path is dropped.
func TestWaitForAReceiveEnds(t *testing.T) {
	for _, end := range []func(f *nicfault.Faults, qpns []uint32){
		func(f *nicfault.Faults, qpns []uint32) { f.Kill() },
		func(f *nicfault.Faults, qpns []uint32) {
			for _, n := range qpns {
				f.Drop(n)
			}
		},
	} {
		bubble(t, func(t *testing.T) {
			f := New()
			a, b := newEnd(t, f, endOptions{}), newEnd(t, f, endOptions{})
			var qpns []uint32
			for range 6 {
				a.renew()
				b.renew()
				join(t, a, b)
				qpns = append(qpns, b.qp.Num())
				a.send(1)
			}
			a.quiet()
			end(nicfault.Of(b.dev), qpns)
			for _, wc := range a.completions(len(qpns)) {
				assert.Equal(t, wc.Status, fabric.StatusRetryExceeded)
			}
		})
	}
}

func TestReviveInTime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := pair(t, endOptions{Options: fabric.Options{Retry: 3}})
		b.recv(1)
		nicfault.Of(b.dev).Kill()
		a.send(2)
		time.Sleep(3 * ackTimeout)
		nicfault.Of(b.dev).Revive()
		a.completion(2, fabric.StatusSuccess)
		b.completion(1, fabric.StatusSuccess)
	})
}

func TestKilledPeerIsNotToldOfADisconnect(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := pair(t, endOptions{})
		nicfault.Of(b.dev).Kill()
		assert.NilError(t, a.conn.Close())
		b.quiet()
		b.send(1)
		b.completion(1, fabric.StatusRetryExceeded)
	})
}

func TestDrop(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := pair(t, endOptions{})
		first := [2]fabric.QP{a.qp, b.qp}
		a.renew()
		b.renew()
		join(t, a, b)
		nicfault.Of(a.dev).Drop(first[0].Num())
		b.recv(1)
		a.send(2)
		a.completion(2, fabric.StatusSuccess)
		b.completion(1, fabric.StatusSuccess)
		a.qp, b.qp = first[0], first[1]
		for _, e := range []*end{a, b} {
			e.send(3)
			e.completion(3, fabric.StatusRetryExceeded)
			e.quiet()
		}
	})
}

func TestRemove(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, o := New(), endOptions{Options: fabric.Options{Retry: 1}}
		a, b := newEnd(t, f, o), newEnd(t, f, o)
		join(t, a, b)
		a.recv(1)
		_, _, l := a.listen()
		nicfault.Of(a.dev).Remove()
		a.completion(1, fabric.StatusFlush)
		a.wantsAsync(fabric.AsyncDeviceFatal)
		assert.ErrorIs(t, a.wants(fabric.EventRemoved).Err, fabric.ErrDeviceRemoved)
		for _, err := range []error{
			second(a.dev.AllocPD()), second(a.dev.CreateCQ(1)), second(a.pd.RegMR(a.mem, 0)), second(a.pd.AllocMW()),
			second(a.dev.Listen(0, nil, func(fabric.Request) {})), second(a.qp.PostSend([]fabric.SendWR{{}}, nil)),
			second(a.qp.PostRecv([]fabric.RecvWR{{}}, nil)),
		} {
			assert.ErrorIs(t, err, fabric.ErrDeviceRemoved)
		}
		a.quiet()
		b.send(2)
		b.completion(2, fabric.StatusRetryExceeded)
		b.renew()
		b.connect(fabric.ConnectParams{Remote: l.Addr()})
		b.wants(fabric.EventRejected)
		// A removed device can be closed, and its name can be opened again.
		d, err := f.Open("mem0", options, nil)
		assert.NilError(t, err)
		assert.NilError(t, d.Close())
	})
}

// A removed device sends and receives nothing, whichever end it belongs to.
func TestRemovedDeviceIsSilent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := pair(t, endOptions{})
		nicfault.Of(b.dev).Remove()
		b.wantsAsync(fabric.AsyncDeviceFatal)
		b.wants(fabric.EventRemoved)
		b.conn.Close()
		a.quiet()
	})
	bubble(t, func(t *testing.T) {
		a, b := pair(t, endOptions{})
		a.renew()
		addr, requests, _ := b.listen()
		a.connect(fabric.ConnectParams{Remote: addr})
		r := next(t, requests)
		nicfault.Of(b.dev).Remove()
		r.Reject(nil, true)
		a.quiet()
	})
}

func second[T any](_ T, err error) error { return err }

func TestLostHandshakeMessages(t *testing.T) {
	for _, c := range []struct {
		lose    softnic.Message
		passive bool // it is the passive end's message
		a, b    fabric.ConnEventKind
	}{
		{softnic.MsgReply, true, fabric.EventUnreachable, fabric.EventFailed},
		{softnic.MsgReady, false, fabric.EventEstablished, fabric.EventFailed},
	} {
		bubble(t, func(t *testing.T) {
			f := New()
			a, b := newEnd(t, f, endOptions{}), newEnd(t, f, endOptions{})
			loser := a
			if c.passive {
				loser = b
			}
			nicfault.Of(loser.dev).Lose(c.lose, 1)
			addr, requests, _ := b.listen()
			a.connect(fabric.ConnectParams{Remote: addr})
			b.accept(next(t, requests), fabric.AcceptParams{})
			if c.a != fabric.EventEstablished {
				a.quiet()
			}
			b.quiet()
			time.Sleep(handshakeLimit)
			a.wants(c.a)
			b.wants(c.b)
		})
	}
	for _, m := range []softnic.Message{softnic.MsgRequest, softnic.MsgReject} {
		bubble(t, func(t *testing.T) {
			f := New()
			a, b := newEnd(t, f, endOptions{}), newEnd(t, f, endOptions{})
			nicfault.Of(a.dev).Lose(softnic.MsgRequest, btoi(m == softnic.MsgRequest))
			nicfault.Of(b.dev).Lose(softnic.MsgReject, btoi(m == softnic.MsgReject))
			addr, requests, _ := b.listen()
			a.connect(fabric.ConnectParams{Remote: addr})
			if m == softnic.MsgReject {
				assert.NilError(t, next(t, requests).Reject(nil, true))
			}
			a.quiet()
			time.Sleep(handshakeLimit)
			a.wants(fabric.EventUnreachable)
			assert.Equal(t, len(requests), 0)
		})
	}
}

// TestLoseSome: exactly the requested number of messages is lost.
func TestLoseSome(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := New()
		a, b := newEnd(t, f, endOptions{}), newEnd(t, f, endOptions{})
		addr, requests, _ := b.listen()
		nicfault.Of(a.dev).Lose(softnic.MsgRequest, 2)
		for range 2 {
			a.connect(fabric.ConnectParams{Remote: addr})
			a.wants(fabric.EventUnreachable)
		}
		a.connect(fabric.ConnectParams{Remote: addr})
		assert.NilError(t, next(t, requests).Reject(nil, true))
		a.wants(fabric.EventPeerRejected)
	})
}

func TestFirstMessageStandsForTheLostReady(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := New()
		a, b := newEnd(t, f, endOptions{}), newEnd(t, f, endOptions{})
		nicfault.Of(a.dev).Lose(softnic.MsgReady, 1)
		addr, requests, _ := b.listen()
		a.connect(fabric.ConnectParams{Remote: addr})
		b.accept(next(t, requests), fabric.AcceptParams{})
		a.wants(fabric.EventEstablished)
		b.quiet()
		a.remote(1, fabric.OpWrite, b.at(0, 0), a.at(0, 8))
		b.wants(fabric.EventEstablished)
		time.Sleep(handshakeLimit)
		b.quiet()
	})
	// So does a disconnect.
	bubble(t, func(t *testing.T) {
		f := New()
		a, b := newEnd(t, f, endOptions{}), newEnd(t, f, endOptions{})
		nicfault.Of(a.dev).Lose(softnic.MsgReady, 1)
		addr, requests, _ := b.listen()
		a.connect(fabric.ConnectParams{Remote: addr})
		b.accept(next(t, requests), fabric.AcceptParams{})
		a.wants(fabric.EventEstablished)
		assert.NilError(t, a.conn.Disconnect())
		b.wants(fabric.EventEstablished)
		b.wants(fabric.EventDisconnected)
	})
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func TestLostDisconnect(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := pair(t, endOptions{})
		nicfault.Of(a.dev).Lose(softnic.MsgDisconnect, 1)
		assert.NilError(t, a.conn.Disconnect())
		assert.NilError(t, a.conn.Disconnect())
		b.quiet()
		b.send(1)
		b.completion(1, fabric.StatusRetryExceeded)
	})
}

func TestExhaust(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := New()
		a, b := newEnd(t, f, endOptions{}), newEnd(t, f, endOptions{})
		addr, requests, _ := b.listen()
		a.connect(fabric.ConnectParams{Remote: addr})
		r := next(t, requests)
		d := b.dev
		for res, make := range map[softnic.Resource]func() error{
			softnic.PDs:       func() error { return second(d.AllocPD()) },
			softnic.MRs:       func() error { return second(b.pd.RegMR(b.mem, 0)) },
			softnic.MWs:       func() error { return second(b.pd.AllocMW()) },
			softnic.CQs:       func() error { return second(d.CreateCQ(1)) },
			softnic.SRQs:      func() error { return second(b.pd.CreateSRQ(1, 1)) },
			softnic.QPs:       func() error { return second(d.CreateQP(b.init)) },
			softnic.Listeners: func() error { return second(d.Listen(0, nil, func(fabric.Request) {})) },
			softnic.Conns:     func() error { return second(r.Accept(b.qp, fabric.AcceptParams{}, b.on)) },
		} {
			nicfault.Of(d).Exhaust(res, 1)
			assert.ErrorIs(t, make(), fabric.ErrResources, "resource %d", res)
		}
		b.accept(r, fabric.AcceptParams{}) // the request was still there
		a.wants(fabric.EventEstablished)
	})
}

// TestReport: an event of an object is reported to the device of the object, an event of the port
// to every open device of the adapter.
func TestReport(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := pair(t, endOptions{srq: 2})
		for _, ev := range []fabric.AsyncEvent{
			{Kind: fabric.AsyncCQError, CQ: a.cq}, {Kind: fabric.AsyncQPFatal, QP: a.qp},
			{Kind: fabric.AsyncSRQError, SRQ: a.init.SRQ},
		} {
			for range 2 {
				nicfault.Of(a.dev).Report(ev)
				assert.Equal(t, a.wantsAsync(ev.Kind), ev)
				a.quiet()
				b.quiet()
			}
		}
		for _, by := range []*end{a, b} {
			for _, kind := range []fabric.AsyncKind{fabric.AsyncPortError, fabric.AsyncPortActive} {
				nicfault.Of(by.dev).Report(fabric.AsyncEvent{Kind: kind})
				a.wantsAsync(kind)
				b.wantsAsync(kind)
			}
		}
	})
}

func TestForcedOverrun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, b := pair(t, endOptions{})
		nicfault.Of(b.dev).Overrun(b.cq)
		b.wantsAsync(fabric.AsyncCQError)
		b.wantsAsync(fabric.AsyncQPFatal)
		nicfault.Of(b.dev).Report(fabric.AsyncEvent{Kind: fabric.AsyncPortError})
		b.wantsAsync(fabric.AsyncPortError)
	})
}
