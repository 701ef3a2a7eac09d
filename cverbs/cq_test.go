package cverbs

import (
	"context"
	"errors"
	"math"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

func TestCQSize(t *testing.T) {
	ctx := openDevice(t)
	for _, c := range []struct {
		depth, vector int
		want          string
	}{{0, 0, "depth 0"}, {-1, 0, "depth -1"}, {1 << 40, 0, "depth 1099511627776"}, {1 << 30, 0, "MaxCQE"}, {8,
		ctx.NumCompVectors(), "vector"}, {8, -1, "vector -1"}} {
		_, err := ctx.CreateCQ(c.depth, nil, c.vector)
		assert.ErrorContains(t, err, c.want)
	}
	cq := closing[*CQ](t)(ctx.CreateCQ(10, nil, 0))
	assert.Assert(t, cq.Depth() >= 10)
	if err := cq.Resize(300); !errors.Is(err, ErrNotSupported) {
		assert.NilError(t, err)
		assert.Assert(t, cq.Depth() >= 300)
	}
	assert.ErrorContains(t, cq.Resize(0), "depth 0")
	if err := cq.Resize(math.MaxInt32); errors.Is(err, syscall.EINVAL) {
		assert.ErrorContains(t, err, "depth 2147483647")
	}
	assert.ErrorContains(t, cq.Arm(false), "no channel")
	attr, err := ctx.QueryDevice()
	assert.NilError(t, err)
	if err := cq.Moderate(4, 10); err != nil || attr.MaxCQModCount == 0 {
		assert.ErrorIs(t, err, ErrNotSupported)
	}
}

// Resize below the number of queued completions fails, and loses no completion.
func TestCQResizeBelowContent(t *testing.T) {
	a, b := newPair(t, openRoCE(t))
	assert.NilError(t, a.scq.Resize(400))
	const n = 40
	for i := range n {
		a.send(SendWR{ID: uint64(i), Opcode: OpRDMAWrite, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()})
	}
	time.Sleep(100 * time.Millisecond)
	if err := a.scq.Resize(4); err == nil {
		t.Log("the device had not completed them yet, or keeps more than asked for")
	}
	for i, wc := range poll(t, a.scq, n) {
		assert.Equal(t, wc.ID, uint64(i))
	}
}

// armedPair returns a pair whose end b receives into a queue with a channel.
func armedPair(t *testing.T) (ch *CompChannel, cq *CQ, a, b *end) {
	ctx := openDevice(t)
	ch = closing[*CompChannel](t)(ctx.CreateCompChannel())
	cq = closing[*CQ](t)(ctx.CreateCQ(64, ch, 0))
	a, b = newEnd(t, ctx), newEnd(t, ctx, func(i *QPInit) { i.RecvCQ = cq })
	join(t, a, b)
	return ch, cq, a, b
}

func TestChannelWait(t *testing.T) {
	ch, cq, a, b := armedPair(t)
	n, err := ch.Wait(time.Now().Add(20 * time.Millisecond))
	assert.Assert(t, errors.Is(err, os.ErrDeadlineExceeded), "%v", err)
	assert.Equal(t, n, 0)

	assert.NilError(t, cq.Arm(false))
	woken := make(chan error, 1)
	go func() {
		n, err := ch.Wait(soon())
		if n != 1 && err == nil {
			err = errors.New("not one event")
		}
		woken <- err
	}()
	b.recv(1, b.sge(0, 8))
	a.send(SendWR{Opcode: OpSend}, a.sge(0, 8))
	assert.NilError(t, <-woken)
	assert.Assert(t, cq.Fired())
	assert.Assert(t, !cq.Fired(), "Fired is taken once")
	assert.Equal(t, poll(t, cq, 1)[0].Status, WCSuccess)

	// Without Arm there is no event. After Arm there is one event, which Wait returns even with an
	// expired deadline.
	b.recv(1, b.sge(0, 8))
	a.send(SendWR{Opcode: OpSend}, a.sge(0, 8))
	poll(t, cq, 1)
	_, err = ch.Wait(time.Now().Add(-time.Second))
	assert.Assert(t, errors.Is(err, os.ErrDeadlineExceeded), "%v", err)
	assert.NilError(t, cq.Arm(false))
	b.recv(1, b.sge(0, 8))
	a.send(SendWR{Opcode: OpSend}, a.sge(0, 8))
	a.sent()
	poll(t, cq, 1)
	time.Sleep(50 * time.Millisecond)
	failed(ch)
	n, err = ch.Wait(time.Unix(1, 0))
	assert.NilError(t, err)
	assert.Equal(t, n, 1)
}

// failed gives the channel the error of an earlier wait. It does nothing where there is no channel.
var failed = func(*CompChannel) {}

// The queue is armed for solicited completions only: an ordinary completion causes no event; a
// solicited completion and an error do.
func TestChannelSolicited(t *testing.T) {
	ch, cq, a, b := armedPair(t)
	assert.NilError(t, cq.Arm(true))
	for range 2 {
		b.recv(1, b.sge(0, 8))
	}
	a.send(SendWR{Opcode: OpSend}, a.sge(0, 8))
	poll(t, cq, 1)
	_, err := ch.Wait(time.Now().Add(50 * time.Millisecond))
	assert.Assert(t, errors.Is(err, os.ErrDeadlineExceeded), "%v", err)
	a.send(SendWR{Opcode: OpSend, Flags: SendSolicited}, a.sge(0, 8))
	iwarp := isIWARP(t, a.ctx)
	bound := soon()
	if iwarp {
		bound = time.Now().Add(2 * time.Second)
	}
	n, err := ch.Wait(bound)
	if iwarp && errors.Is(err, os.ErrDeadlineExceeded) {
		assert.Equal(t, poll(t, cq, 1)[0].Status, WCSuccess)
		t.Skip("this iWARP device makes no event for a solicited receive")
	}
	assert.NilError(t, err)
	assert.Equal(t, n, 1)
	poll(t, cq, 1)
	assert.NilError(t, cq.Arm(true))
	b.recv(1, b.sge(0, 8))
	assert.NilError(t, b.qp.ToError())
	n, err = ch.Wait(soon())
	assert.NilError(t, err)
	assert.Equal(t, n, 1)
}

// Two queues on one channel: Wait returns the number of events, Fired reports their queues.
func TestChannelTwoQueues(t *testing.T) {
	ch, cq, a, b := armedPair(t)
	other := closing[*CQ](t)(a.ctx.CreateCQ(8, ch, 0))
	assert.NilError(t, other.Arm(false))
	assert.NilError(t, cq.Arm(false))
	b.recv(1, b.sge(0, 8))
	a.send(SendWR{Opcode: OpSend}, a.sge(0, 8))
	n, err := ch.Wait(soon())
	assert.NilError(t, err)
	assert.Equal(t, n, 1)
	assert.Assert(t, !other.Fired())
	assert.Assert(t, cq.Fired())
}

// Two queues on one channel, events of both are pending: each event is acknowledged once, so that
// both queues can be destroyed. The library waits in ibv_destroy_cq for acknowledgements, and for
// ever if there are too many.
func TestChannelAcknowledgesOnce(t *testing.T) {
	ch, cq, a, b := armedPair(t)
	other := closing[*CQ](t)(a.ctx.CreateCQ(8, ch, 0))
	c, d := newEnd(t, a.ctx), newEnd(t, a.ctx, func(i *QPInit) { i.RecvCQ = other })
	join(t, c, d)
	for range 2 {
		assert.NilError(t, errors.Join(cq.Arm(false), other.Arm(false)))
		for _, pair := range [][2]*end{{a, b}, {c, d}} {
			pair[1].recv(1, pair[1].sge(0, 8))
			pair[0].send(SendWR{Opcode: OpSend}, pair[0].sge(0, 8))
		}
		poll(t, cq, 1)
		poll(t, other, 1)
		for taken := 0; taken < 2; {
			n, err := ch.Wait(soon())
			assert.NilError(t, err)
			taken += n
		}
		assert.Assert(t, cq.Fired() && other.Fired())
	}
	for _, v := range []closer{b.qp, d.qp, cq, other, ch} {
		assert.NilError(t, closeSoon(v))
	}
}

func TestChannelWake(t *testing.T) {
	ch, _, _, _ := armedPair(t)
	ch.Wake()
	ch.Wake()
	n, err := ch.Wait(time.Time{}) // the wake came before the wait
	assert.NilError(t, err)
	assert.Equal(t, n, 0)
	done := make(chan error)
	go func() {
		_, err := ch.Wait(time.Time{})
		done <- err
	}()
	time.Sleep(20 * time.Millisecond)
	ch.Wake()
	assert.NilError(t, <-done)

	ctx, cancel := context.WithCancelCause(context.Background())
	go func() {
		_, err := ch.WaitContext(ctx)
		done <- err
	}()
	time.Sleep(20 * time.Millisecond)
	reason := errors.New("enough")
	cancel(reason)
	assert.Equal(t, <-done, reason)
	_, err = ch.Wait(time.Now().Add(10 * time.Millisecond)) // the cancelled wait has no effect on the next one
	assert.Assert(t, errors.Is(err, os.ErrDeadlineExceeded), "%v", err)
}

// Close ends a blocked Wait; every later Wait fails.
func TestChannelCloseWhileWaiting(t *testing.T) {
	ctx := openDevice(t)
	ch := closing[*CompChannel](t)(ctx.CreateCompChannel())
	var wg sync.WaitGroup
	errs := make([]error, 3)
	for i := range errs {
		wg.Go(func() { _, errs[i] = ch.Wait(time.Time{}) })
	}
	time.Sleep(30 * time.Millisecond)
	assert.NilError(t, ch.Close())
	wg.Wait()
	for _, err := range errs {
		assert.Equal(t, err, ErrClosed)
	}
	assert.Equal(t, ch.Close(), ErrClosed)
	_, err := ch.Wait(time.Time{})
	assert.Equal(t, err, ErrClosed)
	ch.Wake()
}

// A channel of another context is refused.
func TestCQForeignChannel(t *testing.T) {
	ctx, other := openDevice(t), openDevice(t)
	ch := closing[*CompChannel](t)(other.CreateCompChannel())
	_, err := ctx.CreateCQ(4, ch, 0)
	assert.Assert(t, errors.Is(err, syscall.EINVAL), "%v", err)
	assert.ErrorContains(t, err, "another device context")
}
