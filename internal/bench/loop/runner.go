//go:build linux && cgo && nulldev

package main

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/godat/godat/cverbs"
)

// player is one end of a ping-pong.
type player interface {
	postReceive(slot uint64) error
	postMessage() error
	awaitMessage() (slot uint64, err error)
}

// pingPong plays until the time of w is over: one goroutine both ends in turn, or one each.
func pingPong(w cverbs.LoopWork, a, b player) (run, error) {
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

// answer answers one message. last: the message came after stop, and there was no answer.
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

// poster is one of two goroutines that post.
type poster struct {
	inFlight  *atomic.Int32
	completed atomic.Uint64
	_         [128]byte
}

// posters lets two goroutines post writes and reap, on an end each or on one. open opens an end, or
// makes another of the same objects with requests and completions of its own.
func posters[E any](
	w cverbs.LoopWork, open func(same *E) (*E, error), write func(*E) error, reap func(*E) (int, error),
) (run, error) {
	var step [2]func(p *poster) error
	var same *E
	for i := range step {
		a, err := open(same)
		if err != nil {
			return run{}, err
		}
		if w.Shared {
			same = a
		}
		step[i] = func(p *poster) error {
			if p.inFlight.Add(1) <= depth {
				return write(a)
			}
			n, err := reap(a)
			p.inFlight.Add(int32(-n - 1))
			p.completed.Add(uint64(n))
			return err
		}
	}
	return together(w, step)
}

// together lets two goroutines post and reap for the time of w. A step is one post or one poll.
func together(w cverbs.LoopWork, step [2]func(p *poster) error) (run, error) {
	var posters [2]poster
	var inFlight [2]struct {
		n atomic.Int32
		_ [124]byte // on cache lines of their own
	}
	posters[0].inFlight, posters[1].inFlight = &inFlight[0].n, &inFlight[1].n
	if w.Shared {
		posters[1].inFlight = posters[0].inFlight
	}
	var stop atomic.Bool
	ended := make(chan error, 2)
	for i := range posters {
		go func() {
			var err error
			for err == nil && !stop.Load() {
				err = step[i](&posters[i])
			}
			ended <- err
		}()
	}
	done := func() uint64 { return posters[0].completed.Load() + posters[1].completed.Load() }
	time.Sleep(w.Warmup)
	m := mallocs()
	base, begin := done(), time.Now()
	var r run
	for r.ops < rounds && r.took < longest { // neither may have run
		time.Sleep(w.Time)
		r.ops, r.took = done()-base, time.Since(begin)
	}
	if r.ops > 0 {
		r.allocs = float64(mallocs()-m) / float64(r.ops)
	}
	stop.Store(true)
	return r, errors.Join(<-ended, <-ended)
}
