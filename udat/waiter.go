package udat

import (
	"sync"
	"time"
)

// waiting is the state of the waiters of a dispatcher: one blocked call and the arm loop. The arm
// loop keeps the completion queue armed while no call is blocked, if the dispatcher has a
// notification object or is idle. At most one of the two is parked, which means that it sleeps
// until the completion queue notifies. EVD.mu guards all fields.
type waiting struct {
	waiter waiterState
	loop   loopState

	threshold int  // the threshold of the blocked call
	notified  bool // a notification event has come since the call blocked
	evicted   bool // the call must end, because of SetUnwaitable or an overrun

	polled bool // the dispatcher is on the list of the adapter's poller
	active bool // a completion of the Consumer's work has come since the poller's last poll

	armed   bool          // the completion queue is armed and has not notified yet
	changed sync.Cond     // signals a change of the field waiter or loop
	kick    chan struct{} // wakes a call that is parked without a completion queue
	timer   *time.Timer
	spins   spinChoice
}

// waiterState is the state of the blocked call.
type waiterState uint8

const (
	waiterNone     waiterState = iota // no call is blocked
	waiterChecking                    // the call checks, arms, or waits until the arm loop has left the completion queue
	waiterSpinning                    // the call polls; the lock is free between polls
	waiterParked
)

// loopState is the state of the arm loop.
type loopState uint8

const (
	loopNone loopState = iota // there is no arm loop
	loopChecking
	loopParked
)

func (w *waiting) init(mu sync.Locker) { w.changed.L, w.kick = mu, make(chan struct{}, 1) }

// blocked reports whether a call is blocked in Wait.
func (w *waiting) blocked() bool { return w.waiter != waiterNone }

// parked reports whether the blocked call or the arm loop sleeps until the completion queue
// notifies.
func (w *waiting) parked() bool { return w.waiter == waiterParked || w.loop == loopParked }
