package engine

import (
	"context"
	"fmt"
	"sync"

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
		err = s.connectUnlessFinished(ctx, l, m)
	} else {
		err = s.accept(ctx, l, m)
	}
	if err != nil {
		return nil, nil, err
	}
	return s.measure(ctx, c, lay, l, before)
}

// measure runs the loop. Meanwhile another goroutine exchanges messages with the peer. The argument
// before contains the port's counters before the run.
func (s *session) measure(ctx context.Context, c *result.Case, lay layout, l link, before result.Counters) (own,
	other *result.End, err error) {
	sh := newShared()
	if c.Iters > 0 {
		sh.expect.Store(c.Iters + c.Warmup) // the peer announces the same number later
	}
	defer context.AfterFunc(ctx, func() { sh.abort(context.Cause(ctx)) })()
	p := &peer{session: s, c: c, sh: sh, own: make(chan result.Interval, 64), over: make(chan *result.End, 1)}
	w := newWorker(c, lay, l, sh, s.initiates(c), s.chosen.Fabric, p.interval, p.sent)
	s.intervals = nil
	var talked sync.WaitGroup
	talked.Go(func() {
		if err := p.talk(); err != nil {
			sh.abort(err)
		}
	})
	if own, err = s.loop(w); err == nil {
		own.Counters = before.Until(s.counted.read())
		if s.disturbed != nil && s.disturbed() {
			own.Notes = append(own.Notes, "another client measured at this server at the same time")
		}
	}
	p.over <- own
	talked.Wait()
	if err == nil {
		err = sh.err()
	}
	if err != nil || !s.client {
		return own, nil, err
	}
	for _, iv := range s.intervals {
		end := own
		if iv.End == serverEnd {
			end = p.end
		}
		end.Intervals = append(end.Intervals, iv)
	}
	return own, p.end, nil
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
