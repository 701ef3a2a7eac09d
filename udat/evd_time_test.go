package udat_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
	"github.com/godat/godat/udat/internal/rule"
)

// inFakeTime runs a test on mem0 in virtual time, which passes only while all goroutines wait.
func inFakeTime(t *testing.T, test func(t *testing.T, dev string)) {
	t.Run("mem0", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { test(t, "mem0") })
	})
}

// took checks how long a call lasts, to the nanosecond.
func took(t *testing.T, want time.Duration, call func()) {
	t.Helper()
	start := time.Now()
	call()
	assert.Equal(t, time.Since(start), want)
}

// TestWaitTimeouts shows that a Wait lasts exactly as long as requested, to the microsecond,
// counted from the call, even if events come that are too few for its threshold.
func TestWaitTimeouts(t *testing.T) {
	inFakeTime(t, func(t *testing.T, dev string) {
		ia := open(t, dev)
		for _, k := range kinds {
			evd, err := ia.CreateEVD(8, k.streams, nil)
			assert.NilError(t, err)
			for _, timeout := range []time.Duration{0, time.Nanosecond, time.Microsecond, 1500 * time.Microsecond, time.Hour} {
				took(t, timeout, func() {
					_, _, err := evd.Wait(timeout, 1)
					assert.ErrorIs(t, err, udat.ErrTimeoutExpired)
				})
				ctx, cancel := context.WithTimeout(t.Context(), timeout)
				took(t, timeout, func() {
					_, _, err := evd.WaitContext(ctx, 1)
					assert.ErrorIs(t, err, udat.ErrTimeoutExpired)
				})
				cancel()
			}
			rule.Proves(t, "EVD-WAIT-06", "EVD-WAIT-07", "EVD-WAIT-08")
			for range 3 {
				time.AfterFunc(300*time.Millisecond, func() { soft(t, evd, 0) })
				time.AfterFunc(900*time.Millisecond, func() { soft(t, evd, 1) })
				took(t, time.Second, func() {
					_, nmore, err := evd.Wait(time.Second, 5)
					assert.ErrorIs(t, err, udat.ErrTimeoutExpired)
					assert.Equal(t, nmore, 2)
				})
				next(t, evd)
				next(t, evd)
			}
			rule.Proves(t, "EVD-WAIT-31")
			time.AfterFunc(time.Minute, func() { soft(t, evd, 0) })
			took(t, time.Minute, func() {
				_, _, err := evd.Wait(udat.Infinite, 1)
				assert.NilError(t, err)
			})
			rule.Proves(t, "EVD-WAIT-06")
		}
	})
}

// TestWaitTimeoutUnsignalled shows the same for completions that wake the library but not the
// Consumer. If enough events are queued when the timeout or the context's deadline passes, Wait
// returns one.
func TestWaitTimeoutUnsignalled(t *testing.T) {
	inFakeTime(t, func(t *testing.T, dev string) {
		a, b := pair(t, dev, withFlags(udat.CompletionUnsignalled, 0))
		for _, wait := range []func(time.Duration) (udat.Event, int, error){
			func(d time.Duration) (udat.Event, int, error) { return b.recv.Wait(d, 1) },
			func(d time.Duration) (udat.Event, int, error) {
				ctx, cancel := context.WithTimeout(t.Context(), d)
				defer cancel()
				return b.recv.WaitContext(ctx, 1)
			},
		} {
			b.receive(udat.CompletionUnsignalled, 0, 1, 2)
			for i := range udat.Cookie(3) {
				time.AfterFunc(time.Duration(i+1)*300*time.Millisecond, func() { a.ep.PostSend(a.iov(0, 8), i, 0) })
			}
			took(t, time.Second, func() {
				ev, nmore, err := wait(time.Second)
				assert.NilError(t, err)
				assert.Equal(t, ev.Cookie, udat.Cookie(0))
				assert.Equal(t, nmore, 2)
			})
			rule.Proves(t, "EVD-WAIT-31", "EVD-WAIT-09", "EVD-22")
			next(t, b.recv)
			next(t, b.recv)
			took(t, time.Millisecond, func() { // the earlier wait has no effect
				_, _, err := wait(time.Millisecond)
				assert.ErrorIs(t, err, udat.ErrTimeoutExpired)
			})
		}
	})
}

// TestWaitWakesAtOnce shows that events of every stream wake a waiter at once.
func TestWaitWakesAtOnce(t *testing.T) {
	inFakeTime(t, func(t *testing.T, dev string) {
		all := udat.EVDDefault | udat.EVDSoftware
		a, b := newEnd(t, dev, setup{unkept: true}), newEnd(t, dev, setup{streams: all, unkept: true})
		connect(t, a, b)
		b.receive(0, 1)
		after := func(do func()) {
			t.Helper()
			time.AfterFunc(time.Second, do)
			took(t, time.Second, func() {
				_, _, err := b.recv.Wait(udat.Infinite, 1)
				assert.NilError(t, err)
			})
		}
		after(func() { a.ep.PostSend(a.iov(0, 8), 0, 0) })
		after(func() { soft(t, b.recv, 0) })
		after(func() { a.ep.Disconnect(udat.CloseAbrupt) })
		rule.Proves(t, "EVD-26", "EVD-20", "EVD-POSTSE-02")
	})
}

func TestCNOWaitTimeouts(t *testing.T) {
	inFakeTime(t, func(t *testing.T, dev string) {
		ia := open(t, dev)
		cno := newCNO(t, ia, nil)
		evd := softEVD(t, ia, cno)
		for _, timeout := range []time.Duration{0, time.Microsecond, time.Hour} {
			took(t, timeout, func() {
				_, err := cno.Wait(timeout)
				assert.ErrorIs(t, err, udat.ErrQueueEmpty)
			})
		}
		time.AfterFunc(time.Minute, func() { soft(t, evd, 0) })
		took(t, time.Minute, func() {
			got, err := cno.Wait(udat.Infinite)
			assert.NilError(t, err)
			assert.Equal(t, got, evd)
		})
		rule.Proves(t, "CNO-WAIT-01", "CNO-WAIT-02")
	})
}
