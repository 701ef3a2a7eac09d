package cverbs

import (
	"errors"
	"sync"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// Closing a parent early returns ErrInUse and names the children. Every object closes exactly once,
// in any order in which children come first.
func TestCloseOrder(t *testing.T) {
	ctx := openDevice(t)
	ch, err := ctx.CreateCompChannel()
	assert.NilError(t, err)
	cq, err := ctx.CreateCQ(8, ch, 0)
	assert.NilError(t, err)
	pd, err := ctx.AllocPD()
	assert.NilError(t, err)
	qp, err := pd.CreateQP(QPInit{SendCQ: cq, RecvCQ: cq, Cap: defaultCap})
	assert.NilError(t, err)
	mr, err := pd.RegMR(make([]byte, 8), 0)
	assert.NilError(t, err)

	for _, c := range []struct {
		v    closer
		want string
	}{
		{ctx, "close Context: in use by 1 PD, 1 CompChannel, 1 CQ"},
		{ch, "close CompChannel: in use by 1 CQ"},
		{cq, "close CQ: in use by 1 QP"},
		{pd, "close PD: in use by 1 MR, 1 QP"},
	} {
		err := c.v.Close()
		isErr(t, err, ErrInUse)
		assert.ErrorContains(t, err, c.want)
	}
	for _, v := range []closer{qp, mr, pd, cq, ch} {
		assert.NilError(t, v.Close())
		assert.Equal(t, v.Close(), ErrClosed, "%T", v)
	}
	for name, f := range map[string]func() error{
		"poll":   func() error { _, err := cq.Poll(make([]WC, 1)); return err },
		"arm":    func() error { return cq.Arm(false) },
		"resize": func() error { return cq.Resize(10) },
		"wait":   func() error { _, err := ch.Wait(time.Time{}); return err },
		"send":   func() error { _, err := qp.PostSend(make([]SendWR, 1), nil); return err },
		"recv":   func() error { _, err := qp.PostRecv(make([]RecvWR, 1), nil); return err },
		"modify": func() error { return qp.ToError() },
		"query":  func() error { _, err := qp.Query(); return err },
		"mr":     func() error { _, err := pd.RegMR(make([]byte, 1), 0); return err },
		"cq":     func() error { _, err := ctx.CreateCQ(4, ch, 0); return err },
		"qp":     func() error { _, err := pd.CreateQP(QPInit{SendCQ: cq, RecvCQ: cq}); return err },
	} {
		assert.Assert(t, errors.Is(f(), ErrClosed), "%s: %v", name, f())
	}
}

// The zero value of an object is a closed object, not a crash.
func TestZeroValues(t *testing.T) {
	openDevice(t)
	var cq CQ
	_, err := cq.Poll(make([]WC, 1))
	assert.Equal(t, err, ErrClosed)
	var qp QP
	_, err = qp.PostSend(make([]SendWR, 1), nil)
	assert.Equal(t, err, ErrClosed)
	var pd PD
	_, err = pd.RegMR(make([]byte, 1), 0)
	isErr(t, err, ErrClosed)
	_, err = (*PD)(nil).CreateWQ(WQInit{CQ: &cq, MaxWR: 1, MaxSGE: 1})
	isErr(t, err, ErrClosed)
	for _, v := range []closer{&cq, &qp, &pd, &MR{}, &MW{}, &AH{}, &SRQ{}, &CMID{}} {
		assert.Equal(t, v.Close(), ErrClosed, "%T", v)
	}
}

func TestQPBadInput(t *testing.T) {
	ctx, other := openDevice(t), openDevice(t)
	pd := closing[*PD](t)(ctx.AllocPD())
	cq := closing[*CQ](t)(ctx.CreateCQ(4, nil, 0))
	foreign := closing[*CQ](t)(other.CreateCQ(4, nil, 0))
	for _, c := range []struct {
		init QPInit
		want string
	}{
		{QPInit{RecvCQ: cq}, "SendCQ is nil"},
		{QPInit{SendCQ: cq}, "RecvCQ is nil"},
		{QPInit{SendCQ: cq, RecvCQ: foreign}, "not of one device context"},
		{QPInit{SendCQ: cq, RecvCQ: cq, Cap: QPCap{MaxSendWR: 1 << 31}}, "MaxSendWR"},
		{QPInit{SendCQ: cq, RecvCQ: cq, Cap: QPCap{MaxSendWR: 1 << 30}}, "MaxQPWR"},
		{QPInit{SendCQ: cq, RecvCQ: cq, Cap: QPCap{MaxSendWR: 1, MaxSendSGE: 1000}}, "MaxSGE"},
	} {
		_, err := pd.CreateQP(c.init)
		isErr(t, err, syscall.EINVAL)
		assert.ErrorContains(t, err, c.want)
	}
	_, err := (*CMID)(nil).CreateQP(pd, QPInit{SendCQ: cq, RecvCQ: cq})
	isErr(t, err, ErrClosed)
	qp := closing[*QP](t)(pd.CreateQP(QPInit{SendCQ: cq, RecvCQ: cq, Cap: defaultCap}))
	assert.Assert(t, qp.Cap().MaxSendWR >= defaultCap.MaxSendWR && qp.Cap().MaxInline >= defaultCap.MaxInline)
	err = qp.ToRTS(QPAttr{})
	isErr(t, err, syscall.EINVAL)
	assert.ErrorContains(t, err, "in RESET, which does not go to RTS: ToInit, ToRTR first")
}

// While objects are closed, other goroutines post, poll, arm and wait. Their calls end with
// ErrClosed, and nothing breaks.
func TestConcurrentClose(t *testing.T) {
	ctx := openDevice(t)
	for i := range 20 {
		ch := closing[*CompChannel](t)(ctx.CreateCompChannel())
		cq := closing[*CQ](t)(ctx.CreateCQ(256, ch, 0))
		a, b := newPair(t, ctx, func(i *QPInit) { i.SendCQ, i.RecvCQ = cq, cq })
		var wg sync.WaitGroup
		until := func(f func() error) {
			wg.Go(func() {
				for {
					if err := f(); err != nil && !errors.Is(err, syscall.ENOMEM) {
						assert.Check(t, errors.Is(err, ErrClosed), "%v", err)
						return
					}
				}
			})
		}
		for range 2 {
			wc := make([]WC, 8)
			until(func() error { _, err := cq.Poll(wc); return err })
		}
		until(func() error { return cq.Arm(false) })
		until(func() error { _, err := ch.Wait(time.Time{}); return err })
		sends, sges := []SendWR{{Opcode: OpSend, Flags: SendSignaled, NumSGE: 1}}, []SGE{a.sge(0, 8)}
		until(func() error { _, err := a.qp.PostSend(sends, sges); return err })
		rs := []SGE{b.sge(0, 8)}
		until(func() error { _, err := b.qp.PostRecv([]RecvWR{{NumSGE: 1}}, rs); return err })
		time.Sleep(time.Duration(i) * time.Millisecond)
		for range 3 { // one of the three Closes succeeds
			for _, v := range []closer{a.qp, b.qp} {
				wg.Go(func() {
					err := v.Close()
					assert.Check(t, err == nil || err == ErrClosed, "%v", err)
				})
			}
		}
		for cq.Close() != nil { // the queue is in use until both queue pairs are closed
			time.Sleep(time.Millisecond)
		}
		assert.NilError(t, ch.Close())
		wg.Wait()
	}
}

// While a parent is closed, another goroutine creates a child: either the creation or the Close is
// refused.
func TestCloseAgainstCreate(t *testing.T) {
	ctx := openDevice(t)
	for range 50 {
		pd, err := ctx.AllocPD()
		assert.NilError(t, err)
		var mr *MR
		var regErr error
		var wg sync.WaitGroup
		wg.Go(func() { mr, regErr = pd.RegMR(make([]byte, 100), 0) })
		err = pd.Close()
		wg.Wait()
		if err != nil {
			isErr(t, err, ErrInUse)
			assert.NilError(t, regErr)
			assert.NilError(t, mr.Close())
			assert.NilError(t, pd.Close())
		} else if regErr == nil {
			t.Fatal("a region of a closed domain")
		} else {
			isErr(t, regErr, ErrClosed)
		}
	}
}
