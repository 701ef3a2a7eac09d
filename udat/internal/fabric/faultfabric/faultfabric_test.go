package faultfabric_test

import (
	"errors"
	"net/netip"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/fabric/fabrictest"
	"github.com/godat/godat/udat/internal/fabric/faultfabric"
	"github.com/godat/godat/udat/internal/memfabric"
	"github.com/godat/godat/udat/internal/softnic/nicfault"
	"github.com/godat/godat/udat/internal/verbsfabric"
)

var options = fabric.Options{RNRRetry: 7, Retry: fabric.DefaultRetry}

// TestContract: a script without rules changes nothing. It runs on mem0, or on the device that
// GODAT_TEST_DEVICE names.
func TestContract(t *testing.T) {
	var script faultfabric.Script
	cfg := fabrictest.Config{Unreachable: netip.MustParseAddrPort("192.0.2.1:4711"), Cycles: 100}
	var inner fabric.Fabric = memfabric.New()
	name := os.Getenv("GODAT_TEST_DEVICE")
	if name == "" {
		name = "mem0"
	} else {
		inner, cfg.Unreachable = verbsfabric.New(), netip.MustParseAddrPort("[2001:db8::1]:9")
	}
	f := script.Wrap(inner)
	cfg.Open = func(opts fabric.Options, async func(fabric.AsyncEvent)) (fabric.Device, error) {
		return f.Open(name, opts, async)
	}
	fabrictest.Run(t, cfg)
}

// ends are two connected queue pairs of one device.
type ends struct {
	script *faultfabric.Script
	dev    fabric.Device
	pd     fabric.PD
	cq     [2]fabric.CQ
	qp     [2]fabric.QP
	conn   [2]fabric.Conn
	events chan fabric.ConnEvent // of the first
	async  chan fabric.AsyncEvent
}

var errTest = errors.New("as the test wants it")

// run runs a test in virtual time. The queue pairs are connected, unless the function before
// prevents that.
func run(t *testing.T, before func(t *testing.T, e *ends), test func(t *testing.T, e *ends)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		e := &ends{script: &faultfabric.Script{}, events: make(chan fabric.ConnEvent, 8),
			async: make(chan fabric.AsyncEvent, 8)}
		var err error
		e.dev, err = e.script.Wrap(memfabric.New()).Open("mem0", options, func(ev fabric.AsyncEvent) { e.async <- ev })
		assert.NilError(t, err)
		e.pd, err = e.dev.AllocPD()
		assert.NilError(t, err)
		for i := range e.qp {
			e.cq[i], err = e.dev.CreateCQ(16)
			assert.NilError(t, err)
			e.qp[i], err = e.dev.CreateQP(fabric.QPInit{PD: e.pd, SendCQ: e.cq[i], RecvCQ: e.cq[i], MaxSend: 8, MaxRecv: 8,
				MaxSendSGE: 1, MaxRecvSGE: 1})
			assert.NilError(t, err)
		}
		l, err := e.dev.Listen(0, nil, func(r fabric.Request) {
			var err error
			if e.conn[1], err = r.Accept(e.qp[1], fabric.AcceptParams{}, func(fabric.ConnEvent) {}); err != nil {
				r.Reject(nil, true)
			}
		})
		assert.NilError(t, err)
		if before != nil {
			before(t, e)
		}
		e.conn[0], err = e.dev.Connect(e.qp[0], fabric.ConnectParams{Remote: l.Addr()},
			func(ev fabric.ConnEvent) { e.events <- ev })
		assert.NilError(t, err)
		synctest.Wait()
		test(t, e)
		for _, c := range e.conn {
			if c != nil {
				c.Close()
			}
		}
		for _, c := range []interface{ Close() error }{l, e.qp[0], e.qp[1], e.cq[0], e.cq[1], e.pd, e.dev} {
			assert.NilError(t, c.Close())
		}
	})
}

// send posts an empty message and a receive for it, and waits until the message has arrived.
func (e *ends) send(t *testing.T) {
	t.Helper()
	n, err := e.qp[1].PostRecv([]fabric.RecvWR{{ID: 2}}, nil)
	assert.NilError(t, err)
	assert.Equal(t, n, 1)
	n, err = e.qp[0].PostSend([]fabric.SendWR{{ID: 1, Opcode: fabric.OpSend, Flags: fabric.Signaled}}, nil)
	assert.NilError(t, err)
	assert.Equal(t, n, 1)
	synctest.Wait()
}

// polled returns the number of completions on a queue.
func polled(t *testing.T, c fabric.CQ) int {
	t.Helper()
	n, err := c.Poll(make([]fabric.WC, 16), 3)
	assert.NilError(t, err)
	return n
}

func TestRules(t *testing.T) {
	run(t, nil, func(t *testing.T, e *ends) {
		s := e.script
		// Polls are dropped for one queue only, and until the rule is stopped.
		hidden := s.On(faultfabric.Poll, e.cq[1]).Drop()
		e.send(t)
		assert.Equal(t, polled(t, e.cq[0]), 1)
		assert.Equal(t, polled(t, e.cq[1]), 0)
		assert.Equal(t, hidden.Last(), 3)
		hidden.Stop()
		assert.Equal(t, polled(t, e.cq[1]), 1)
		assert.Equal(t, hidden.Calls(), 1)

		// A queue whose Arm was dropped notifies nobody.
		deaf := s.On(faultfabric.Arm, e.cq[1]).Drop()
		for _, armed := range []bool{false, true} {
			assert.NilError(t, e.cq[1].Arm(false))
			e.send(t)
			fired, err := e.cq[1].Wait(time.Now().Add(time.Second))
			assert.Assert(t, fired == armed && (armed || errors.Is(err, os.ErrDeadlineExceeded)), "%v", err)
			deaf.Stop()
		}
		assert.Equal(t, polled(t, e.cq[0])+polled(t, e.cq[1]), 4)

		// The second and the third call fail, on any object.
		failing := s.On(faultfabric.Arm).Skip(1).Times(2).Fail(errTest)
		var errs []error
		for i := range 4 {
			errs = append(errs, e.cq[i%2].Arm(i == 1))
		}
		assert.NilError(t, errs[0])
		assert.ErrorIs(t, errs[1], errTest)
		assert.ErrorIs(t, errs[2], errTest)
		assert.NilError(t, errs[3])
		assert.Equal(t, failing.Calls(), 2)
		failing.Stop()

		// Delay, Before and After: several rules apply to one call.
		var order []string
		note := func(what string) func() { return func() { order = append(order, what) } }
		slow := s.On(faultfabric.PostSend, e.qp[0]).Delay(time.Minute)
		s.On(faultfabric.PostSend, e.qp[0]).Before(note("before"))
		s.On(faultfabric.PostSend, e.qp[0]).After(note("after"))
		lost := s.On(faultfabric.PostSend, e.qp[0]).Times(1).Drop()
		began := time.Now()
		for range 2 {
			e.send(t)
		}
		assert.Equal(t, time.Since(began), 2*time.Minute)
		assert.DeepEqual(t, order, []string{"before", "after", "before", "after"})
		assert.Assert(t, slow.Calls() == 2 && lost.Calls() == 1)
		assert.Equal(t, polled(t, e.cq[0]), 1)
	})
}

// TestCreating: if a rule makes a create call fail, no object is made.
func TestCreating(t *testing.T) {
	run(t, nil, func(t *testing.T, e *ends) {
		for call, make := range map[faultfabric.Call]func() error{
			faultfabric.CreateCQ:  func() error { _, err := e.dev.CreateCQ(7); return err },
			faultfabric.CreateQP:  func() error { _, err := e.dev.CreateQP(fabric.QPInit{}); return err },
			faultfabric.AllocPD:   func() error { _, err := e.dev.AllocPD(); return err },
			faultfabric.CreateSRQ: func() error { _, err := e.pd.CreateSRQ(7, 1); return err },
			faultfabric.RegMR:     func() error { _, err := e.pd.RegMR(nil, 0); return err },
			faultfabric.AllocMW:   func() error { _, err := e.pd.AllocMW(); return err },
			faultfabric.Bind:      func() error { _, err := e.qp[0].Bind(nil, fabric.BindWR{}); return err },
			faultfabric.Listen:    func() error { _, err := e.dev.Listen(0, nil, nil); return err },
			faultfabric.Resize:    func() error { return e.cq[0].Resize(32) },
			faultfabric.SetError:  e.qp[0].SetError,
			faultfabric.Close:     e.dev.Close,
		} {
			rule := e.script.On(call).Times(1).Fail(errTest)
			assert.ErrorIs(t, make(), errTest, "%v", call)
			assert.Equal(t, rule.Calls(), 1)
			assert.Equal(t, rule.Last(), arguments[call], "%v", call)
			rule.Stop()
		}
	})
}

// arguments lists the arguments of those calls of TestCreating that have one.
var arguments = map[faultfabric.Call]int{faultfabric.CreateCQ: 7, faultfabric.CreateSRQ: 7, faultfabric.Resize: 32}

// TestArguments: rules report the arguments of calls; the argument is 0 if a call has none.
func TestArguments(t *testing.T) {
	run(t, nil, func(t *testing.T, e *ends) {
		arm := e.script.On(faultfabric.Arm).Count()
		for arg, solicited := range []bool{false, true} {
			assert.NilError(t, e.cq[0].Arm(solicited))
			assert.Equal(t, arm.Last(), arg)
		}
		l, err := e.dev.Listen(0, nil, func(r fabric.Request) { r.Reject(nil, true) })
		assert.NilError(t, err)
		q, err := e.dev.CreateQP(fabric.QPInit{PD: e.pd, SendCQ: e.cq[0], RecvCQ: e.cq[0], MaxSend: 1, MaxRecv: 1,
			MaxSendSGE: 1, MaxRecvSGE: 1})
		assert.NilError(t, err)
		pd, err := e.dev.AllocPD()
		assert.NilError(t, err)
		var c fabric.Conn
		rejected := e.script.On(faultfabric.Reject).Count()
		for _, step := range []struct {
			call faultfabric.Call
			do   func() error
		}{
			{faultfabric.Wait, func() error {
				_, err := e.cq[0].Wait(time.Now().Add(time.Second))
				return ignore(err, os.ErrDeadlineExceeded)
			}},
			{faultfabric.Connect, func() (err error) {
				c, err = e.dev.Connect(q, fabric.ConnectParams{Remote: l.Addr()}, func(fabric.ConnEvent) {})
				return err
			}},
			{faultfabric.Close, func() error { return c.Close() }},
			{faultfabric.Close, q.Close},
			{faultfabric.Close, pd.Close},
			{faultfabric.Disconnect, e.conn[0].Disconnect},
		} {
			rule := e.script.On(step.call).Count()
			assert.NilError(t, step.do())
			assert.Assert(t, rule.Calls() == 1 && rule.Last() == 0, "%v: %d, %d", step.call, rule.Calls(), rule.Last())
			rule.Stop()
			synctest.Wait()
		}
		assert.Assert(t, rejected.Calls() == 1 && rejected.Last() == 0)
		assert.NilError(t, l.Close())
	})
}

// ignore returns err unless it is the one expected.
func ignore(err, expected error) error {
	if errors.Is(err, expected) {
		return nil
	}
	return err
}

// TestFirstDecides: the first rule that fails or drops a call decides, and all After functions run.
func TestFirstDecides(t *testing.T) {
	run(t, nil, func(t *testing.T, e *ends) {
		s := e.script
		var ran []int
		first := s.On(faultfabric.Arm).Drop()
		s.On(faultfabric.Arm).After(func() { ran = append(ran, 1) })
		second := s.On(faultfabric.Arm).Fail(errTest)
		s.On(faultfabric.Arm).After(func() { ran = append(ran, 2) })
		assert.NilError(t, e.cq[0].Arm(false))
		assert.DeepEqual(t, ran, []int{1, 2})
		first.Stop()
		s.On(faultfabric.Arm).Drop()
		assert.ErrorIs(t, e.cq[0].Arm(false), errTest)
		second.Stop()
		began := time.Now()
		s.On(faultfabric.Arm).Delay(1)
		assert.NilError(t, e.cq[0].Arm(false))
		assert.Equal(t, time.Since(began), time.Nanosecond)
	})
}

// TestNoSense shows which calls can be dropped and which can fail; for all others the rule panics.
func TestNoSense(t *testing.T) {
	var s faultfabric.Script
	for _, call := range []faultfabric.Call{faultfabric.Poll, faultfabric.Arm, faultfabric.Wait, faultfabric.Resize,
		faultfabric.PostSend, faultfabric.PostRecv, faultfabric.SetError, faultfabric.Reject, faultfabric.Disconnect,
		faultfabric.ConnEvent, faultfabric.Async} {
		s.On(call).Drop().Stop()
	}
	for text, rule := range map[string]func(){
		"faultfabric: CreateCQ cannot be dropped": func() { s.On(faultfabric.CreateCQ).Drop() },
		"faultfabric: Close cannot be dropped":    func() { s.On(faultfabric.Close).Drop() },
		"faultfabric: ConnEvent cannot fail":      func() { s.On(faultfabric.ConnEvent).Fail(errTest) },
		"faultfabric: Async cannot fail":          func() { s.On(faultfabric.Async).Fail(errTest) },
	} {
		func() {
			defer func() { assert.Equal(t, recover(), text) }()
			rule()
		}()
	}
}

// TestHandlers: rules can drop and delay events, and events name the decorated objects.
func TestHandlers(t *testing.T) {
	var late *faultfabric.Rule
	run(t, func(t *testing.T, e *ends) {
		late = e.script.On(faultfabric.ConnEvent, e.qp[0]).Delay(time.Hour)
	}, func(t *testing.T, e *ends) {
		assert.Equal(t, len(e.events), 0)
		time.Sleep(time.Hour)
		assert.Equal(t, (<-e.events).Kind, fabric.EventEstablished)
		late.Stop()

		assert.ErrorIs(t, e.cq[1].Close(), fabric.ErrInUse) // and keeps its name
		faults := nicfault.Of(faultfabric.Inner(e.dev).(*memfabric.Device))
		faults.Overrun(faultfabric.Inner(e.cq[1]).(fabric.CQ))
		ev := <-e.async
		assert.Assert(t, ev.Kind == fabric.AsyncCQError && ev.CQ == e.cq[1], "%v", ev)
		ev = <-e.async
		assert.Assert(t, ev.Kind == fabric.AsyncQPFatal && ev.QP == e.qp[1], "%v", ev)

		lost := e.script.On(faultfabric.ConnEvent, e.qp[0]).With(int(fabric.EventRemoved),
			int(fabric.EventDisconnected)).Drop()
		other := e.script.On(faultfabric.ConnEvent).With(int(fabric.EventFailed)).Count()
		assert.NilError(t, e.conn[1].Disconnect())
		synctest.Wait()
		assert.Assert(t, len(e.events) == 0 && lost.Calls() == 1)
		assert.Equal(t, lost.Last(), int(fabric.EventDisconnected))
		assert.Equal(t, other.Calls(), 0)
	})
	run(t, func(t *testing.T, e *ends) { e.script.On(faultfabric.Accept).Fail(errTest) }, func(t *testing.T, e *ends) {
		assert.Equal(t, (<-e.events).Kind, fabric.EventPeerRejected)
	})
}

// TestAttr: a device reports the attributes that the script has set.
func TestAttr(t *testing.T) {
	script := faultfabric.Script{Attr: func(a *fabric.Attr) { a.MaxCQE = 7 }}
	dev, err := script.Wrap(memfabric.New()).Open("mem0", options, nil)
	assert.NilError(t, err)
	defer dev.Close()
	assert.Equal(t, dev.Attr().MaxCQE, 7)
	assert.Equal(t, dev.Attr().Info.Name, "mem0")
	_, err = script.Wrap(memfabric.New()).Open("mem1", options, nil)
	assert.ErrorIs(t, err, fabric.ErrNoDevice)
}
