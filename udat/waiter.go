package udat

import (
	"sync"
	"time"
)

// waiting is the state of those who wait for events of a dispatcher: one blocked call, and the arm
// loop, which keeps the completion queue armed while no call is blocked, for the notification
// object or because the dispatcher is idle. At most one of them parks in the completion queue. All
// of it is guarded by EVD.mu.
type waiting struct {
	waiter waiterState
	loop   loopState

	threshold int  // of the blocked call
	notified  bool // a notification event has come since it blocked
	evicted   bool // it must end, by SetUnwaitable or an overrun

	polled bool // the adapter polls the dispatcher
	active bool // a completion has come since it last did; those of the library do not count

	armed   bool          // the completion queue is armed and has not notified yet
	changed sync.Cond     // waiter or loop has changed
	kick    chan struct{} // wakes a call that is parked without a completion queue
	timer   *time.Timer
	spins   spinChoice
}

// waiterState is what the blocked call does.
type waiterState uint8

const (
	waiterNone     waiterState = iota // no call is blocked
	waiterChecking                    // it checks, arms, or waits until the arm loop has left the completion queue
	waiterSpinning                    // it polls; the lock is free between polls
	waiterParked
)

// loopState is what the arm loop does.
type loopState uint8

const (
	loopNone loopState = iota // there is none
	loopChecking
	loopParked
)

func (w *waiting) init(mu sync.Locker) { w.changed.L, w.kick = mu, make(chan struct{}, 1) }

// blocked reports whether a call is blocked in Wait.
func (w *waiting) blocked() bool { return w.waiter != waiterNone }

// parked reports whether the blocked call or the arm loop is parked in the completion queue.
func (w *waiting) parked() bool { return w.waiter == waiterParked || w.loop == loopParked }
