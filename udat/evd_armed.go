package udat

import "time"

// This file arms completion queues, so that the device notifies of the next completion. To park in
// a queue means to block until the device notifies. A queue is armed for a call that is about to
// park in it. While no call is blocked, the queue is armed for the arm loop. The arm loop is a
// goroutine that parks in the queue; see armLoop.
//
// The completions of a dispatcher with connections are always drained in time, so that a broken
// connection is reported although no call waits. A blocked call and the arm loop drain them as they
// come. Otherwise the adapter's poller drains them, until an interval passes without a completion.
// Then the arm loop parks in the queue, and no thread wakes until the next completion.

// mustArm reports whether the completion queue must be armed before a call or the arm loop parks in
// it. A queue without streams is not armed, because the flags of the streams decide how to arm it.
func (e *EVD) mustArm() bool { return e.streams.n > 0 && !e.waiting.armed }

// arm arms the completion queue and drains the completions that came before, because the device
// does not notify of these. If the queue is armed for solicited completions only, all drained
// completions count as solicited, because nothing shows which of them were solicited.
func (e *EVD) arm() error {
	if err := e.cq.Arm(e.streams.solicitedOnly()); err != nil {
		return err
	}
	e.drain()
	e.waiting.armed = true
	return nil
}

// longAgo is a deadline in the past: with it, the Wait of a completion queue returns at once.
var longAgo = time.Unix(1, 0)

// catchUp drains all completions and consumes the notification that they caused, so that the next
// notification is about a later completion.
func (e *EVD) catchUp() {
	e.drain()
	if w := &e.waiting; !w.armed || !e.streams.solicitedOnly() || w.parked() {
		return // the notification need not be consumed, because a poll finds the completions that it reports
	}
	for {
		fired, err := e.cq.Wait(longAgo)
		if fired {
			e.waiting.armed = false
		}
		if fired || err != nil {
			return
		}
		// cq.Wait returned because of a late wake-up that was meant for an earlier call.
	}
}

// watch arms the completion queue, starts the arm loop, or wakes it, as the dispatcher's new state
// requires. It is called after a change of the streams, the waiters or the notification object;
// e.mu is held. An arm loop that is woken checks again whether it must run.
func (e *EVD) watch() {
	w := &e.waiting
	if e.mustArm() && (w.blocked() || e.mustLoop()) && e.arm() != nil {
		e.wake() // the blocked call or the arm loop arms again and gets the error
	}
	switch {
	case w.loop == loopNone && e.mustLoop():
		w.loop = loopChecking
		go e.armLoop()
	case w.loop == loopParked:
		e.cq.Wake()
	}
}

// mustLoop reports whether the arm loop must run: to trigger the notification object, or because
// the dispatcher is idle.
func (e *EVD) mustLoop() bool {
	return e.streams.n > 0 && !e.dead && (e.cno != nil && !e.disabled || e.idle())
}

// idle reports whether the dispatcher is idle, so that the arm loop must wait for the next
// completion. A dispatcher is idle if it has connections, no call is blocked on it, and the adapter
// has stopped polling it because no completion came for an interval. A dispatcher whose completion
// queue does not notify of every failure is never idle; see notifies.
func (e *EVD) idle() bool {
	w := &e.waiting
	return e.connected > 0 && !w.polled && !w.active && !w.blocked() && e.notifies()
}

// armLoop keeps the completion queue armed while no call is blocked, so that completions trigger
// the notification object. On an idle dispatcher armLoop waits for the next completion.
func (e *EVD) armLoop() {
	e.mu.Lock()
	w := &e.waiting
	var err error
	for err == nil && e.mustLoop() {
		switch {
		case e.reportFailures():
		case w.blocked():
			w.changed.Wait()
		case e.mustArm():
			err = e.arm()
		default:
			err = e.parkLoop()
		}
	}
	w.loop = loopNone
	e.cover()
	w.changed.Broadcast()
	e.unlock()
}

// parkLoop parks the arm loop in the completion queue until a notification or a wake-up comes.
func (e *EVD) parkLoop() error {
	w := &e.waiting
	w.loop = loopParked
	fired, err := e.parkOnCQ(time.Time{})
	w.loop = loopChecking
	w.changed.Broadcast()
	if fired {
		w.armed = false
		if e.streams.solicitedOnly() && e.triggers() {
			e.cno.trigger(e) // only the device knows which completion was solicited
		}
	}
	return err
}

// parkOnCQ parks in the completion queue and then drains it. The caller has set e.waiting.waiter or
// e.waiting.loop to parked.
func (e *EVD) parkOnCQ(deadline time.Time) (fired bool, err error) {
	e.mu.Unlock()
	fired, err = e.cq.Wait(deadline)
	e.mu.Lock()
	e.drain()
	return fired, err
}

// reportFailures reports failures before a call or the arm loop parks. It returns true if there
// were failures. In that case e.mu was unlocked while reportFailures ran, and is locked again.
func (e *EVD) reportFailures() bool {
	if len(e.after) == 0 {
		return false
	}
	e.unlock()
	e.mu.Lock()
	return true
}

// notifies reports whether an armed completion queue notifies of every failure.
func (e *EVD) notifies() bool {
	return !e.streams.solicitedOnly() || e.obj.ia.device.Attr().FailuresNotify
}

// cover lets the adapter's poller poll the dispatcher if the dispatcher has connections and no
// blocked call or arm loop drains its completions; e.mu is held.
func (e *EVD) cover() {
	w := &e.waiting
	if e.connected == 0 || w.polled || (w.blocked() || w.loop != loopNone) && e.notifies() {
		return
	}
	w.polled = true
	e.obj.ia.poller.add(e)
}

// pollInterval is the time between two polls of a dispatcher by the adapter's poller.
const pollInterval = 100 * time.Millisecond

// pollOnce drains the dispatcher for the adapter's poller, at the end of an interval. If no
// completion came during the interval, the dispatcher becomes idle.
func (e *EVD) pollOnce() {
	e.mu.Lock()
	e.drain()
	e.rouse()
	w := &e.waiting
	quiet := !w.active
	w.polled, w.active = false, false
	if quiet && w.loop == loopNone {
		e.watch()
	}
	e.cover()
	e.unlockLater()
}
