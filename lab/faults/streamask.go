package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/godat/godat/rdmanet"
)

// echo is the role of an end that answers each request with its bytes, until the stream ends.
func echo(c *rdmanet.Conn) error {
	_, err := io.Copy(struct{ io.Writer }{c}, struct{ io.Reader }{c})
	return errors.Join(err, c.Close())
}

// asker is a caller that waits for each answer before its next request. A short wait blocks the
// thread, a long one parks the goroutine. Pauses between requests make both happen.
type asker struct {
	p    *partner
	id   uint8
	seq  uint64
	got  []byte // of the answer
	stop atomic.Bool
	done sync.WaitGroup
	err  error // of the first request that failed
}

// askers starts n callers. The other end of each caller is a process of its own. The function
// closeAll ends the callers.
func (r *round) askers(n int) (list []*asker, closeAll func(), err error) {
	closeAll = func() {
		for _, a := range list {
			a.p.close()
			a.done.Wait()
		}
	}
	for i := range n {
		p, err := r.partner("echo", 0)
		if err != nil {
			closeAll()
			return nil, nil, err
		}
		list = append(list, &asker{p: p, id: uint8(i)})
	}
	for _, a := range list {
		a.run()
	}
	return list, closeAll, nil
}

func (a *asker) run() {
	a.stop.Store(false)
	a.done.Go(func() {
		for a.err = nil; a.err == nil && !a.stop.Load(); {
			if a.err = a.ask(); a.seq%100 == 0 {
				time.Sleep(time.Duration(a.seq/100%8) * time.Millisecond)
			}
		}
	})
}

func (a *asker) ask() error {
	a.seq++
	a.got = a.got[:0]
	if _, err := a.p.c.Write(a.question()); err != nil {
		return err
	}
	return a.answered()
}

func (a *asker) question() []byte {
	b := make([]byte, payloadLength(a.seq))
	fill(b, a.id, a.seq)
	return b
}

// answered reads the answer to the last request, or the rest of the answer if a part of it has been
// read.
func (a *asker) answered() error {
	want := a.question()
	for b := make([]byte, len(want)); len(a.got) < len(want); {
		n, err := a.p.c.Read(b[len(a.got):])
		if a.got = append(a.got, b[len(a.got):][:n]...); err != nil {
			return err
		}
	}
	if !bytes.Equal(a.got, want) {
		return fmt.Errorf("%w in answer %d", errWrongBytes, a.seq)
	}
	return nil
}

// finish ends the caller, and then its stream in good order.
func (a *asker) finish() error {
	a.stop.Store(true)
	a.done.Wait()
	if a.err != nil {
		return fmt.Errorf("request %d: %w", a.seq, a.err)
	}
	if err := a.p.c.CloseWrite(); err != nil {
		return err
	}
	if rest, err := io.ReadAll(a.p.c); err != nil || len(rest) > 0 {
		return fmt.Errorf("after %d requests: %d bytes more, %w", a.seq, len(rest), err)
	}
	return a.p.c.Close()
}

// asked returns the function of a scenario with three callers. It calls disturb with the first
// caller, and the others must not notice.
func asked(disturb func(r *round, a *asker) error) func(*round) error {
	return func(r *round) error {
		list, closeAll, err := r.askers(3)
		if err != nil {
			return err
		}
		defer closeAll()
		time.Sleep(time.Duration(r.random.IntN(300)) * time.Millisecond)
		if err := disturb(r, list[0]); err != nil {
			return err
		}
		for _, a := range list[1:] {
			if err := a.finish(); err != nil {
				return fmt.Errorf("another connection: %w", err)
			}
		}
		return nil
	}
}

func answererKilled(r *round, a *asker) error {
	r.began = time.Now()
	if err := a.p.signal("KILL"); err != nil {
		return err
	}
	a.done.Wait()
	if errors.Is(a.err, errWrongBytes) || errors.Is(a.err, io.EOF) { // a killed end must not look like an orderly end
		return fmt.Errorf("request %d, whose end was killed: %w", a.seq, a.err)
	}
	return a.p.c.Close()
}

func answererStopped(r *round, a *asker) error {
	if err := a.p.signal("STOP"); err != nil {
		return err
	}
	time.Sleep(r.stopped())
	r.began = time.Now()
	return errors.Join(a.p.signal("CONT"), a.finish())
}

// answererLate stops the other end until a deadline has ended the wait for its answer. The answer
// comes after that.
func answererLate(r *round, a *asker) error {
	if err := a.p.signal("STOP"); err != nil {
		return err
	}
	r.began = time.Now()
	if err := a.p.c.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		return err
	}
	a.done.Wait()
	if !errors.Is(a.err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("request %d to a stopped end: %w", a.seq, a.err)
	}
	if err := errors.Join(a.p.signal("CONT"), a.p.c.SetReadDeadline(time.Time{}), a.answered()); err != nil {
		return fmt.Errorf("the late answer: %w", err)
	}
	a.run()
	time.Sleep(20 * time.Millisecond)
	return a.finish()
}

var streamAskRows = []scenario{
	rdmanetRow("three callers that wait for each answer: SIGKILL of one of the other ends",
		"its caller's Read or Write fails; each answer before is right; the other callers go on",
		asked(answererKilled), often),
	rdmanetRow("the same: SIGSTOP of one of the other ends, then SIGCONT",
		"no error; each answer is right; the other callers go on", asked(answererStopped), seldom),
	rdmanetRow("the same: a deadline ends the wait for a stopped end, which answers late",
		"os.ErrDeadlineExceeded; the answer comes after it; the other callers go on", asked(answererLate),
		map[string][2]int{"tcp": {20, 500}, "rxe": {4, 50}, "siw": {4, 20}},
		"loop: a stopped process may hold the device's lock"),
}
