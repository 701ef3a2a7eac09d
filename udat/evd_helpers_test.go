package udat_test

import (
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
)

// quiet is how long a test watches that nothing happens.
const quiet = 40 * time.Millisecond

// untended is longer than the interval at which an adapter polls its dispatchers.
const untended = 250 * time.Millisecond

var (
	errWaiter     = udat.WithSubtype(udat.InvalidState, udat.SubStateEVDWaiter)
	errUnwaitable = udat.WithSubtype(udat.InvalidState, udat.SubStateEVDUnwaitable)
)

// waiting is a call of Wait in another goroutine.
type waiting struct {
	evd  *udat.EVD
	done chan waited
}

type waited struct {
	ev    udat.Event
	nmore int
	err   error
}

// waitOn blocks a goroutine in Wait, and returns once it is blocked. With a timeout a lost wake-up
// is not noticed, because the call polls when the timeout expires.
func waitOn(t *testing.T, evd *udat.EVD, timeout time.Duration, threshold int) *waiting {
	t.Helper()
	return blocking(t, evd, func() (udat.Event, int, error) { return evd.Wait(timeout, threshold) })
}

func blocking(t *testing.T, evd *udat.EVD, call func() (udat.Event, int, error)) *waiting {
	t.Helper()
	w := &waiting{evd, make(chan waited, 1)}
	go func() {
		ev, nmore, err := call()
		w.done <- waited{ev, nmore, err}
	}()
	until(t, "the call blocks", func() bool {
		if len(w.done) > 0 {
			r := <-w.done
			t.Fatalf("the call did not block: %s nmore %d: %v", describe(r.ev), r.nmore, r.err)
		}
		return hasWaiter(t, evd)
	})
	return w
}

// hasWaiter reports whether a call is blocked on the dispatcher. It dequeues no event.
func hasWaiter(t *testing.T, evd *udat.EVD) bool {
	t.Helper()
	p, err := evd.Query()
	assert.NilError(t, err)
	_, _, err = evd.Wait(0, p.QLen)
	return isWaiter(err)
}

func isWaiter(err error) bool {
	e, ok := err.(*udat.Error)
	return ok && e.Type == udat.InvalidState && e.Subtype == udat.SubStateEVDWaiter
}

// result waits for the call to return.
func (w *waiting) result(t *testing.T) waited {
	t.Helper()
	select {
	case r := <-w.done:
		return r
	case <-time.After(patience):
		t.Fatal("the call is still blocked")
		panic("unreachable")
	}
}

// still checks that the call stays blocked.
func (w *waiting) still(t *testing.T) {
	t.Helper()
	select {
	case r := <-w.done:
		t.Fatalf("the call is not blocked any more: %s nmore %d: %v", describe(r.ev), r.nmore, r.err)
	case <-time.After(quiet):
	}
}

// until polls for a condition.
func until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !condition(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never true: %s", what)
		}
	}
}

// soft posts a software event.
func soft(t *testing.T, evd *udat.EVD, payload any) {
	t.Helper()
	assert.NilError(t, evd.PostSE(udat.Event{Number: udat.EventSoftware, Software: payload}))
}

// send sends n bytes with the flags and waits until the peer's device has taken them.
func (e *end) send(n int, cookie udat.Cookie, flags udat.CompletionFlags) {
	e.t.Helper()
	assert.NilError(e.t, e.ep.PostSend(e.iov(0, n), cookie, flags))
	until(e.t, "the send completes", func() bool {
		_, _, idle, err := e.ep.GetStatus()
		assert.NilError(e.t, err)
		return idle
	})
}

// receive posts receives of 1 KiB with the cookies.
func (e *end) receive(flags udat.CompletionFlags, cookies ...udat.Cookie) {
	e.t.Helper()
	for i, c := range cookies {
		assert.NilError(e.t, e.ep.PostRecv(e.iov(1024*i, 1024), c, flags))
	}
}

// withFlags returns a setup with completion flags, in which only notifications wake calls.
func withFlags(recv, request udat.CompletionFlags) setup {
	attr := udat.EPAttr{MaxRDMAReadIn: 4, RecvCompletionFlags: recv, RequestCompletionFlags: request}
	return setup{attr: &attr, unkept: true}
}

func queueLength(t *testing.T, evd *udat.EVD) int {
	t.Helper()
	p, err := evd.Query()
	assert.NilError(t, err)
	return p.QLen
}
