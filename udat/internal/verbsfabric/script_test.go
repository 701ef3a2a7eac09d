//go:build linux

package verbsfabric

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/cverbs"
	"github.com/godat/godat/internal/looptest"
	"github.com/godat/godat/udat/internal/fabric"
)

// neverFail are calls that the scripts do not let fail: what they would have done stays undone for
// ever, and no program can do more.
var neverFail = []string{"ibv_free_device_list", "rdma_free_devices", "rdma_destroy_event_channel", "ibv_ack_cq_events",
	"rdma_ack_cm_event", "ibv_ack_async_event", "ibv_destroy_comp_channel", "ibv_close_device", "rdma_destroy_id"}

// Each call of the libraries that a connection needs, from opening the device to closing it, fails
// once, the first time or a later one. Whatever fails: each call of the fabric that waits ends,
// each end of the connection learns of its end, everything can be closed, and nothing stays open.
func TestEachCallFails(t *testing.T) {
	looptest.Run(t, func(s *looptest.Script) {
		name := testDevice(t)
		lifeOfConnection := func(t *testing.T) error { return lifeOfConnection(t, name) }
		assert.NilError(t, lifeOfConnection(t)) // opens what libraries and runtime open only once
		calls := s.Calls(func() { assert.NilError(t, lifeOfConnection(t)) })
		assert.Assert(t, calls["rdma_accept"] == 1 && calls["ibv_modify_qp"] > 5, "%v", calls)
		refused := 0
		for _, call := range slices.Sorted(maps.Keys(calls)) {
			if slices.Contains(neverFail, call) {
				continue
			}
			for nth := 1; nth <= min(calls[call], 16); nth++ {
				before := openFiles(t)
				what := fmt.Sprintf("call %d of %s", nth, call)
				t.Log(what)
				s.Set(looptest.Fail(call, nth, syscall.ENOMEM))
				if err := lifeOfConnection(t); err != nil {
					refused++
				}
				s.Set()
				assert.Check(t, len(cverbs.Live()) == 0, "%s: %v stay", what, cverbs.Live())
				awaitFiles(t, before, what)
				assert.NilError(t, lifeOfConnection(t), "after "+what)
			}
		}
		assert.Assert(t, refused > 30, "only %d failures were noticed", refused)
	})
}

// Whatever error ibv_resize_cq returns, the device has longer queues instead, and a later refusal
// says that the device cannot resize.
func TestResizeRefused(t *testing.T) {
	looptest.Run(t, func(s *looptest.Script) {
		for _, errno := range []syscall.Errno{syscall.EOPNOTSUPP, syscall.ENOSYS, syscall.EPROTONOSUPPORT, syscall.EINVAL,
			syscall.EPERM, syscall.ENOMEM} {
			s.Set(looptest.Fail("ibv_resize_cq", looptest.Each, errno))
			d, err := New().Open(testDevice(t), fabric.Options{}, nil)
			assert.NilError(t, err)
			q, err := d.CreateCQ(16)
			assert.NilError(t, err)
			assert.Assert(t, q.Depth() >= fixedMinimum, "%v: %d entries", errno, q.Depth())
			want := fabric.ErrNotSupported
			if errno == syscall.ENOMEM {
				want = fabric.ErrResources
			}
			assert.ErrorIs(t, q.Resize(2*q.Depth()), want, "%v", errno)
			assert.NilError(t, q.Close())
			s.Set()
			assert.NilError(t, d.Close())
		}
	})
}

func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	assert.NilError(t, err)
	return len(entries)
}

// awaitFiles waits until at most n descriptors are open: ids are destroyed by other goroutines.
func awaitFiles(t *testing.T, n int, what string) {
	t.Helper()
	for until := time.Now().Add(patience); openFiles(t) > n; time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			t.Errorf("%s: %d descriptors, and %d before", what, openFiles(t), n)
			return
		}
	}
}

// lifeOfConnection opens the device, connects two queue pairs, sends a message, disconnects, and
// closes everything. It returns the errors of all calls and of the connection.
func lifeOfConnection(t *testing.T, name string) (err error) {
	var open []interface{ Close() error }
	defer func() { // in the opposite order; a Close that failed is repeated
		for _, o := range slices.Backward(open) {
			e := o.Close()
			err = errors.Join(err, e)
			if e != nil {
				if e = o.Close(); e != nil && !errors.Is(e, fabric.ErrClosed) && !errors.Is(e, cverbs.ErrClosed) {
					t.Errorf("the second Close of %T: %v", o, e)
				}
			}
		}
	}()
	d, err := New().Open(name, fabric.Options{RNRRetry: 7, Retry: 7, Path: fabric.PathOptions{TOS: new(uint8)}}, nil)
	if err != nil {
		return err
	}
	open = append(open, d)
	pd, err := d.AllocPD()
	if err != nil {
		return err
	}
	open = append(open, pd)
	cq, err := d.CreateCQ(16)
	if err != nil {
		return err
	}
	open = append(open, cq)
	buf := make([]byte, 64)
	mr, err := pd.RegMR(buf, cverbs.AccessLocalWrite)
	if err != nil {
		return err
	}
	open = append(open, mr)
	var qps [2]fabric.QP
	for i := range qps {
		if qps[i], err = d.CreateQP(fabric.QPInit{PD: pd, SendCQ: cq, RecvCQ: cq, MaxSend: 2, MaxRecv: 2, MaxSendSGE: 1,
			MaxRecvSGE: 1}); err != nil {
			return err
		}
		open = append(open, qps[i])
	}
	requests := make(chan fabric.Request, 4)
	l, err := d.Listen(0, nil, func(r fabric.Request) { requests <- r })
	if err != nil {
		return err
	}
	open = append(open, l)
	active, passive := make(chan fabric.ConnEvent, 16), make(chan fabric.ConnEvent, 16)
	c, err := d.Connect(qps[0], fabric.ConnectParams{Remote: l.Addr(), Private: []byte("private")},
		func(ev fabric.ConnEvent) { active <- ev })
	if err != nil {
		return err
	}
	open = append(open, c)
	// The queue pair belongs to this attempt until its event. Another may take it only if it failed.
	second := func(other fabric.Conn, refused error) error {
		if other == nil {
			assert.Check(t, refused != nil)
			return nil
		}
		open = append(open, other)
		ev := receive(t, active)
		assert.Check(t, ev.Kind != fabric.EventEstablished, "the queue pair of another attempt is taken")
		return errors.Join(errors.New("the queue pair was free again"), failure("the connect", ev))
	}
	if err := second(d.Connect(qps[0], fabric.ConnectParams{Remote: l.Addr()}, func(fabric.ConnEvent) {})); err != nil {
		return err
	}
	var r fabric.Request
	select {
	case r = <-requests:
	case ev := <-active:
		return failure("the connect", ev)
	case <-time.After(patience):
		t.Error("neither a request nor an event came")
		return nil
	}
	if err := second(r.Accept(qps[0], fabric.AcceptParams{}, func(fabric.ConnEvent) {})); err != nil {
		return err
	}
	p, err := r.Accept(qps[1], fabric.AcceptParams{}, func(ev fabric.ConnEvent) { passive <- ev })
	if err != nil {
		return errors.Join(err, r.Reject(nil, true), failure("the connect", receive(t, active)))
	}
	open = append(open, p)
	err = errors.Join(failure("the connect", receive(t, active)), failure("the accept", receive(t, passive)))
	if err != nil {
		return err
	}
	sge := []fabric.SGE{{Addr: uint64(uintptr(unsafe.Pointer(&buf[0]))), Length: 8, LKey: mr.LKey()}}
	_, e := qps[1].PostRecv([]fabric.RecvWR{{ID: 1, NumSGE: 1}}, sge)
	_, f := qps[0].PostSend([]fabric.SendWR{{ID: 2, Opcode: fabric.OpSend, Flags: fabric.Signaled, NumSGE: 1}}, sge)
	if err := errors.Join(e, f); err != nil {
		return err
	}
	wcs := make([]fabric.WC, 2)
	for n := 0; n < 2; {
		k, err := cq.Poll(wcs, 1)
		if err != nil {
			return err
		}
		n += k
	}
	open = slices.DeleteFunc(open, func(o interface{ Close() error }) bool { return o == c })
	err = errors.Join(c.Disconnect(), c.Close()) // by the latter at the latest the peer learns
	assert.Check(t, receive(t, passive).Kind != fabric.EventEstablished)
	return errors.Join(err, p.Disconnect())
}

// failure returns an error unless the event is EventEstablished.
func failure(what string, ev fabric.ConnEvent) error {
	if ev.Kind == fabric.EventEstablished {
		return nil
	}
	return fmt.Errorf("%s: event %v: %w", what, ev.Kind, ev.Err)
}

// The order of rdma_cm's events is not what it should be.
func TestEventOrder(t *testing.T) {
	looptest.Run(t, func(s *looptest.Script) {
		script := func(kind string, a, b cverbs.CMEventType) { s.Set(fmt.Sprintf("%s %d %d", kind, a, b)) }
		o := openDevice(t)
		start := func() (fabric.Request, fabric.Conn, chan fabric.ConnEvent) {
			l, requests := o.listen()
			c, events := o.connect(l.Addr())
			return receive(t, requests), c, events
		}
		accept := func(r fabric.Request) (fabric.Conn, chan fabric.ConnEvent) {
			events := make(chan fabric.ConnEvent, 16)
			c, err := r.Accept(o.newQP(), fabric.AcceptParams{}, func(ev fabric.ConnEvent) { events <- ev })
			assert.NilError(t, err)
			return c, events
		}
		sync := func() { // all events before it have been handled
			done := make(chan struct{})
			o.dev.conns.Post(func() { close(done) })
			receive(t, done)
		}

		// The answer to the last message comes after the peer's disconnect.
		script("hold", cverbs.CMEventEstablished, cverbs.CMEventDisconnected)
		r, active, near := start()
		passive, far := accept(r)
		assert.Equal(t, receive(t, near).Kind, fabric.EventEstablished)
		assert.NilError(t, active.Disconnect())
		assert.Equal(t, receive(t, far).Kind, fabric.EventEstablished)
		assert.Equal(t, receive(t, far).Kind, fabric.EventDisconnected)
		assert.NilError(t, passive.Disconnect())
		assert.Equal(t, receive(t, near).Kind, fabric.EventDisconnected)
		sync()
		assert.Equal(t, len(near)+len(far), 0)
		assert.NilError(t, errors.Join(active.Close(), passive.Close()))

		// Each event comes twice, and is reported once.
		for _, twice := range []cverbs.CMEventType{cverbs.CMEventConnectResponse, cverbs.CMEventEstablished,
			cverbs.CMEventDisconnected, cverbs.CMEventAddrResolved, cverbs.CMEventRouteResolved} {
			script("after", twice, twice)
			r, active, near := start()
			passive, far := accept(r)
			assert.Equal(t, receive(t, near).Kind, fabric.EventEstablished, "%v", twice)
			assert.Equal(t, receive(t, far).Kind, fabric.EventEstablished)
			assert.NilError(t, active.Disconnect())
			assert.Equal(t, receive(t, far).Kind, fabric.EventDisconnected)
			assert.NilError(t, passive.Disconnect())
			assert.Equal(t, receive(t, near).Kind, fabric.EventDisconnected)
			sync()
			assert.Equal(t, len(near)+len(far), 0, "%v", twice)
			assert.NilError(t, errors.Join(active.Close(), passive.Close()))
		}

		// The device is removed between the request and its accept.
		script("after", cverbs.CMEventConnectRequest, cverbs.CMEventDeviceRemoval)
		r, active, near = start()
		assert.Equal(t, receive(t, near).Kind, fabric.EventRemoved)
		passive, far = accept(r)
		assert.Equal(t, receive(t, far).Kind, fabric.EventFailed)
		assert.NilError(t, errors.Join(active.Close(), passive.Close()))
	})
}

// Completions come in bursts.
func TestBursts(t *testing.T) {
	t.Setenv("GODAT_LOOP_WIRE", ",,2ms")
	assert.NilError(t, lifeOfConnection(t, testDevice(t)))
}

// A call of the old library does not exist: a request then goes without its length.
func TestWithoutECE(t *testing.T) {
	looptest.Run(t, func(s *looptest.Script) {
		o := openDevice(t)
		l, requests := o.listen()
		s.Set(looptest.Fail("rdma_set_local_ece", 1, syscall.EOPNOTSUPP))
		c, events := o.connect(l.Addr(), 'x')
		r := receive(t, requests)
		data, padded := r.Private()
		assert.Assert(t, padded && data[0] == 'x')
		assert.NilError(t, r.Reject(nil, true))
		assert.Equal(t, receive(t, events).Kind, fabric.EventPeerRejected)
		assert.NilError(t, c.Close())
	})
}

// A peer asks for more reads than the device has. Each direction is limited by its own limit.
func TestDepthLimits(t *testing.T) {
	o := legacy(t)
	l, requests := o.listen()
	peer := newRaw(t)
	peer.call(o, l, cverbs.ConnParam{ResponderResources: 255, InitiatorDepth: 255})
	r := receive(t, requests)
	in, out := r.ReadDepths()
	a := o.Attr()
	assert.Equal(t, int(in), min(a.MaxReadIn, 255))
	assert.Equal(t, int(out), min(a.MaxReadOut, 255))
	assert.NilError(t, r.Reject(nil, true))
}

// rdma_cm finds no free port for an id: the attempt fails with an error that says so.
func TestNoPort(t *testing.T) {
	looptest.Run(t, func(s *looptest.Script) {
		s.Set(looptest.Fail("rdma_resolve_addr", 1, syscall.EADDRNOTAVAIL))
		assert.ErrorIs(t, lifeOfConnection(t, testDevice(t)), fabric.ErrNoPort)
		s.Set()
		assert.NilError(t, lifeOfConnection(t, testDevice(t)))
	})
}
