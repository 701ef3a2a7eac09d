package engine

import (
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/godat/godat/internal/perf/result"
)

// parkTime is how long an end parks at most before it checks whether the case has been stopped.
const parkTime = 50 * time.Millisecond

// watch waits until the peer has announced its number of operations, or until the case is stopped.
// An end that is only the target of one-sided operations does nothing else.
func (w *worker) watch() error {
	select {
	case <-w.sh.told:
		return w.sh.err()
	case <-w.sh.stop:
		return w.sh.err()
	}
}

// waitMore is called after an empty poll. It spins, yields or parks, as the case demands. If
// completions arrive while it parks, it stores them in w.done and returns their number. It returns
// an error if the case was stopped or hangs.
func (w *worker) waitMore() (int, error) {
	i := &w.idle
	if i.empty == 0 {
		i.since = w.now()
	}
	i.empty++
	switch {
	case parks(w.c):
		return w.park()
	case w.c.Poll == result.Adaptive && i.empty%8 == 0 && w.now()-i.since > int64(adaptiveSpin):
		return w.park()
	}
	w.relax(i.empty)
	if i.empty%1024 == 0 {
		return 0, w.look()
	}
	return 0, nil
}

func (w *worker) park() (int, error) {
	timeout := parkTime
	if w.wakeAt > 0 {
		timeout = max(0, min(timeout, time.Duration(w.wakeAt-w.now())))
	}
	n, err := w.l.wait(w.done, timeout)
	if err != nil {
		return 0, w.failed(err)
	}
	if n == 0 {
		return 0, w.look()
	}
	return n, nil
}

// look returns an error if the case was stopped or hangs.
func (w *worker) look() error {
	if err := w.sh.err(); err != nil {
		return err
	}
	// The time limit of --stall applies while requests are in flight, while this end waits for an
	// answer or has an operation to post, and after the peer has announced its number of messages.
	// Otherwise the peer may pause for any time.
	if out := w.outstanding(); out > 0 || w.awaits || w.sh.isTold() {
		if idle := time.Duration(w.now() - w.idle.since); idle > time.Duration(w.c.Stall) {
			return fmt.Errorf("no completion for %v, %d requests in flight (--stall)", idle.Round(time.Millisecond), out)
		}
	}
	return nil
}

func (w *worker) outstanding() (n int) {
	for _, p := range w.pending {
		n += p
	}
	return n
}

// busy ends the idle state, because something has completed.
func (w *worker) busy() {
	if w.idle.empty > 0 {
		w.idle = idleState{}
	}
}

// take returns completions. If there are none, it waits once, as the case demands, and may still
// return none.
func (w *worker) take() ([]done, error) {
	n, err := w.l.poll(w.done, w.spin.polls())
	if err != nil {
		return nil, w.failed(err)
	}
	if n == 0 {
		if n, err = w.waitMore(); n == 0 || err != nil {
			return nil, err
		}
	}
	w.busy()
	return w.done[:n], w.sh.err() // checks sh.err for a loop that never waits long
}

// errNoMore is the error of a wait for a message when none will come, because the peer has sent all
// its messages.
var errNoMore = errors.New("no more messages")

// relax is called after every empty poll. After some of the polls it yields or sleeps.
func (w *worker) relax(empty int) {
	s := &w.spin
	crowded := s.crowded()
	if s.each || crowded && empty%yieldCrowded == 0 {
		runtime.Gosched()
	}
	if empty%64 == 0 {
		now := w.now()
		s.breathe(now)
		if crowded && now-w.idle.since > int64(patienceCrowded) {
			time.Sleep(napCrowded)
		}
	}
}

// poll handles completions without waiting. It puts received messages into the inbox.
func (w *worker) poll() error {
	n, err := w.l.poll(w.done, 1)
	if err != nil {
		return w.failed(err)
	}
	w.sort(w.done[:n])
	return nil
}

// reap handles completions as the method poll does. If there are none, it waits once. It returns
// the number of completions that it has handled.
func (w *worker) reap() (int, error) {
	got, err := w.take()
	if err != nil {
		return 0, err
	}
	w.sort(got)
	return len(got), nil
}

// drain waits until all requests of a queue pair have completed.
func (w *worker) drain(qp int) error {
	for w.pending[qp] > 0 {
		if _, err := w.reap(); err != nil {
			return err
		}
	}
	return nil
}

func (w *worker) sort(got []done) {
	for i := range got {
		if got[i].recv {
			w.inbox = append(w.inbox, got[i])
		} else {
			w.requestsDone(&got[i])
		}
	}
}
