package udat

import "time"

// This file is the arming of a completion queue: for the call that is about to park in it, and by
// the arm loop while no call is blocked.
//
// A dispatcher with connections is never left alone, so that a broken connection is reported
// although no call takes completions. A blocked call and the arm loop take them as they come.
// Otherwise the adapter polls (poller), until an interval has passed without a completion: then the
// arm loop parks in the queue, and no thread wakes until the next completion.

// mustArm reports whether the completion queue must be armed before parking. A queue without
// streams is not armed, because the streams' flags decide how.
func (e *EVD) mustArm() bool { return e.streams.n > 0 && !e.waiting.armed }

// arm arms the completion queue and drains the completions that came before, of which the device
// does not notify. If the queue is armed for solicited completions only, the drained ones count as
// solicited, because nothing tells which of them were.
func (e *EVD) arm() error {
	if err := e.cq.Arm(e.streams.solicitedOnly()); err != nil {
		return err
	}
	e.drain()
	e.waiting.armed = true
	return nil
}

// longAgo is a deadline that makes Wait of a completion queue a poll.
var longAgo = time.Unix(1, 0)

// catchUp drains all completions and takes their notification, so that the next one is of later
// completions.
func (e *EVD) catchUp() {
	e.drain()
	if w := &e.waiting; !w.armed || !e.streams.solicitedOnly() || w.parked() {
		return // then the notification is not needed: what it reports is found by polling
	}
	for {
		fired, err := e.cq.Wait(longAgo)
		if fired {
			e.waiting.armed = false
		}
		if fired || err != nil {
			return
		}
		// It was a late wake-up, meant for an earlier call.
	}
}

// watch follows a change of who needs an armed queue: it arms the queue, starts the arm loop, or
// makes a running one check; e.mu is held.
func (e *EVD) watch() {
	w := &e.waiting
	if e.mustArm() && (w.blocked() || e.mustLoop()) && e.arm() != nil {
		e.wake() // the blocked call and the arm loop arm again, and see the error
	}
	switch {
	case w.loop == loopNone && e.mustLoop():
		w.loop = loopChecking
		go e.armLoop()
	case w.loop == loopParked:
		e.cq.Wake()
	}
}

// mustLoop reports whether the arm loop is needed: by the notification object, or because the
// dispatcher is idle.
func (e *EVD) mustLoop() bool {
	return e.streams.n > 0 && !e.dead && (e.cno != nil && !e.disabled || e.idle())
}

// idle reports whether the arm loop must wait for the next completion: the dispatcher has
// connections, no call is blocked on it, and the adapter no longer polls it, because no completion
// has come for an interval. It is false if the device does not notify of every completion that
// matters.
func (e *EVD) idle() bool {
	w := &e.waiting
	return e.connected > 0 && !w.polled && !w.active && !w.blocked() && e.notifies()
}

// armLoop keeps the completion queue armed while no call is blocked, so that completions trigger
// the notification object. On an idle dispatcher it waits for the next completion.
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

// parkLoop parks the arm loop in the completion queue until a notification or a wake-up.
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

// parkOnCQ parks in the completion queue and drains it; waiter or loop has been set to parked.
func (e *EVD) parkOnCQ(deadline time.Time) (fired bool, err error) {
	e.mu.Unlock()
	fired, err = e.cq.Wait(deadline)
	e.mu.Lock()
	e.drain()
	return fired, err
}

// reportFailures reports failures before a call or the arm loop parks. It returns whether there
// were any: e.mu was free meanwhile.
func (e *EVD) reportFailures() bool {
	if len(e.after) == 0 {
		return false
	}
	e.unlock()
	e.mu.Lock()
	return true
}

// notifies reports whether the device notifies of every failure once the completion queue is armed.
func (e *EVD) notifies() bool {
	return !e.streams.solicitedOnly() || e.obj.ia.device.Attr().FailuresNotify
}

// cover has the adapter poll the dispatcher if it has connections and nobody else takes its
// completions; e.mu is held.
func (e *EVD) cover() {
	w := &e.waiting
	if e.connected == 0 || w.polled || (w.blocked() || w.loop != loopNone) && e.notifies() {
		return
	}
	w.polled = true
	e.obj.ia.poller.add(e)
}

// pollInterval is how often the adapter polls a dispatcher to which completions come.
const pollInterval = 100 * time.Millisecond

// pollOnce is what the adapter does with a dispatcher at the end of an interval. After one without
// a completion the dispatcher is idle.
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
