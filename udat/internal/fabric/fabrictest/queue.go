package fabrictest

import (
	"errors"
	"os"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/assert/cmp"

	"github.com/godat/godat/udat/internal/fabric"
)

// A call of soon returns a deadline: the time that is d from now.
func soon(d time.Duration) time.Time { return time.Now().Add(d) }

func testCQWait(t *testing.T, cfg Config) {
	n := newNode(t, cfg, fabric.Options{})
	a, b := n.pair(settings{})
	cq := b.rcq

	_, err := cq.Wait(soon(10 * time.Millisecond))
	assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
	_, err = cq.Wait(time.Unix(1, 0))
	assert.ErrorIs(t, err, os.ErrDeadlineExceeded)

	// Wake is called before Wait, and then during Wait.
	cq.Wake()
	fired, err := cq.Wait(soon(patience))
	assert.NilError(t, err)
	assert.Assert(t, !fired)
	_, err = cq.Wait(soon(10 * time.Millisecond)) // one Wake ends one Wait only
	assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
	time.AfterFunc(50*time.Millisecond, cq.Wake)
	fired, err = cq.Wait(time.Time{})
	assert.NilError(t, err)
	assert.Assert(t, !fired)

	// Without Arm a completion makes no notification. Arm makes no notification for completions
	// that are already queued.
	message := func() {
		b.recv(1, 0, 8)
		a.send(fabric.SendWR{ID: 1, Opcode: fabric.OpSend, Flags: fabric.Signaled}, 0, 8)
		awaitOne(t, a.scq, 1, fabric.StatusSuccess)
	}
	message()
	_, err = cq.Wait(soon(grace))
	assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
	assert.NilError(t, cq.Arm(false))
	_, err = cq.Wait(soon(grace))
	assert.ErrorIs(t, err, os.ErrDeadlineExceeded)

	// The queue is still armed: the next completion notifies once.
	message()
	fired, err = cq.Wait(soon(patience))
	assert.NilError(t, err)
	assert.Assert(t, fired)
	message()
	_, err = cq.Wait(soon(grace))
	assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
	wcs := make([]fabric.WC, 10)
	k, err := cq.Poll(wcs, 1)
	assert.NilError(t, err)
	assert.Equal(t, k, 3)
	k, err = cq.Poll(wcs[:0], 1)
	assert.NilError(t, err)
	assert.Equal(t, k, 0)
}

func testCQSolicited(t *testing.T, cfg Config) {
	n := newNode(t, cfg, fabric.Options{})
	if n.iwarp() {
		t.Skip("soft-iWARP does not notify of a solicited send after one that is not")
	}
	a, b := n.pair(settings{})
	send := func(flags fabric.SendFlags) {
		b.recv(1, 0, 8)
		a.send(fabric.SendWR{ID: 1, Opcode: fabric.OpSend, Flags: fabric.Signaled | flags}, 0, 8)
		awaitOne(t, a.scq, 1, fabric.StatusSuccess)
	}
	assert.NilError(t, b.rcq.Arm(true))
	send(0)
	_, err := b.rcq.Wait(soon(grace))
	assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
	send(fabric.Solicited)
	fired, err := b.rcq.Wait(soon(patience))
	assert.NilError(t, err)
	assert.Assert(t, fired)

	complete(t, b.rcq, 2)
	b.recv(2, 0, 8)
	assert.NilError(t, b.rcq.Arm(true))
	assert.NilError(t, b.qp.SetError())
	fired, err = b.rcq.Wait(soon(patience)) // an error counts as solicited
	assert.NilError(t, err)
	assert.Assert(t, fired)
}

// A queue keeps its completions when it grows.
func testCQResize(t *testing.T, cfg Config) {
	n := newNode(t, cfg, fabric.Options{})
	a, b := n.pair(settings{depth: 8})
	for i := range 8 {
		b.recv(uint64(i), 0, 8)
		a.send(fabric.SendWR{ID: uint64(i), Opcode: fabric.OpSend, Flags: fabric.Signaled}, 0, 8)
	}
	complete(t, a.scq, 8)
	depth := b.rcq.Depth()
	err := b.rcq.Resize(4 * depth)
	if errors.Is(err, fabric.ErrNotSupported) {
		t.Skip("the device cannot resize a completion queue")
	}
	assert.NilError(t, err)
	assert.Assert(t, b.rcq.Depth() >= 4*depth)
	for i, wc := range complete(t, b.rcq, 8) {
		assert.Equal(t, wc.ID, uint64(i))
	}
	assert.ErrorIs(t, b.rcq.Resize(0), fabric.ErrInvalid)
	exchange(a, b)
}

// Close of an object that other objects use returns ErrInUse, and the object still works.
func testInUse(t *testing.T, cfg Config) {
	n := newNode(t, cfg, fabric.Options{})
	a, b := n.pair(settings{})
	for _, c := range []closer{a.scq, b.rcq, n.pd, n.dev} {
		assert.ErrorIs(t, c.Close(), fabric.ErrInUse)
	}
	exchange(a, b)
}

// Every method of a closed object returns ErrClosed.
func testClosed(t *testing.T, cfg Config) {
	n := newNode(t, cfg, fabric.Options{})
	a, _ := n.pair(settings{})
	assert.NilError(t, a.conn.Close())
	assert.NilError(t, a.qp.Close())
	closed := func(err error) {
		t.Helper()
		assert.ErrorIs(t, err, fabric.ErrClosed)
	}
	closed(a.qp.Close())
	closed(a.qp.SetError())
	_, err := a.qp.PostRecv([]fabric.RecvWR{{}}, nil)
	closed(err)
	_, err = a.qp.PostSend([]fabric.SendWR{{Opcode: fabric.OpSend}}, nil)
	closed(err)

	ended := make(chan error)
	go func() {
		_, err := a.scq.Wait(time.Time{})
		ended <- err
	}()
	time.Sleep(grace)
	assert.NilError(t, a.scq.Close())
	select {
	case err := <-ended:
		closed(err)
	case <-time.After(patience):
		t.Fatal("Close does not end Wait")
	}
	closed(a.scq.Close())
	closed(a.scq.Arm(false))
	a.scq.Wake()
	_, err = a.scq.Poll(make([]fabric.WC, 1), 1)
	closed(err)
	_, err = a.scq.Wait(time.Time{})
	closed(err)

	assert.NilError(t, a.mr.Close())
	closed(a.mr.Close())
	pd, err := n.dev.AllocPD()
	assert.NilError(t, err)
	assert.NilError(t, pd.Close())
	closed(pd.Close())
	_, err = pd.RegMR(make([]byte, 8), 0)
	closed(err)
}

func testBadSizes(t *testing.T, cfg Config) {
	n := newNode(t, cfg, fabric.Options{})
	a := n.dev.Attr()
	bad := func(err error) {
		t.Helper()
		assert.ErrorIs(t, err, fabric.ErrInvalid)
	}
	_, err := n.dev.CreateCQ(0)
	bad(err)
	_, err = n.dev.CreateCQ(a.MaxCQE + 1)
	bad(err)
	_, err = n.pd.RegMR(nil, 0)
	bad(err)
	if a.MaxSRQ > 0 {
		_, err = n.pd.CreateSRQ(0, 1)
		bad(err)
		_, err = n.pd.CreateSRQ(a.MaxSRQWR+1, 1)
		bad(err)
		_, err = n.pd.CreateSRQ(1, a.MaxSRQSGE+1)
		bad(err)
	}
	cq := n.newCQ(1)
	good := fabric.QPInit{PD: n.pd, SendCQ: cq, RecvCQ: cq, MaxSend: 1, MaxRecv: 1, MaxSendSGE: 1, MaxRecvSGE: 1}
	for _, spoil := range []func(*fabric.QPInit){
		func(q *fabric.QPInit) { q.PD = nil },
		func(q *fabric.QPInit) { q.SendCQ = nil },
		func(q *fabric.QPInit) { q.RecvCQ = nil },
		func(q *fabric.QPInit) { q.MaxSend = a.MaxQPWR + 1 },
		func(q *fabric.QPInit) { q.MaxRecv = -1 },
		func(q *fabric.QPInit) { q.MaxSendSGE = a.MaxSGE + 1 },
		func(q *fabric.QPInit) { q.MaxRecvSGE = a.MaxSGE + 1 },
	} {
		init := good
		spoil(&init)
		_, err := n.dev.CreateQP(init)
		bad(err)
	}
	qp, err := n.dev.CreateQP(good)
	assert.NilError(t, err)
	_, err = qp.PostRecv([]fabric.RecvWR{{NumSGE: 2}}, make([]fabric.SGE, 1)) // more segments than the slice has
	bad(err)
	assert.NilError(t, qp.Close())
}

// A device can be closed once it has no objects left. After that no objects can be created.
func testDeviceClose(t *testing.T, cfg Config) {
	dev, err := cfg.Open(fabric.Options{RNRRetry: 7, Retry: fabric.DefaultRetry}, nil)
	assert.NilError(t, err)
	pd, err := dev.AllocPD()
	assert.NilError(t, err)
	err = dev.Close()
	assert.ErrorIs(t, err, fabric.ErrInUse)
	assert.Assert(t, cmp.Regexp("1 (protection domain|PD)", err.Error())) // two names: memfabric, cverbs
	assert.NilError(t, pd.Close())
	assert.NilError(t, dev.Close())
	assert.ErrorIs(t, dev.Close(), fabric.ErrClosed)
	if _, err = dev.AllocPD(); !errors.Is(err, fabric.ErrClosed) {
		t.Errorf("AllocPD on a closed device: %v", err)
	}
	_, err = dev.CreateCQ(1)
	assert.ErrorIs(t, err, fabric.ErrClosed)
	_, err = dev.Listen(0, nil, func(fabric.Request) {})
	assert.ErrorIs(t, err, fabric.ErrClosed)
}
