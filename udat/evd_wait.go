package udat

import (
	"context"
	"errors"
	"os"
	"time"
)

// Wait blocks until threshold events are queued, takes the first of them, and gives the number that is left. Where
// completions notify at the Consumer's choice (UNSIGNALLED, SOLICITED_WAIT) threshold must be 1, and the call
// blocks until a notification event comes; the event returned is the first on the queue, which may be an older one.
//
// timeout is counted from the call; 0 polls and Infinite never expires. Errors: TimeoutExpired (nothing is taken,
// nmore is the number queued), InvalidParameter (threshold below 1 or above the queue's length, negative timeout),
// InvalidState (another call waits, the dispatcher is or becomes unwaitable, threshold is not 1 where it must be),
// Abort (freed, or the adapter closed), InvalidHandle. A blocked call costs a goroutine, not a thread.
//
// Implements: dat_evd_wait.
func (e *EVD) Wait(timeout time.Duration, threshold int) (ev Event, nmore int, err error) {
	if timeout < 0 {
		return Event{}, 0, e.refuse(fail("evd_wait", InvalidParameter, SubArg2, "timeout is %v, must not be negative", timeout))
	}
	nmore, err = e.wait(nil, timeout, threshold, &ev)
	return ev, nmore, err
}

// WaitContext is Wait without a timeout of its own: it ends with ctx, with InterruptedCall where ctx was cancelled and
// TimeoutExpired where its deadline passed. nmore is set in both cases.
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
	e.mu.Lock()
	defer e.unlock()
	if err := e.mayWait(threshold); err != nil {
		return 0, err
	}
	e.drain()
	if e.ring.n >= threshold {
		e.pop(ev)
		return e.ring.n, nil
	}
	if timeout == 0 {
		return e.ring.n, errTimeoutExpired
	}
	return e.block(ctx, timeout, threshold, ev)
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
	case e.waiter:
		return fail(op, InvalidState, SubStateEVDWaiter, "another call waits on the dispatcher")
	case threshold != 1 && e.streams.consumerControlled():
		return fail(op, InvalidState, SubStateEVDConfigSolicited, "threshold is %d, must be 1: the completions notify at the Consumer's choice", threshold)
	}
	return nil
}

// block parks the caller as the waiter until the condition of Wait holds; e.mu is held but while parked.
func (e *EVD) block(ctx context.Context, timeout time.Duration, threshold int, ev *Event) (int, error) {
	var deadline time.Time
	if timeout != Infinite {
		deadline = time.Now().Add(timeout)
	}
	if ctx != nil {
		if until, ok := ctx.Deadline(); ok {
			deadline = until
		}
		defer context.AfterFunc(ctx, e.wake)()
	}
	e.waiter, e.notified = true, false
	defer e.leave()
	for e.following {
		e.cq.Wake() // only one may be parked on the queue
		e.left.Wait()
	}
	armed, entered := false, true
	for {
		if !armed && e.cq != nil {
			if err := e.cq.Arm(e.streams.solicitedOnly()); err != nil {
				return e.ring.n, failAs("evd_wait", err, SubResourceTEVD)
			}
			armed = true
			e.drain() // what came before the arming notifies nobody
		}
		// Whatever has come by the time of the first arming counts as queued before the call.
		if e.ring.n >= threshold && (entered || e.notified) {
			e.pop(ev)
			return e.ring.n, nil
		}
		entered = false
		e.flushFailures()
		fired, err := e.park(deadline)
		switch {
		case e.dead:
			return 0, fail("evd_wait", Abort, SubNone, "the dispatcher has been destroyed")
		case e.unwaitable:
			return 0, fail("evd_wait", InvalidState, SubStateEVDUnwaitable, "the dispatcher has become unwaitable")
		}
		if fired {
			armed = false
			if e.streams.solicitedOnly() {
				e.notified = true
			}
		}
		e.drain()
		expired := errors.Is(err, os.ErrDeadlineExceeded)
		switch {
		case e.ring.n >= threshold && (e.notified || expired):
			e.pop(ev)
			return e.ring.n, nil
		case expired:
			return e.ring.n, errTimeoutExpired
		case ctx != nil && ctx.Err() != nil:
			return e.ring.n, &Error{Op: "evd_wait", Type: InterruptedCall, Err: ctx.Err()}
		case err != nil:
			return e.ring.n, failAs("evd_wait", err, SubNone)
		}
	}
}

func (e *EVD) leave() {
	e.waiter = false
	e.watch()
	e.left.Broadcast()
}

// flushFailures tells failed endpoints before the waiter parks; e.mu is released meanwhile.
func (e *EVD) flushFailures() {
	if len(e.failed) == 0 {
		return
	}
	e.unlock()
	e.mu.Lock()
}

// park waits for a notification, a wake or the deadline; e.mu is released meanwhile.
func (e *EVD) park(deadline time.Time) (fired bool, err error) {
	cq := e.cq
	e.mu.Unlock()
	defer e.mu.Lock()
	if cq != nil {
		return cq.Wait(deadline)
	}
	if deadline.IsZero() {
		<-e.kick
		return false, nil
	}
	if e.timer == nil {
		e.timer = time.NewTimer(time.Until(deadline))
	} else {
		e.timer.Reset(time.Until(deadline))
	}
	defer e.timer.Stop()
	select {
	case <-e.kick:
		return false, nil
	case <-e.timer.C:
		return false, os.ErrDeadlineExceeded
	}
}
