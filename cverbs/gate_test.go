//go:build linux && cgo && gateprobe

package cverbs

import (
	"errors"
	"io"
	"os"
	"runtime"
	"runtime/pprof"
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

// eachBarrier runs f twice: with membarrier, and with a barrier in each call.
func eachBarrier(t *testing.T, f func(*testing.T)) {
	for name, fences := range map[string]bool{"membarrier": false, "fences": true} {
		t.Run(name, func(t *testing.T) {
			was := setFences(fences)
			defer setFences(was)
			if was && !fences {
				t.Skip("this kernel refuses membarrier")
			}
			f(t)
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
	eachBarrier(t, func(t *testing.T) {
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
	})
}

// On every processor a call stores the gate's address before it loads the gate. The test needs two
// processors to find a violation.
func TestGateOrder(t *testing.T) {
	rounds := 1000000
	if testing.Short() {
		rounds = 300000
	}
	eachBarrier(t, func(t *testing.T) { assert.Equal(t, gateLitmus(rounds), uint64(0)) })
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

// A thread that ends frees its cv_user for another thread.
func TestGateThreads(t *testing.T) {
	ctx, _ := openLoop(t)
	cq := closing[*CQ](t)(ctx.CreateCQ(1, nil, 0))
	for range 200 {
		done := make(chan bool)
		go func() {
			defer close(done)
			runtime.LockOSThread() // never unlocked, so that the thread ends with the goroutine
			_, err := cq.Poll(make([]WC, 1))
			assert.Check(t, err)
		}()
		<-done
	}
	assert.Assert(t, gateUsers() < 100, "%d users", gateUsers())
}

// Two threads that run at the same time have different cv_users.
func TestGateThreadsAtOnce(t *testing.T) {
	ctx, _ := openLoop(t)
	cq := closing[*CQ](t)(ctx.CreateCQ(1, nil, 0))
	const threads = 200
	var here sync.WaitGroup
	here.Add(threads)
	users := make(chan uintptr, threads)
	for range threads {
		go func() {
			runtime.LockOSThread() // the thread ends with the goroutine
			_, err := cq.Poll(make([]WC, 1))
			assert.Check(t, err)
			users <- gateUser()
			here.Done()
			here.Wait()
		}()
	}
	seen := map[uintptr]bool{}
	for range threads {
		u := <-users
		assert.Assert(t, u != 0 && !seen[u], "a user of two threads")
		seen[u] = true
	}
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

// PollSpin polls an empty queue polls times, and a queue with a completion once.
func TestPollSpin(t *testing.T) {
	ctx, pd := openLoop(t)
	cq, qp := flushing(t, ctx, pd)
	defer func() { assert.Check(t, errors.Join(qp.Close(), cq.Close())) }()
	polled := func(polls, want int) (taken uint64) {
		t.Helper()
		before := countPolls(cq)
		n, err := cq.PollSpin(make([]WC, 4), polls)
		assert.NilError(t, err)
		assert.Equal(t, n, want)
		return countPolls(cq) - before
	}
	for _, polls := range []int{1, 2, 100, MaxPolls} {
		assert.Equal(t, polled(polls, 0), uint64(polls))
		wrs := make([]SendWR, 3)
		for i := range wrs {
			wrs[i] = SendWR{Opcode: OpSend, Flags: SendSignaled}
		}
		_, err := qp.PostSend(wrs, nil)
		assert.NilError(t, err)
		assert.Equal(t, polled(polls, 3), uint64(1))
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
