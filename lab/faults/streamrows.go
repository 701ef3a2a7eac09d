package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// streamed returns the function of a scenario. A stream exchanges checked traffic with another end,
// and the function disturb disturbs this traffic.
func streamed(keepAlive time.Duration, disturb func(r *round, p *partner, s *stream) error) func(*round) error {
	return func(r *round) error {
		p, err := r.partner("traffic", keepAlive)
		if err != nil {
			return err
		}
		defer p.close()
		s := newStream(p.c, p.seed, p.dialed)
		time.Sleep(time.Duration(r.random.IntN(300)) * time.Millisecond)
		r.began = time.Now()
		return disturb(r, p, s)
	}
}

// complete ends a stream in good order. Each end must have received what the other has sent.
func complete(r *round, p *partner, s *stream) error {
	if err := p.tell("finish"); err != nil {
		return err
	}
	here := s.finish()
	there, err := p.answer()
	if err != nil {
		return fmt.Errorf("%w; this end: %+v", err, here)
	}
	return agree(here, there)
}

func killed(r *round, p *partner, s *stream) error {
	return errors.Join(p.signal("KILL"), s.broken())
}

func exited(r *round, p *partner, s *stream) error {
	return errors.Join(p.tell("exit"), s.broken())
}

// stopped stops the other end for a while.
func stopped(r *round, p *partner, s *stream) error { return stoppedFor(r.stopped(), r, p, s) }

// stoppedLong stops the other end for longer than the keep-alive's bound.
func stoppedLong(r *round, p *partner, s *stream) error { return stoppedFor(6*time.Second, r, p, s) }

func stoppedFor(pause time.Duration, r *round, p *partner, s *stream) error {
	if err := p.signal("STOP"); err != nil {
		return err
	}
	time.Sleep(pause)
	if err := p.signal("CONT"); err != nil {
		return err
	}
	r.began = time.Now()
	return complete(r, p, s)
}

// closedEarly closes a stream while bytes are on the way to a peer that has not begun to read.
func closedEarly(r *round) error {
	p, err := r.partner("slow reader", 0)
	if err != nil {
		return err
	}
	defer p.close()
	const n = 200_000
	if err := writeAndClose(p.c, p.seed, n); err != nil {
		return err
	}
	if took := time.Since(r.began); took > patience {
		return fmt.Errorf("closing takes %v", took)
	}
	time.Sleep(r.stopped())
	r.began = time.Now()
	if err := p.tell("read"); err != nil {
		return err
	}
	there, err := p.answer()
	if err != nil {
		return err
	}
	return errors.Join(agree(flowed{Sent: n}, there), drained())
}

// readLate returns the function of a scenario. The function waits for the time pause, and then
// reads the n bytes that the peer has written.
func readLate(role string, pause time.Duration, n int64) func(*round) error {
	return func(r *round) error {
		p, err := r.partner(role, 0)
		if err != nil {
			return err
		}
		defer p.close()
		time.Sleep(pause)
		got := written(p.seed)
		if _, err = io.Copy(got, p.c); err != nil || got.bytes != n {
			return fmt.Errorf("%d bytes of %d: %v; the other end: %s", got.bytes, n, err, p.errors.b)
		}
		if role == "leaver" {
			return nil
		}
		there, err := p.answer()
		return errors.Join(err, agree(flowed{Taken: n}, there))
	}
}

// closedInFront closes a stream while bytes are on the way to a stopped peer, and then kills the
// peer.
func closedInFront(r *round) error {
	p, err := r.partner("slow reader", time.Second)
	if err != nil {
		return err
	}
	defer p.close()
	if err := p.signal("STOP"); err != nil {
		return err
	}
	if err := writeAndClose(p.c, p.seed, leaverBytes); err != nil {
		return err
	}
	if took := time.Since(r.began); took > soon/3 {
		return fmt.Errorf("closing takes %v", took)
	}
	r.began = time.Now()
	if err := p.signal("KILL"); err != nil {
		return err
	}
	if err := drained(); err == nil || errors.Is(err, context.DeadlineExceeded) || p.c.Stats().BytesLost == 0 {
		return fmt.Errorf("%d bytes to a peer that was killed: %v, %d lost", leaverBytes, err, p.c.Stats().BytesLost)
	}
	return nil
}

var streamRows = []scenario{
	rdmanetRow("both ends end their streams at a random moment",
		"each end has all that the other has sent, and then io.EOF", streamed(0, complete), withMem(20, 1000, often)),
	rdmanetRow("SIGKILL of either end", dies, streamed(0, killed), often),
	rdmanetRow("exit of either end without Close", dies, streamed(0, exited), often),
	rdmanetRow("SIGSTOP of either end, then SIGCONT", "no error; each end has all that the other has sent",
		streamed(0, stopped), seldom),
	rdmanetRow("SIGSTOP of either end for longer than the keep-alive's bound of 5 s, then SIGCONT",
		"no error; each end has all that the other has sent", streamed(time.Second, stoppedLong),
		map[string][2]int{"tcp": {2, 20}, "rxe": {2, 20}, "siw": {2, 10}},
		"loop: a stopped process may hold the device's lock"),
	rdmanetRow("Close with 200,000 bytes on the way to a slow reader", "nothing is lost; Close returns at once",
		closedEarly, withMem(4, 50, seldom)),
	rdmanetRow("the same, with the reader at this end", "nothing is lost", readLate("writer", time.Second, 200_000),
		withMem(4, 50, seldom)),
	rdmanetRow("Close of 100,000 bytes, and exit right after it", "nothing is lost to a peer that reads",
		readLate("leaver", 0, leaverBytes), often),
	rdmanetRow("Close of 100,000 bytes to a stopped peer, which is killed",
		"Close returns at once; Drain and Stats say what is lost", closedInFront, seldom),
}
