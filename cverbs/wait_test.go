//go:build linux && cgo

package cverbs

import (
	"context"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/godat/godat/internal/blocker"
	"github.com/godat/godat/internal/leaktest"
)

// pipeWaiter returns a waiter on a pipe, and a try that reads one byte.
func pipeWaiter(t *testing.T) (w *waiter, write int, try func(uintptr) bool) {
	t.Helper()
	var fds [2]int
	assert.NilError(t, unix.Pipe2(fds[:], unix.O_CLOEXEC))
	t.Cleanup(func() { unix.Close(fds[0]); unix.Close(fds[1]) })
	w, err := newWaiter(fds[0], "pipe")
	assert.NilError(t, err)
	w.blocks = true
	var b [1]byte
	return w, fds[1], func(uintptr) bool { n, _ := unix.Read(fds[0], b[:]); return n == 1 }
}

func (w *waiter) once(ctx context.Context, deadline time.Time, try func(uintptr) bool) error {
	if err := w.enter(ctx, deadline); err != nil {
		return err
	}
	defer w.exit()
	return w.wait(ctx, deadline, try)
}

func TestWaiter(t *testing.T) {
	w, fd, try := pipeWaiter(t)
	isErr(t, w.once(context.Background(), time.Now().Add(5*time.Millisecond), try), os.ErrDeadlineExceeded)
	isErr(t, w.once(context.Background(), time.Unix(1, 0), try), os.ErrDeadlineExceeded)
	unix.Write(fd, []byte("x"))
	assert.NilError(t, w.once(context.Background(), time.Unix(1, 0), try), "what is there is taken after the deadline too")
	go func() {
		time.Sleep(5 * time.Millisecond)
		unix.Write(fd, []byte("x"))
	}()
	assert.NilError(t, w.once(context.Background(), time.Time{}, try))
	w.wake()
	assert.Equal(t, w.once(context.Background(), time.Time{}, try), errWoken)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	isErr(t, w.once(ctx, time.Time{}, try), context.Canceled)
	isErr(t, w.once(context.Background(), time.Now().Add(5*time.Millisecond), try), os.ErrDeadlineExceeded)
	w.close()
	isErr(t, w.once(context.Background(), time.Time{}, try), ErrClosed)
}

// A wait leaves no callback on its context: not if it succeeds, is woken or expires.
func TestWaiterLeavesContext(t *testing.T) {
	w, fd, try := pipeWaiter(t)
	defer w.close()
	cancelable, cancel := context.WithCancel(t.Context())
	defer cancel()
	ctx := leaktest.Count(cancelable)
	unix.Write(fd, []byte("x"))
	assert.NilError(t, w.once(ctx, time.Time{}, try))
	w.wake()
	assert.Equal(t, w.once(ctx, time.Time{}, try), errWoken)
	isErr(t, w.once(ctx, time.Unix(1, 0), try), os.ErrDeadlineExceeded)
	assert.Equal(t, ctx.All(), 3)
	assert.Equal(t, ctx.Callbacks(), 0)
}

// A second waiter obeys its own deadline and context while the first one holds the descriptor.
func TestWaiterTurns(t *testing.T) {
	w, _, try := pipeWaiter(t)
	first := make(chan error, 1)
	go func() { first <- w.once(context.Background(), time.Time{}, try) }()
	for len(w.gate) == 0 {
		time.Sleep(time.Millisecond)
	}
	isErr(t, w.once(context.Background(), time.Now().Add(5*time.Millisecond), try), os.ErrDeadlineExceeded)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
	defer cancel()
	isErr(t, w.once(ctx, time.Time{}, try), context.DeadlineExceeded)
	second := make(chan error, 1)
	go func() { second <- w.once(context.Background(), time.Time{}, try) }()
	time.Sleep(5 * time.Millisecond)
	w.close()
	isErr(t, <-first, ErrClosed)
	isErr(t, <-second, ErrClosed)
}

// No Wake is lost, whenever it comes while the waiter sets its deadline.
func TestWaiterWakeRace(t *testing.T) {
	w, _, try := pipeWaiter(t)
	defer w.close()
	for i := range 2000 {
		done := make(chan error, 1)
		deadline := time.Time{}
		if i%2 == 0 {
			deadline = time.Now().Add(patience)
		}
		go func() { done <- w.once(context.Background(), deadline, try) }()
		if i%3 == 0 {
			for len(w.gate) == 0 {
			}
		}
		w.wake()
		select {
		case err := <-done:
			assert.Equal(t, err, errWoken)
		case <-time.After(patience):
			t.Fatal("a wake was lost")
		}
	}
}

// No Wake and no cancellation is lost that comes just before or just after the waiter sets its
// deadline. Wake and cancellation set the deadline, too.
func TestWaiterWakeAtDeadline(t *testing.T) {
	for _, deadline := range []time.Time{{}, soon()} {
		for _, before := range []bool{true, false} {
			for _, cancelled := range []bool{true, false} {
				w, _, try := pipeWaiter(t)
				ctx, cancel := context.WithCancel(context.Background())
				end, want := w.wake, errWoken
				if cancelled {
					end, want = func() { cancel(); time.Sleep(5 * time.Millisecond) }, context.Canceled // waits for the interrupt
				}
				calls := 0
				w.setDeadline = func(d time.Time) error {
					if calls++; calls > 1 {
						return w.file.SetReadDeadline(d)
					}
					if before {
						end()
					}
					err := w.file.SetReadDeadline(d)
					if !before {
						end()
					}
					return err
				}
				done := make(chan error, 1)
				go func() { done <- w.once(ctx, deadline, try) }()
				select {
				case err := <-done:
					assert.Equal(t, err, want)
				case <-time.After(patience / 2):
					t.Errorf("lost: before %v, cancelled %v", before, cancelled)
				}
				cancel()
				w.close()
			}
		}
	}
}

func TestWaiterAllocations(t *testing.T) {
	w, fd, try := pipeWaiter(t)
	defer w.close()
	deadline := soon()
	x := []byte("x")
	assert.Equal(t, testing.AllocsPerRun(100, func() {
		unix.Write(fd, x)
		if err := w.once(context.Background(), deadline, try); err != nil {
			t.Error(err)
		}
	}), 0.0)
}

// close waits for calls in flight, keeps new ones out, and happens once.
func TestLifeClose(t *testing.T) {
	for range 200 {
		var l life
		assert.NilError(t, l.begin(kindQP))
		l.open()
		var destroyed atomic.Bool
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for l.enter() {
					if destroyed.Load() {
						t.Error("a call ran on a destroyed object")
					}
					l.leave()
				}
			})
		}
		closed := make(chan error, 3)
		for range cap(closed) {
			wg.Go(func() { closed <- l.close(nil, func() error { destroyed.Store(true); return nil }) })
		}
		wg.Wait()
		ok := 0
		for range cap(closed) {
			if err := <-closed; err == nil {
				ok++
			} else {
				assert.Equal(t, err, ErrClosed)
			}
		}
		assert.Equal(t, ok, 1)
	}
}

// If an object cannot be created because one of its parents is closed, it does not reference the
// other parents.
func TestLifeClosedParent(t *testing.T) {
	for closed := range 4 {
		var parents [4]*life
		for i := range parents {
			parents[i] = new(life)
			assert.NilError(t, parents[i].begin(kindPD))
			if i != closed {
				parents[i].open()
			}
		}
		var l life
		for range 3 {
			isErr(t, l.begin(kindQP, parents[:]...), ErrClosed)
		}
		parents[closed].open()
		assert.NilError(t, l.begin(kindQP, parents[:]...))
		for _, p := range parents {
			assert.Equal(t, p.children(kindQP), 1)
		}
		l.abort()
		for i, p := range parents {
			assert.NilError(t, p.close(nil, func() error { return nil }), "parent %d of a refused child", i)
		}
	}
}

// A failed destroy leaves the object open, and its parents referenced.
func TestLifeDestroyFails(t *testing.T) {
	var parent, l life
	assert.NilError(t, parent.begin(kindPD))
	parent.open()
	assert.NilError(t, l.begin(kindMR, &parent))
	l.open()
	busy := errors.New("busy")
	assert.Equal(t, l.close(nil, func() error { return busy }), busy)
	assert.Assert(t, l.enter())
	l.leave()
	isErr(t, parent.close(nil, nil), ErrInUse)
	assert.NilError(t, l.close(nil, func() error { return nil }))
	assert.NilError(t, parent.close(nil, func() error { return nil }))
	isErr(t, l.begin(kindMR, &parent), ErrClosed)

	var waited life // an object whose waits have been ended stays closed
	assert.NilError(t, waited.begin(kindCompChannel))
	waited.open()
	assert.Equal(t, waited.close(func() {}, func() error { return busy }), busy)
	assert.Assert(t, !waited.enter())
	isErr(t, waited.close(func() {}, nil), ErrClosed)
}

// A second Close waits for the first one. If the first one fails, the second one tries, too.
func TestLifeCloseAgain(t *testing.T) {
	for range 50 {
		var l life
		assert.NilError(t, l.begin(kindQP))
		l.open()
		busy := errors.New("busy")
		tries := 0
		destroy := func() error {
			time.Sleep(100 * time.Microsecond)
			if tries++; tries == 1 {
				return busy
			}
			return nil
		}
		closed := make(chan error, 3)
		for range cap(closed) {
			go func() { closed <- l.close(nil, destroy) }()
		}
		ends := map[error]int{}
		for range cap(closed) {
			ends[<-closed]++
		}
		assert.Assert(t, ends[busy] == 1 && ends[nil] == 1 && ends[ErrClosed] == 1, "%v", ends)
	}
}

// If the last wait blocked its thread, the next wait blocks first and then tries. If the last wait
// found its event at once, the next wait tries first, and does not block if an event is pending.
func TestWaiterTriesOnce(t *testing.T) {
	if blocker.Free() == 0 {
		t.Skip("with one processor nothing blocks")
	}
	w, fd, try := pipeWaiter(t)
	defer w.close()
	waits := func(last time.Duration) (tries int) {
		w.last = last
		time.AfterFunc(blocker.For/4, func() { unix.Write(fd, []byte("x")) })
		assert.NilError(t, w.once(context.Background(), time.Time{}, func(p uintptr) bool { tries++; return try(p) }))
		return tries
	}
	once := false
	for until := time.Now().Add(patience); !once && time.Now().Before(until); { // on a busy machine the write may be late
		once = waits(blocker.For/4) == 1
	}
	assert.Assert(t, once)
	assert.Assert(t, w.last > atOnce, "it has blocked for %v", w.last)
	for _, last := range []time.Duration{0, blocker.For} {
		assert.Assert(t, w.watch(true) == nil)
		w.last = last
		unix.Write(fd, []byte("x"))
		assert.NilError(t, w.once(context.Background(), time.Time{}, try))
		assert.Assert(t, w.watched && w.last == 0)
	}
	w.last = blocker.For / 4
	unix.Write(fd, []byte("x"))
	assert.NilError(t, w.once(context.Background(), time.Unix(1, 0), try), "it takes what is there after the deadline")
}

// While a thread is blocked, everything that ends a wait ends it at once, and Go's poller does not
// wake.
func TestWaiterBlocks(t *testing.T) {
	if blocker.Free() == 0 {
		t.Skip("with one processor nothing blocks")
	}
	free := blocker.Free()
	w, fd, try := pipeWaiter(t)
	fds := [...]unix.PollFd{1: {Fd: int32(w.fd), Events: unix.POLLIN}}
	unix.Write(fd, []byte("x"))
	assert.NilError(t, w.once(context.Background(), time.Time{}, try))
	assert.Assert(t, w.brief(), "that was a short wait")
	assert.Assert(t, w.block(context.Background(), time.Time{}))
	assert.Assert(t, !w.watched)
	assert.Equal(t, blocker.Free(), free, "the blocker is back")

	for name, end := range map[string]func(){
		"wake": w.wake, "interrupt": w.interrupt, "event": func() { unix.Write(fd, []byte("x")) },
	} {
		b := blocker.Take()
		w.blocked.Store(b)
		began := time.Now()
		go end()
		b.Wait(fds[:], patience)
		assert.Check(t, time.Since(began) < patience/2, name)
		w.blocked.Store(nil)
		b.GiveBack()
		w.woken.Store(false)
		try(0)
	}
	for until := time.Now().Add(patience); !w.watched && time.Now().Before(until); {
		done := make(chan error)
		go func() { done <- w.once(context.Background(), time.Time{}, try) }()
		time.Sleep(5 * blocker.For) // on a busy machine the wait may not have begun yet: try once more
		unix.Write(fd, []byte("x"))
		assert.NilError(t, <-done)
	}
	assert.Assert(t, w.watched, "the poller sees it again")
	b := blocker.Take()
	w.blocked.Store(b)
	go w.close()
	b.Wait(fds[:], patience)
	w.blocked.Store(nil)
	b.GiveBack()
	isErr(t, w.once(context.Background(), time.Time{}, try), ErrClosed)
}
