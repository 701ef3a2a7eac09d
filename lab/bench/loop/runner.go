package main

import (
	"errors"
	"sync/atomic"
)

// player is one end of a ping-pong.
type player interface {
	postReceive(slot uint64) error
	postMessage() error
	awaitMessage() (slot uint64, err error)
}

// pingPong sends messages back and forth until the time in w is over. With one thread, one
// goroutine handles both ends in turn. With two threads, each end has its own goroutine.
func pingPong(w work, a, b player) (run, error) {
	for i := range uint64(recvs) {
		if err := errors.Join(a.postReceive(i), b.postReceive(i)); err != nil {
			return run{}, err
		}
	}
	var stop atomic.Bool
	ended := make(chan error, 1)
	if w.Threads == 2 {
		go func() { ended <- pong(b, &stop) }()
	}
	c := newClock(w)
	for {
		if err := a.postMessage(); err != nil {
			return run{}, err
		}
		if w.Threads == 1 {
			if _, err := answer(b, &stop); err != nil {
				return run{}, err
			}
		}
		slot, err := a.awaitMessage()
		if err != nil {
			return run{}, err
		}
		if err := a.postReceive(slot); err != nil {
			return run{}, err
		}
		if c.round() {
			break
		}
	}
	r := c.end()
	if w.Threads == 2 {
		stop.Store(true)
		if err := errors.Join(a.postMessage(), <-ended); err != nil {
			return run{}, err
		}
	}
	return r, nil
}

// answer waits for a message and sends one back. If stop is set when the message comes, it sends
// nothing back and returns true.
func answer(p player, stop *atomic.Bool) (last bool, err error) {
	slot, err := p.awaitMessage()
	if err != nil || stop.Load() {
		return true, err
	}
	if err := p.postMessage(); err != nil {
		return true, err
	}
	return false, p.postReceive(slot)
}

func pong(p player, stop *atomic.Bool) error {
	for {
		if last, err := answer(p, stop); last || err != nil {
			return err
		}
	}
}
