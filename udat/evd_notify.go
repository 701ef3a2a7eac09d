package udat

import "time"

// ModifyCNO replaces the notification object that the dispatcher triggers; nil is none. What has come before triggers
// the old one, and one such trigger that has already begun may still be seen.
//
// Implements: dat_evd_modify_cno.
func (e *EVD) ModifyCNO(cno *CNO) error {
	const op = "evd_modify_cno"
	if err := e.object().check(op, HandleEVD); err != nil {
		return err
	}
	ia := e.obj.ia
	ia.mu.Lock()
	if err := e.object().check(op, HandleEVD); err != nil {
		ia.mu.Unlock()
		return err
	}
	e.mu.Lock()
	old := e.cno
	err := cno.attach(op, ia)
	if err == nil {
		e.catchUp()
		e.cno = cno
		e.watch()
	}
	ia.mu.Unlock()
	e.unlock()
	if err != nil {
		return err
	}
	old.detach(false)
	return nil
}

// mustArm says whether the completion queue has to be armed before anybody parks on it. One without streams is not
// armed: how depends on their flags.
func (e *EVD) mustArm() bool { return e.cq != nil && e.streams.n > 0 && !e.armed }

// arm arms the completion queue and takes what came before, which the device tells nobody of. On a queue that is armed
// for solicited completions only, these count as solicited: one of them may be.
func (e *EVD) arm() error {
	if err := e.cq.Arm(e.streams.solicitedOnly()); err != nil {
		return err
	}
	e.drain()
	e.armed = true
	return nil
}

// longAgo is a deadline that makes Wait of a completion queue a poll.
var longAgo = time.Unix(1, 0)

// catchUp takes all completions that have come, and the notification of them, so that the next one is of later ones.
func (e *EVD) catchUp() {
	e.drain()
	if !e.armed || !e.streams.solicitedOnly() || e.parked {
		return // without solicited completions a notification only says: look
	}
	for {
		fired, err := e.cq.Wait(longAgo)
		if fired {
			e.armed = false
		}
		if fired || err != nil {
			return
		}
		// It was a wake-up that came too late for whom it was meant.
	}
}

// watch arms the completion queue if somebody needs it armed. It starts the follower, or tells a running one that
// something has changed. e.mu is held.
func (e *EVD) watch() {
	if e.mustArm() && (e.waiter || e.mustFollow()) && e.arm() != nil && e.waiter {
		e.wake() // it tries again, as the follower does, and sees the error
	}
	if !e.watched && e.mustFollow() {
		e.watched = true
		go e.follow()
		return
	}
	if e.watched && e.parked {
		e.cq.Wake()
	}
	e.left.Broadcast()
}

func (e *EVD) mustFollow() bool {
	return e.cq != nil && e.streams.n > 0 && e.cno != nil && !e.disabled && !e.dead
}

// follow keeps the completion queue armed while no direct waiter does, so that completions trigger the notification
// object.
func (e *EVD) follow() {
	e.mu.Lock()
	var err error
	for err == nil && e.mustFollow() {
		switch {
		case e.flushFailures():
		case e.waiter:
			e.left.Wait()
		case e.mustArm():
			err = e.arm()
		default:
			err = e.followOnce()
		}
	}
	e.watched = false
	e.left.Broadcast()
	e.unlock()
}

// followOnce parks in the completion queue until it has something to tell.
func (e *EVD) followOnce() error {
	fired, err := e.parkOnCQ(time.Time{})
	if fired {
		e.armed = false
		if e.streams.solicitedOnly() && e.triggers() {
			e.cno.trigger(e) // only the device knows which completion was solicited
		}
	}
	return err
}

// triggers says whether a notification event triggers the notification object now.
func (e *EVD) triggers() bool { return e.cno != nil && !e.waiter && !e.disabled && !e.dead }
