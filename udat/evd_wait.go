package udat

import (
	"context"
	"errors"
	"os"
	"time"
	"unsafe"
)

func (e *EVD) wait(ctx context.Context, timeout time.Duration, threshold int, ev *Event) (int, error) {
	if e == nil || !e.obj.live.Load() {
		return 0, badHandle("evd_wait", HandleEVD, e.object())
	}
	e.mu.Lock()
	defer e.unlock()
	if err := e.mayWait(threshold); err != nil {
		return 0, err
	}
	polls := 0
	if timeout == 0 {
		polls = 1
	}
	if threshold == 1 && e.ring.n == 0 {
		if e.drainInto(unsafe.Slice(ev, 1), polls) == 1 {
			return e.ring.n, nil
		}
	} else {
		e.drainInto(nil, polls)
	}
	if e.ring.n >= threshold {
		e.pop(ev)
		return e.ring.n, nil
	}
	if timeout == 0 {
		return e.ring.n, errTimeoutExpired
	}
	var deadline time.Time // zero: never
	if timeout != Infinite {
		deadline = time.Now().Add(timeout)
	}
	return e.block(ctx, deadline, threshold, ev)
}

func (e *EVD) mayWait(threshold int) error {
	const op = "evd_wait"
	switch {
	case e.dead:
		return badHandle(op, HandleEVD, &e.obj)
	case threshold < 1 || threshold > e.qlen:
		return fail(op, InvalidParameter, SubArg3, "threshold is %d, must be from 1 to the queue length %d", threshold,
			e.qlen)
	case e.unwaitable:
		return fail(op, InvalidState, SubStateEVDUnwaitable, "the dispatcher is unwaitable")
	case e.overrun:
		return errOverrun
	case e.waiting.blocked():
		return fail(op, InvalidState, SubStateEVDWaiter, "another call waits on the dispatcher")
	case threshold != 1 && e.streams.consumerControlled():
		return fail(op, InvalidState, e.streams.configSubtype(),
			"threshold is %d, must be 1: the completions notify at the Consumer's choice", threshold)
	}
	return nil
}

var errOverrun = fail("evd_wait", InvalidState, SubNone,
	"the device has lost completions of the dispatcher; what has come can be dequeued")

// block blocks the caller until the condition of Wait holds; e.mu is held, but not while the call
// spins or parks.
func (e *EVD) block(ctx context.Context, deadline time.Time, threshold int, ev *Event) (int, error) {
	if ctx.Done() != nil {
		defer context.AfterFunc(ctx, e.recheck)()
	}
	w := &e.waiting
	w.waiter, w.threshold, w.notified, w.evicted = waiterChecking, threshold, false, false
	defer e.unblock()
	e.reportFailures()
	for w.loop == loopParked {
		e.cq.Wake()
		w.changed.Wait()
	}
	e.catchUp()
	spin := e.newSpin()
	// An event that is queued before the call spins or parks for the first time counts as an event
	// from before the call. It need not be a notification event.
	for entered, expired := true, false; ; {
		if over, err := e.waitResult(ctx, entered, expired); over {
			if spin.limit > 0 {
				w.spins.learn(&spin, time.Since(spin.began), err == nil)
			}
			if err == nil {
				e.pop(ev)
			}
			return e.ring.n, err
		}
		switch {
		case spin.due(&w.spins):
			entered = false
			e.spin(ctx, &spin, deadline)
		case e.mustArm():
			if err := e.arm(); err != nil {
				return e.ring.n, failAs("evd_wait", err, SubResourceTEVD)
			}
		case e.reportFailures():
		default:
			entered = false
			var err error
			if expired, err = e.park(deadline); err != nil {
				return e.ring.n, failAs("evd_wait", err, SubNone)
			}
		}
	}
}

// waitResult reports whether the blocked call ends now, and with which error. If the call ends
// without an error, the caller must dequeue the event.
func (e *EVD) waitResult(ctx context.Context, entered, expired bool) (over bool, err error) {
	canceled := ctx.Err()
	w := &e.waiting
	switch {
	case e.dead:
		return true, fail("evd_wait", Abort, SubNone, "the dispatcher has been destroyed")
	case e.overrun:
		return true, errOverrun
	case w.evicted:
		return true, fail("evd_wait", InvalidState, SubStateEVDUnwaitable, "the dispatcher has become unwaitable")
	case e.ring.n >= w.threshold && (entered || w.notified || expired || errors.Is(canceled, context.DeadlineExceeded)):
		return true, nil
	case expired:
		return true, errTimeoutExpired
	case canceled != nil:
		return true, contextError("evd_wait", TimeoutExpired, canceled)
	}
	return false, nil
}

// unblock records that no call is blocked any more. The arm loop may then continue.
func (e *EVD) unblock() {
	e.waiting.waiter = waiterNone
	e.cover()
	e.watch()
	e.waiting.changed.Broadcast()
}

// recheck makes a parked call check its condition again.
func (e *EVD) recheck() {
	e.mu.Lock()
	e.wake()
	e.mu.Unlock()
}

// evict makes the blocked call, if there is one, end with an error. The field evicted is needed
// because ClearUnwaitable may reset e.unwaitable before the blocked call wakes up.
func (e *EVD) evict() {
	if e.waiting.blocked() {
		e.waiting.evicted = true
		e.wake()
	}
}

// awaitEvicted waits until the evicted call has returned. When awaitEvicted returns, another call
// may already be blocked.
func (e *EVD) awaitEvicted() {
	for e.waiting.blocked() && e.waiting.evicted {
		e.waiting.changed.Wait()
	}
}

// awaitNobody waits until the blocked call and the arm loop have ended. The caller has marked the
// dispatcher dead.
func (e *EVD) awaitNobody() {
	e.wake()
	if e.waiting.loop == loopParked {
		e.cq.Wake()
	}
	for e.waiting.blocked() || e.waiting.loop != loopNone {
		e.waiting.changed.Wait()
	}
}

// spin polls until the blocked call can end or the time is up; e.mu is unlocked between polls.
func (e *EVD) spin(ctx context.Context, s *spinning, deadline time.Time) {
	if !s.begin(e.obj.ia.processors) {
		return
	}
	defer s.end()
	w := &e.waiting
	w.waiter = waiterSpinning
	defer func() { w.waiter = waiterChecking }()
	until := s.began.Add(s.limit)
	if !deadline.IsZero() && deadline.Before(until) {
		until = deadline
	}
	// The number of polls is limited too, because the clock may stand still (testing/synctest).
	for i := 1; i <= int(s.limit/spinPoll) && len(e.after) == 0; i++ {
		e.mu.Unlock()
		e.mu.Lock()
		e.drainInto(nil, spinPolls)
		if over, _ := e.waitResult(ctx, false, false); over {
			return
		}
		if i%8 == 0 && !time.Now().Before(until) {
			return
		}
	}
}

// newSpin returns the spin state of a call that is about to block; e.mu is held.
func (e *EVD) newSpin() spinning {
	if e.streams.n == 0 || e.streams.solicitedOnly() || e.obj.ia.spin == 0 {
		return spinning{}
	}
	return spinning{limit: e.obj.ia.spin, began: time.Now()}
}

// park parks the blocked call until a notification, a wake-up or the deadline, and then drains the
// completion queue; e.mu is unlocked while the call is parked.
func (e *EVD) park(deadline time.Time) (expired bool, err error) {
	w := &e.waiting
	w.waiter = waiterParked
	defer func() { w.waiter = waiterChecking }()
	if e.cq == nil {
		return e.parkOnKick(deadline), nil
	}
	fired, err := e.parkOnCQ(deadline)
	if fired {
		w.armed = false
		w.notified = w.notified || e.streams.solicitedOnly() // only the device knows which completion was solicited
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return true, nil
	}
	return false, err
}

func (e *EVD) parkOnKick(deadline time.Time) (expired bool) {
	w := &e.waiting
	e.mu.Unlock()
	defer e.mu.Lock()
	if deadline.IsZero() {
		<-w.kick
		return false
	}
	if w.timer == nil {
		w.timer = time.NewTimer(time.Until(deadline))
	} else {
		w.timer.Reset(time.Until(deadline))
	}
	defer w.timer.Stop()
	select {
	case <-w.kick:
		return false
	case <-w.timer.C:
		return true
	}
}

var (
	errQueueEmpty     = &Error{Op: "evd_dequeue", Type: QueueEmpty}
	errTimeoutExpired = &Error{Op: "evd_wait", Type: TimeoutExpired}
	errDequeueWaiter  = &Error{Op: "evd_dequeue", Type: InvalidState, Subtype: SubStateEVDWaiter}
)
