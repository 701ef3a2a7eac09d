//go:build linux && cgo

package cverbs

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// openLoop opens the loop device, on which a queue pair in ERR flushes requests at once. It skips
// the test on other devices.
func openLoop(t testing.TB) (*Context, *PD) {
	t.Helper()
	if os.Getenv("GODAT_TEST_DEVICE") != "loop0" {
		t.Skip("needs the loop device: lab/loopdev/loop.sh")
	}
	ctx := openDevice(t)
	return ctx, closing[*PD](t)(ctx.AllocPD())
}

// flushing creates a queue pair in the state ERR: posted requests complete at once.
func flushing(t testing.TB, ctx *Context, pd *PD) (*CQ, *QP) {
	cq, err := ctx.CreateCQ(128, nil, 0)
	assert.NilError(t, err)
	limits := QPCap{MaxSendWR: 32, MaxRecvWR: 32, MaxSendSGE: 1, MaxRecvSGE: 1}
	qp, err := pd.CreateQP(QPInit{SendCQ: cq, RecvCQ: cq, Cap: limits})
	assert.NilError(t, err)
	assert.NilError(t, errors.Join(qp.ToInit(1, 0), qp.ToError()))
	return cq, qp
}

// hammer runs f again and again in n goroutines, until f returns ErrClosed.
func hammer(t *testing.T, wg *sync.WaitGroup, n int, f func() error) {
	for range n {
		wg.Go(func() {
			for {
				err := f()
				if errors.Is(err, ErrClosed) {
					return
				}
				assert.Check(t, err == nil || errors.Is(err, syscall.ENOMEM), "%v", err)
			}
		})
	}
}

// No call is inside an object when it is destroyed: an access to freed memory fails the test,
// most surely with -asan. There are more goroutines than processors, so that calls are interrupted
// anywhere.
func TestGateStress(t *testing.T) {
	rounds := 3000
	if testing.Short() {
		rounds = 300
	}
	ctx, pd := openLoop(t)
	for i := range rounds {
		cq, qp := flushing(t, ctx, pd)
		var posts, polls sync.WaitGroup
		wrs, sges := make([]SendWR, 16), make([]SGE, 1)
		for i := range wrs {
			wrs[i] = SendWR{Opcode: OpSend, Flags: SendSignaled, NumSGE: 1}
		}
		hammer(t, &posts, 3, func() error { _, err := qp.PostSend(wrs, sges); return err })
		hammer(t, &posts, 1, func() error { _, err := qp.PostRecv([]RecvWR{{}}, nil); return err })
		for range 2 {
			wc := make([]WC, 16)
			hammer(t, &polls, 1, func() error { _, err := cq.Poll(wc); return err })
		}
		extended, err := ctx.CreateCQEx(CQInit{Depth: 8})
		assert.NilError(t, err)
		more := make([]WCEx, 8)
		hammer(t, &polls, 1, func() error { _, err := extended.PollEx(more, 1); return err })
		time.Sleep(time.Duration(i%7) * 10 * time.Microsecond)
		assert.NilError(t, qp.Close())
		runtime.Gosched()
		assert.NilError(t, errors.Join(cq.Close(), extended.Close()))
		posts.Wait()
		polls.Wait()
	}
}

// The gates and polls in C, from threads of C: testdata/gate. There each thread's barrier is tried
// too, which kernels without membarrier need.
func TestGateInC(t *testing.T) {
	needCompiler(t)
	program, rounds := filepath.Join(t.TempDir(), "gate"), "1000000"
	if testing.Short() {
		rounds = "300000"
	}
	sources, err := filepath.Glob("*.c")
	assert.NilError(t, err)
	sources = slices.DeleteFunc(sources, func(name string) bool { return name == "gate.c" }) // the program includes it
	output(t, "cc", slices.Concat([]string{"-O2", "-I.", "-o", program, "testdata/gate/main.c"}, sources,
		[]string{"-pthread", "-ldl"})...)
	output(t, program, rounds)
}

// A failed destroy leaves the gate open.
func TestGateReopens(t *testing.T) {
	ctx, _ := openLoop(t)
	cq, err := ctx.CreateCQ(1, nil, 0)
	assert.NilError(t, err)
	failed := errors.New("failed")
	assert.Equal(t, cq.life.close(nil, func() error {
		return cq.gate.destroy(func() error {
			_, err := cq.Poll(make([]WC, 1))
			assert.Equal(t, err, ErrClosed)
			return failed
		})
	}), failed)
	_, err = cq.Poll(make([]WC, 1))
	assert.NilError(t, err)
	assert.NilError(t, cq.Close())
}

// Garbage collections, profiling signals and moving stacks interrupt calls; no completion is lost
// or invented.
func TestCallsAmidTheRuntime(t *testing.T) {
	assert.NilError(t, pprof.StartCPUProfile(io.Discard))
	defer pprof.StopCPUProfile()
	var stop atomic.Bool
	var wg sync.WaitGroup
	ctx, pd := openLoop(t)
	for range 2 * runtime.GOMAXPROCS(0) {
		cq, qp := flushing(t, ctx, pd)
		wg.Go(func() {
			for i := uint64(0); !stop.Load(); i++ {
				postAndPoll(t, qp, cq, i, int(i%40))
			}
			assert.Check(t, qp.Close())
			assert.Check(t, cq.Close())
		})
	}
	rounds := 1000
	if testing.Short() {
		rounds = 50
	}
	for range rounds {
		runtime.GC()
	}
	stop.Store(true)
	wg.Wait()
}

// postAndPoll passes C arguments that are on a stack that grows with depth.
func postAndPoll(t *testing.T, qp *QP, cq *CQ, id uint64, depth int) {
	var room [256]byte
	if depth > 0 {
		postAndPoll(t, qp, cq, id, depth-1)
		runtime.KeepAlive(room[:])
		return
	}
	wrs, sges, wc := [1]SendWR{{ID: id, Opcode: OpSend, Flags: SendSignaled, NumSGE: 1}}, [1]SGE{}, [4]WC{}
	n, err := qp.PostSend(wrs[:], sges[:])
	assert.Check(t, n == 1 && err == nil, "%d, %v", n, err)
	n, err = cq.Poll(wc[:])
	assert.Check(t, n == 1 && err == nil && wc[0].ID == id, "%d, %v, request %d instead of %d", n, err, wc[0].ID, id)
}

// PollSpin passes the number of polls to C: an empty queue is polled so often (TestGateInC counts),
// and MaxPolls polls of at least a nanosecond each take that time.
func TestPollSpin(t *testing.T) {
	ctx, pd := openLoop(t)
	cq, qp := flushing(t, ctx, pd)
	defer func() { assert.Check(t, errors.Join(qp.Close(), cq.Close())) }()
	for range 20 {
		begun := time.Now()
		n, err := cq.PollSpin(make([]WC, 4), MaxPolls)
		took := time.Since(begun)
		assert.Assert(t, n == 0 && err == nil && took > MaxPolls*time.Nanosecond, "%d, %v, %v", n, err, took)
	}
	for _, polls := range []int{1, 100, MaxPolls} {
		wrs := make([]SendWR, 3)
		for i := range wrs {
			wrs[i] = SendWR{Opcode: OpSend, Flags: SendSignaled}
		}
		_, err := qp.PostSend(wrs, nil)
		assert.NilError(t, err)
		n, err := cq.PollSpin(make([]WC, 4), polls)
		assert.Assert(t, n == 3 && err == nil, "%d, %v", n, err)
	}
	for _, polls := range []int{0, -1, MaxPolls + 1} {
		_, err := cq.PollSpin(make([]WC, 4), polls)
		assert.ErrorIs(t, err, syscall.EINVAL)
		assert.ErrorContains(t, err, "polls")
	}
	n, err := cq.PollSpin(nil, 7)
	assert.Assert(t, n == 0 && err == nil, "%d, %v", n, err)
}

// A completion that arrives during PollSpin is returned by that call or by the next one.
func TestPollSpinAmid(t *testing.T) {
	ctx, pd := openLoop(t)
	cq, qp := flushing(t, ctx, pd)
	defer func() { assert.Check(t, errors.Join(qp.Close(), cq.Close())) }()
	const rounds = 2000
	next := make(chan uint64)
	go func() {
		for id := range next {
			_, err := qp.PostSend([]SendWR{{ID: id, Opcode: OpSend, Flags: SendSignaled}}, nil)
			assert.Check(t, err)
		}
	}()
	defer close(next)
	wc := make([]WC, 2)
	for id := range uint64(rounds) {
		next <- id
		for n := 0; n == 0; {
			var err error
			n, err = cq.PollSpin(wc, MaxPolls)
			assert.Assert(t, n <= 1 && err == nil, "%d, %v", n, err)
		}
		assert.Equal(t, wc[0].ID, id)
	}
}
