package udat

import (
	"context"
	"errors"
	"os"
	"time"
	"unsafe"
)

// Wait blocks until threshold events are queued, takes the first of them, and gives the number that is left. Where
// completions notify at the Consumer's choice (UNSIGNALLED, SOLICITED_WAIT) threshold must be 1, and the call
// blocks until a notification event comes; the event returned is the first on the queue, which may be an older one.
//
// timeout is counted from the call; 0 polls and Infinite never expires. Errors: TimeoutExpired (nothing is taken,
// nmore is the number queued), InvalidParameter (threshold below 1 or above the queue's length, negative timeout),
// InvalidState (another call waits, the dispatcher is or becomes unwaitable, threshold is not 1 where it must be, or the
// device has lost completions), Abort (freed, or the adapter closed), InvalidHandle. A blocked call costs a goroutine.
// On Linux it may hold a thread too for up to 4 ms, if its wait before was as short; at most half of the processors are taken so.
//
// Implements: dat_evd_wait.
func (e *EVD) Wait(timeout time.Duration, threshold int) (ev Event, nmore int, err error) {
	if timeout < 0 {
		return Event{}, 0, e.refuse(fail("evd_wait", InvalidParameter, SubArg2, "timeout is %v, must not be negative", timeout))
	}
	nmore, err = e.wait(context.Background(), timeout, threshold, &ev)
	return ev, nmore, err
}

// WaitContext is [EVD.Wait] without a timeout of its own: it ends with ctx. A canceled ctx is InterruptedCall, one past its
// deadline TimeoutExpired; errors.Is also matches context.Canceled or context.DeadlineExceeded. nmore is set in both cases.
//
// Extension.
func (e *EVD) WaitContext(ctx context.Context, threshold int) (ev Event, nmore int, err error) {
	if ctx == nil {
		return Event{}, 0, e.refuse(fail("evd_wait", InvalidParameter, SubArg2, "ctx is nil"))
	}
	nmore, err = e.wait(ctx, Infinite, threshold, &ev)
	return ev, nmore, err
}

// refuse gives the bad handle its precedence over a bad argument.
func (e *EVD) refuse(bad error) error {
	if err := e.object().check("evd_wait", HandleEVD); err != nil {
		return err
	}
	return bad
}

func (e *EVD) wait(ctx context.Context, timeout time.Duration, threshold int, ev *Event) (int, error) {
	if e == nil || !e.obj.live.Load() {
		return 0, badHandle("evd_wait", HandleEVD, e.object())
	}
	var deadline time.Time // zero: never
	if timeout != 0 && timeout != Infinite {
		deadline = time.Now().Add(timeout)
	}
	e.mu.Lock()
	defer e.unlock()
	if err := e.mayWait(threshold); err != nil {
		return 0, err
	}
	if threshold == 1 && e.ring.n == 0 {
		if e.drainInto(unsafe.Slice(ev, 1), 1) == 1 {
			return e.ring.n, nil
		}
	} else {
		e.drain()
	}
	if e.ring.n >= threshold {
		e.pop(ev)
		return e.ring.n, nil
	}
	if timeout == 0 {
		return e.ring.n, errTimeoutExpired
	}
	return e.block(ctx, deadline, threshold, ev)
}

func (e *EVD) mayWait(threshold int) error {
	const op = "evd_wait"
	switch {
	case e.dead:
		return badHandle(op, HandleEVD, &e.obj)
	case threshold < 1 || threshold > e.qlen:
		return fail(op, InvalidParameter, SubArg3, "threshold is %d, must be from 1 to the queue length %d", threshold, e.qlen)
	case e.unwaitable:
		return fail(op, InvalidState, SubStateEVDUnwaitable, "the dispatcher is unwaitable")
	case e.overrun:
		return errOverrun
	case e.waiter:
		return fail(op, InvalidState, SubStateEVDWaiter, "another call waits on the dispatcher")
	case threshold != 1 && e.streams.consumerControlled():
		return fail(op, InvalidState, e.streams.configSubtype(), "threshold is %d, must be 1: the completions notify at the Consumer's choice", threshold)
	}
	return nil
}

var errOverrun = fail("evd_wait", InvalidState, SubNone, "the device has lost completions of the dispatcher; what has come can be dequeued")

// block parks the caller as the waiter until the condition of Wait holds; e.mu is held but while parked.
func (e *EVD) block(ctx context.Context, deadline time.Time, threshold int, ev *Event) (int, error) {
	if ctx.Done() != nil {
		defer context.AfterFunc(ctx, e.lookAgain)()
	}
	e.waiter, e.threshold, e.notified, e.evicted = true, threshold, false, false
	defer e.leave()
	e.flushFailures()
	for e.parked {
		e.cq.Wake() // there is room for one only
		e.left.Wait()
	}
	e.catchUp()
	spin := e.newSpin()
	// Whatever has come before the call spins or parks for the first time counts as queued before it.
	for entered, expired := true, false; ; {
		if over, err := e.over(ctx, entered, expired); over {
			e.learn(&spin, err == nil)
			if err == nil {
				e.pop(ev)
			}
			return e.ring.n, err
		}
		switch {
		case e.due(&spin):
			entered = false
			e.spin(ctx, &spin, deadline)
		case e.mustArm():
			if err := e.arm(); err != nil {
				return e.ring.n, failAs("evd_wait", err, SubResourceTEVD)
			}
		case e.flushFailures():
		default:
			entered = false
			var err error
			if expired, err = e.park(deadline); err != nil {
				return e.ring.n, failAs("evd_wait", err, SubNone)
			}
		}
	}
}

// over says whether the blocked call ends now, and how: without an error it takes its event.
func (e *EVD) over(ctx context.Context, entered, expired bool) (bool, error) {
	canceled := ctx.Err()
	switch {
	case e.dead:
		return true, fail("evd_wait", Abort, SubNone, "the dispatcher has been destroyed")
	case e.overrun:
		return true, errOverrun
	case e.evicted:
		return true, fail("evd_wait", InvalidState, SubStateEVDUnwaitable, "the dispatcher has become unwaitable")
	case e.ring.n >= e.threshold && (entered || e.notified || expired || errors.Is(canceled, context.DeadlineExceeded)):
		return true, nil
	case expired:
		return true, errTimeoutExpired
	case canceled != nil:
		return true, interrupted("evd_wait", TimeoutExpired, canceled)
	}
	return false, nil
}

func (e *EVD) leave() {
	e.waiter = false
	e.watch()
	e.left.Broadcast()
}

// lookAgain wakes the blocked call, if there is one.
func (e *EVD) lookAgain() {
	e.mu.Lock()
	if e.waiter {
		e.wake()
	}
	e.mu.Unlock()
}

// flushFailures tells failed endpoints before somebody parks. It says whether there were any: e.mu was released then.
func (e *EVD) flushFailures() bool {
	if len(e.after) == 0 {
		return false
	}
	e.unlock()
	e.mu.Lock()
	return true
}

// park waits for a notification, a wake or the deadline, and takes what has come; e.mu is released meanwhile.
func (e *EVD) park(deadline time.Time) (expired bool, err error) {
	if e.cq == nil {
		return e.parkOnKick(deadline), nil
	}
	fired, err := e.parkOnCQ(deadline)
	if fired {
		e.armed = false
		e.notified = e.notified || e.streams.solicitedOnly() // only the device knows which completion was solicited
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return true, nil
	}
	return false, err
}

// parkOnCQ parks in the completion queue; there is room for one only.
func (e *EVD) parkOnCQ(deadline time.Time) (fired bool, err error) {
	e.parked = true
	e.mu.Unlock()
	fired, err = e.cq.Wait(deadline)
	e.mu.Lock()
	e.parked = false
	e.left.Broadcast()
	e.drain()
	return fired, err
}

func (e *EVD) parkOnKick(deadline time.Time) (expired bool) {
	e.mu.Unlock()
	defer e.mu.Lock()
	if deadline.IsZero() {
		<-e.kick
		return false
	}
	if e.timer == nil {
		e.timer = time.NewTimer(time.Until(deadline))
	} else {
		e.timer.Reset(time.Until(deadline))
	}
	defer e.timer.Stop()
	select {
	case <-e.kick:
		return false
	case <-e.timer.C:
		return true
	}
}
