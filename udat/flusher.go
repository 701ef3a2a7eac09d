package udat

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/godat/godat/udat/internal/fabric"
)

// flusher has a goroutine that waits for work of an adapter that must complete although no call
// waits for it. This is the work that the device flushes after the end of a connection, and the
// requests of a graceful disconnect. The goroutine also runs the checks of the keep-alive. It runs
// only while there are tasks.
type flusher struct {
	mu      ranked[rankFlusher]
	tasks   []*flushTask
	running bool
	stopped bool
	added   chan struct{} // of capacity 1; signals that a task was added while the goroutine ran
	stop    chan struct{} // closed when the adapter is closed
	group   sync.WaitGroup
}

// flushTask is a task of the flusher: a step that is repeated until it returns true.
type flushTask struct {
	step           func() (done bool)
	pause, longest time.Duration // pause is the next pause; watch makes it double up to longest
	due            time.Time
	done           bool
}

// The pause between two calls of a step is pollMin at first, and doubles until it is pollMax.
const (
	pollMin = 50 * time.Microsecond
	pollMax = 10 * time.Millisecond
)

func newFlusher() *flusher {
	return &flusher{added: make(chan struct{}, 1), stop: make(chan struct{})}
}

// watch makes the flusher's goroutine call step repeatedly, until step returns true. The callback
// must not block, because the other tasks of the adapter would wait for it.
func (f *flusher) watch(step func() (done bool)) {
	f.add(&flushTask{step: step, pause: pollMin, longest: pollMax})
}

// The method every is like watch, but the interval between the calls of step is constant.
func (f *flusher) every(interval time.Duration, step func() (done bool)) {
	f.add(&flushTask{step: step, pause: interval, longest: interval})
}

func (f *flusher) add(t *flushTask) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stopped {
		return
	}
	t.due = time.Now().Add(t.pause)
	f.tasks = append(f.tasks, t)
	if !f.running {
		f.running = true
		f.group.Go(f.run)
		return
	}
	select {
	case f.added <- struct{}{}:
	default:
	}
}

// close ends the flusher's goroutine and drops all tasks. The caller holds no lock of the adapter.
func (f *flusher) close() {
	f.mu.Lock()
	f.stopped = true
	close(f.stop)
	f.mu.Unlock()
	f.group.Wait()
}

func (f *flusher) run() {
	timer := time.NewTimer(pollMin)
	defer timer.Stop()
	for {
		select {
		case <-f.stop:
			return
		case <-f.added:
		case <-timer.C:
		}
		f.runDue()
		next, more := f.next()
		if !more {
			return
		}
		timer.Reset(time.Until(next))
	}
}

// runDue calls the step of each task whose time has come; no lock is held during a step.
func (f *flusher) runDue() {
	f.mu.Lock()
	tasks := slices.Clone(f.tasks)
	f.mu.Unlock()
	now := time.Now()
	for _, t := range tasks {
		if t.due.After(now) {
			continue
		}
		t.done = t.step()
		if t.pause < t.longest {
			t.pause = min(2*t.pause, t.longest)
		}
		t.due = time.Now().Add(t.pause)
	}
}

// next removes the tasks whose step has returned true. The result due is the earliest time at which
// another task's step must be called. The result more is false if no task is left, and the
// goroutine must then end.
func (f *flusher) next() (due time.Time, more bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tasks = slices.DeleteFunc(f.tasks, func(t *flushTask) bool { return t.done })
	for _, t := range f.tasks {
		if due.IsZero() || t.due.Before(due) {
			due = t.due
		}
	}
	f.running = len(f.tasks) > 0
	return due, f.running
}

// pollUntil calls step, at least once, until step returns true or the deadline has passed.
func pollUntil(deadline time.Time, step func() (done bool)) {
	for pause := pollMin; !step() && !time.Now().After(deadline); pause = min(2*pause, pollMax) {
		time.Sleep(pause)
	}
}

// closeWait is how long a close waits for calls that are making or freeing objects.
const closeWait = 10 * time.Second

// closeUnused closes an object of the fabric that calls in progress may still use: it retries for
// up to closeWait while the close returns fabric.ErrInUse.
func closeUnused(close func() error) (err error) {
	pollUntil(time.Now().Add(closeWait), func() bool {
		err = close()
		return !errors.Is(err, fabric.ErrInUse)
	})
	return err
}

// flushWait is how long the device may take to flush the work of a connection that has ended.
const flushWait = 5 * time.Second
