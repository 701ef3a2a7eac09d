//go:build linux && cgo

package cverbs

import (
	"bytes"
	"fmt"
	"runtime"
	"syscall"
	"testing"

	"gotest.tools/v3/assert"
)

// One Run posts to all queues, in order, and polls.
func TestTurn(t *testing.T) {
	ctx := openDevice(t)
	const pairs, each = 5, 3
	var a, b [pairs]*end
	for i := range pairs {
		a[i], b[i] = newPair(t, ctx)
	}
	var turn Turn
	for range 3 { // a turn can be used again
		for i := range pairs {
			for k := range each {
				turn.PostRecv(b[i].qp, []RecvWR{{ID: uint64(10*i + k), FirstSGE: 1, NumSGE: 1}},
					[]SGE{{}, b[i].sge(100*k, 100)})
				copy(a[i].buf[100*k:], fmt.Sprintf("pair %d message %d", i, k))
				turn.PostSend(a[i].qp, []SendWR{{ID: uint64(10*i + k), Opcode: OpSend, Flags: SendSignaled, FirstSGE: 1,
					NumSGE: 1}}, []SGE{{}, a[i].sge(100*k, 18)})
				if i == 0 {
					runtime.GC() // must not free the posted memory
				}
			}
			clear(b[i].buf)
		}
		assert.Equal(t, turn.Len(), 2*pairs*each)
		var wcs [each + 1]WC
		got, err := turn.Run(a[0].scq, wcs[:], MaxPolls)
		assert.NilError(t, err)
		assert.Equal(t, turn.Refused(), 0)
		for i := range 2 * pairs * each {
			n, err := turn.Posted(i)
			assert.NilError(t, err)
			assert.Equal(t, n, 1)
		}
		for got < each { // only polls: nothing is posted twice
			n, err := turn.Run(a[0].scq, wcs[got:], MaxPolls)
			assert.NilError(t, err)
			got += n
		}
		assert.Equal(t, got, each)
		for k := range each {
			assert.Equal(t, wcs[k].ID, uint64(k))
		}
		for i := range pairs {
			if i > 0 {
				poll(t, a[i].scq, each)
			}
			for k, wc := range poll(t, b[i].rcq, each) {
				assert.Equal(t, wc.ID, uint64(10*i+k))
				assert.Assert(t, bytes.HasPrefix(b[i].buf[100*k:], fmt.Appendf(nil, "pair %d message %d", i, k)))
			}
			assert.Equal(t, len(pollOnce(t, b[i].rcq)), 0)
		}
	}
	turn.Reset() // before Run a post has no result, not even that of an earlier post with the same index
	turn.PostRecv(b[0].qp, []RecvWR{{}}, nil)
	_, err := turn.Posted(0)
	assert.ErrorContains(t, err, "the turn has run 0 posts")
}

func pollOnce(t *testing.T, cq *CQ) []WC {
	var wcs [4]WC
	n, err := cq.Poll(wcs[:])
	assert.NilError(t, err)
	return wcs[:n]
}

// A refused post returns the error that a single post would return, and does not stop the other
// posts.
func TestTurnRefused(t *testing.T) {
	ctx := openDevice(t)
	a, b := newPair(t, ctx)
	idle, gone := newEnd(t, ctx), newEnd(t, ctx)
	assert.NilError(t, gone.qp.Close())
	good := SendWR{Opcode: OpRDMAWrite, Flags: SendSignaled, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()}
	var turn Turn
	_, err := turn.Posted(0)
	assert.ErrorContains(t, err, "there is no result 0")

	post := func(q *QP, wrs ...SendWR) func() (int, error) {
		turn.PostSend(q, wrs, nil)
		return func() (int, error) { return q.PostSend(wrs, nil) }
	}
	alone := []func() (int, error){
		post(gone.qp, good), post(idle.qp, good), post(nil, good), post(gone.qp), post(a.qp),
	}
	bad := good
	bad.NumSGE = 1
	turn.PostSend(a.qp, []SendWR{good, bad, good}, nil)
	turn.PostRecv(gone.qp, []RecvWR{{}}, nil)
	turn.PostRecv(b.qp, []RecvWR{{NumSGE: 1 << 20}}, make([]SGE, 1<<20))
	turn.PostSRQRecv(nil, []RecvWR{{}}, nil)
	last := good
	last.ID = 7
	turn.PostSend(a.qp, []SendWR{last}, nil)
	_, err = turn.Posted(9)
	assert.ErrorContains(t, err, "there is no result 9: the turn has run 0 posts")
	_, err = turn.Run(nil, nil, 1)
	assert.NilError(t, err)

	assert.Equal(t, turn.Refused(), 8)
	_, err = turn.Run(nil, nil, 1)
	assert.NilError(t, err)
	assert.Equal(t, turn.Refused(), 8) // of the last Run that posted
	for i, f := range alone {
		_, want := f()
		n, err := turn.Posted(i)
		assert.Equal(t, n, 0)
		if want == nil {
			assert.NilError(t, err)
			continue
		}
		assert.Error(t, err, want.Error())
	}
	n, err := turn.Posted(5)
	assert.Equal(t, n, 1)
	assert.ErrorIs(t, err, syscall.EINVAL)
	assert.ErrorContains(t, err, "request 1: segments 0 to 1 are not among the 0 given")
	_, err = turn.Posted(6)
	assert.ErrorIs(t, err, ErrClosed)
	_, err = turn.Posted(7)
	assert.ErrorContains(t, err, "1048576 segments, the queue takes")
	_, err = turn.Posted(8)
	assert.ErrorIs(t, err, ErrClosed)
	n, err = turn.Posted(9)
	assert.NilError(t, err)
	assert.Equal(t, n, 1)
	_, err = turn.Posted(10)
	assert.ErrorContains(t, err, "there is no result 10: the turn has run 10 posts")
	assert.Equal(t, poll(t, a.scq, 2)[1].ID, uint64(7))

	for _, polls := range []int{0, -1, MaxPolls + 1} {
		_, err = turn.Run(a.scq, make([]WC, 1), polls)
		assert.ErrorContains(t, err, "polls")
	}
	_, err = turn.Run(nil, make([]WC, 1), 1)
	assert.ErrorIs(t, err, ErrClosed)
	turn.PostSend(a.qp, []SendWR{good}, nil)
	assert.Equal(t, turn.Len(), 1) // the turn was reset
	turn.Reset()
	assert.Equal(t, turn.Len(), 0)
}

// Receives of a shared queue are posted by a turn, too.
func TestTurnSRQ(t *testing.T) {
	ctx := openDevice(t)
	notOnLoop(t, ctx)
	pd := closing[*PD](t)(ctx.AllocPD())
	srq := closing[*SRQ](t)(pd.CreateSRQ(SRQInit{MaxWR: 8, MaxSGE: 1}))
	a, b := newPair(t, ctx, func(i *QPInit) { i.SRQ = srq })
	var turn Turn
	turn.PostSRQRecv(srq, []RecvWR{{ID: 1}, {ID: 2}}, nil)
	turn.PostSend(a.qp, []SendWR{{Opcode: OpSend, Flags: SendSignaled}, {Opcode: OpSend, Flags: SendSignaled}}, nil)
	_, err := turn.Run(nil, nil, 1)
	assert.NilError(t, err)
	for i, wc := range poll(t, b.rcq, 2) {
		assert.Equal(t, wc.ID, uint64(1+i))
	}
	poll(t, a.scq, 2)
}

func TestTurnAllocatesNothing(t *testing.T) {
	a, b := newPair(t, openDevice(t))
	wrs := []SendWR{{Opcode: OpRDMAWrite, Flags: SendSignaled, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey(), NumSGE: 1}}
	sges := []SGE{a.sge(0, 8)}
	wcs := make([]WC, 1)
	var turn Turn
	turns := func() {
		turn.PostSend(a.qp, wrs, sges)
		for n := 0; n == 0; {
			var err error
			n, err = turn.Run(a.scq, wcs, 100)
			assert.NilError(t, err)
		}
	}
	turns()
	assert.Equal(t, testing.AllocsPerRun(100, turns), 0.0)
}
