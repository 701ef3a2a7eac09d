package engine

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/godat/godat/internal/perf/result"
)

// run runs this end's part of a case: it connects, measures, and reports to the peer. It returns
// the results of both ends.
func (s *session) run(ctx context.Context, c *result.Case) (own, peer *result.End, err error) {
	lay, _, err := fit(c)
	if err != nil {
		return nil, nil, err
	}
	giveBack, err := s.memory.take(lay.cost(c))
	if err != nil {
		return nil, nil, err
	}
	defer giveBack()
	// This goroutine is pinned to the processors of the device's NUMA node before the first access
	// to the memory. So the kernel allocates the memory on that node.
	if s.cpu == nil && s.chosen.near != nil {
		unpin, err := pinTo(s.chosen.near)
		if err != nil {
			return nil, nil, err
		}
		defer unpin()
	}
	l, err := openLink(c, lay, s.chosen)
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if e := l.close(); e != nil && err == nil {
			err = fmt.Errorf("closing the connections: %w", e)
		}
	}()
	before := s.counted.read() // the peer begins only after this end has connected
	var m *meeting
	if c.Connect == result.Exchange {
		if m, err = newMeeting(l.(*cverbsLink), &s.chosen); err != nil {
			return nil, nil, err
		}
	}
	if s.client {
		err = s.connect(ctx, l, m)
	} else {
		err = s.accept(ctx, l, m)
	}
	if err != nil {
		return nil, nil, err
	}
	return s.measure(ctx, c, lay, l, before)
}

// measure runs the loop, and reads the peer's messages while the loop runs. The argument before
// contains the port's counters before the run.
func (s *session) measure(ctx context.Context, c *result.Case, lay layout, l link, before result.Counters) (own,
	peer *result.End, err error) {
	sh := newShared()
	if c.Iters > 0 {
		sh.expect.Store(c.Iters + c.Warmup) // the peer announces the same number later
	}
	defer context.AfterFunc(ctx, func() { sh.abort(context.Cause(ctx)) })()

	var intervals []result.Interval // client only; a server sends its intervals to the client
	var told sync.WaitGroup
	tell := make(chan result.Interval, 64)
	told.Go(func() {
		for iv := range tell {
			iv.End = "client"
			if !s.client {
				iv.End = "server"
				s.ctl.send(message{Kind: msgInterval, Interval: &iv})
				continue
			}
			intervals = append(intervals, iv)
			s.see(iv)
		}
	})
	w := newWorker(c, lay, l, sh, s.initiates(c), s.chosen.Fabric, func(iv result.Interval) {
		select {
		case tell <- iv:
		default: // 64 intervals are unsent: drop this one, rather than block the measuring loop
		}
	}, func(counts []uint64) {
		sh.said.Store(true)
		s.ctl.send(message{Kind: msgSent, Counts: counts})
	})

	peerEnd := make(chan *result.End, 1)
	finished, over := make(chan struct{}), make(chan struct{})
	var listening sync.WaitGroup
	listening.Go(func() { s.listen(c, sh, peerEnd, finished, over) })
	listening.Go(func() { s.passFinish(sh, finished) })
	own, err = s.loop(w)
	close(over)
	close(tell)
	told.Wait()
	if err == nil {
		own.Counters = before.Until(s.counted.read())
		err = s.ctl.send(message{Kind: msgEnd, End: raw(own)})
		own.Intervals = intervals
	}
	if err == nil { // keep the connections until the peer no longer needs them
		select {
		case peer = <-peerEnd:
		case <-sh.stop:
			err = sh.err()
		case <-time.After(time.Duration(c.Stall) + answerTime):
			err = fmt.Errorf("this end is done, the %s has not told its result for %v", s.ctl.peer,
				time.Duration(c.Stall)+answerTime)
		}
	}
	close(finished)
	listening.Wait()
	return own, peer, err
}

// loop runs the worker. If s.cpu is not nil, it pins the worker to that processor.
func (s *session) loop(w *worker) (*result.End, error) {
	if s.cpu != nil {
		unpin, err := pinTo([]int{*s.cpu})
		if err != nil {
			return nil, err
		}
		defer unpin()
	}
	return w.run()
}

// passFinish ends the run at both ends when s.finish is closed.
func (s *session) passFinish(sh *shared, finished <-chan struct{}) {
	select {
	case <-s.finish:
		sh.finish.Store(true)
		s.ctl.send(message{Kind: msgFinish})
	case <-finished:
	}
}

// listen reads the peer's messages until the peer's result has come or this end has failed. If the
// peer disconnects after its result and before this end's loop has ended, the method aborts the
// loop.
func (s *session) listen(c *result.Case, sh *shared, peerEnd chan<- *result.End, finished, over <-chan struct{}) {
	end, err := s.hearEnd(c, sh, finished)
	switch {
	case err != nil:
		sh.abort(err)
		return
	case end == nil:
		return
	}
	peerEnd <- end
	select {
	case <-over:
	case <-s.ctl.gone:
		sh.abort(s.ctl.err)
	}
}

// hearEnd handles the peer's messages until the peer's result has come, and returns the result. It
// returns nil when finished is closed.
func (s *session) hearEnd(c *result.Case, sh *shared, finished <-chan struct{}) (*result.End, error) {
	var intervals []result.Interval
	for {
		select {
		case <-finished:
			return nil, nil
		case m, ok := <-s.ctl.in:
			if !ok {
				return nil, s.ctl.err
			}
			if err := s.ctl.judge(m, msgInterval, msgSent, msgFinish, msgEnd); err != nil {
				return nil, err
			}
			switch {
			case m.Kind == msgInterval && m.Interval != nil && s.client:
				m.Interval.End = "server"
				intervals = append(intervals, *m.Interval)
				s.see(*m.Interval)
			case m.Kind == msgFinish:
				sh.finish.Store(true)
			case m.Kind == msgSent && len(m.Counts) == c.QPs:
				sh.setExpect(m.Counts)
			case m.Kind == msgEnd && s.mayEnd(c, sh):
				if !s.client { // a server does not need the client's results
					return new(result.End), nil
				}
				end, err := readRaw[result.End](m.End)
				if err != nil {
					return nil, fmt.Errorf("the server's result: %w", err)
				}
				end.Intervals = intervals
				return end, nil
			default:
				return nil, fmt.Errorf("the %s's %s message makes no sense here", s.ctl.peer, m.Kind)
			}
		}
	}
}

// mayEnd reports whether the peer can have finished its part of the run. A peer that initiates must
// have announced how many operations it ran. A peer that waits for this end's operations must know
// their number: the case contains it, or this end has announced it.
func (s *session) mayEnd(c *result.Case, sh *shared) bool {
	own, peer := s.initiates(c), !s.initiates(c) || c.Direction == result.Both
	waits := own && (!peer || c.TwoSided())
	return (!peer || sh.isTold()) && (!waits || c.Iters > 0 || sh.said.Load())
}
