package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"

	"github.com/godat/godat/internal/perf/result"
)

// session is one end's part of a conversation, after the greeting.
type session struct {
	ctl    *control
	chosen choice
	client bool            // this end is the client
	cpu    *int            // to pin the loop to
	finish <-chan struct{} // closed when the run shall end with what there is; nil: never
	watch  func(result.Interval)
}

// fit makes the case one that the memory permits, and gives the layout. With verification every request and receive
// has a slot of its own.
func fit(c *result.Case) (layout, result.Notes, error) {
	if err := c.Validate(); err != nil {
		return layout{}, nil, err
	}
	lay, err := layoutOf(c)
	if err != nil || !c.Verify || c.Mode == result.Latency && c.Test == result.Write {
		return lay, nil, err
	}
	var notes result.Notes
	if c.Mode == result.Bandwidth && lay.tx.slots < uint64(c.Depth) {
		notes = append(notes, fmt.Sprintf("depth is %d instead of %d: with --verify every outstanding message has memory of its own", lay.tx.slots, c.Depth))
		c.Depth = int(lay.tx.slots)
		c.Batch = min(c.Batch, c.Depth)
	}
	if c.TwoSided() && lay.rx.slots < uint64(c.RxDepth) {
		c.RxDepth = int(lay.rx.slots)
	}
	lay, err = layoutOf(c)
	return lay, notes, err
}

// initiates tells whether this end starts operations.
func (s *session) initiates(c *result.Case) bool {
	return c.Direction == result.Both || (c.Direction == result.Out) == s.client
}

// run does this end's part of a case: connect, measure, tell the peer.
func (s *session) run(ctx context.Context, c *result.Case) (own, peer *result.End, err error) {
	lay, _, err := fit(c)
	if err != nil {
		return nil, nil, err
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
	if s.client {
		err = s.connect(ctx, l)
	} else {
		err = s.accept(ctx, l)
	}
	if err != nil {
		return nil, nil, err
	}
	return s.measure(ctx, c, lay, l)
}

// connect is the client's half of the setup.
func (s *session) connect(ctx context.Context, l link) error {
	ready, err := s.ctl.expect(ctx.Done(), msgReady)
	if err != nil {
		return err
	}
	if ready.Memory == nil || !ready.Addr.IsValid() {
		return errors.New("the server's ready message lacks its address or memory")
	}
	l.setRemote(*ready.Memory)
	setup, cancel := context.WithTimeout(ctx, setupTime)
	defer cancel()
	if err := l.connect(setup, ready.Addr, ready.Token); err != nil {
		return err
	}
	mem := l.memory()
	if err := s.ctl.send(message{Kind: msgConnected, Memory: &mem}); err != nil {
		return err
	}
	_, err = s.ctl.expect(ctx.Done(), msgGo)
	return err
}

// accept is the server's half of the setup.
func (s *session) accept(ctx context.Context, l link) error {
	addr, err := l.listen()
	if err != nil {
		return err
	}
	mem, token := l.memory(), rand.Uint64()
	if err := s.ctl.send(message{Kind: msgReady, Addr: addr, Token: token, Memory: &mem}); err != nil {
		return err
	}
	setup, cancel := context.WithTimeoutCause(ctx, setupTime, fmt.Errorf("the client has not connected within %v", setupTime))
	defer cancel()
	// A client that gives up says so, or goes away, instead of connecting.
	said := make(chan error, 1)
	var connected message
	go func() {
		var err error
		connected, err = s.ctl.expect(setup.Done(), msgConnected)
		if err != nil {
			cancel()
		}
		said <- err
	}()
	err = l.accept(setup, token)
	if err != nil {
		cancel()
	}
	if e := <-said; e != nil && !errors.Is(e, errStopped) {
		return e
	} else if err == nil {
		err = e
	}
	if err != nil {
		return err
	}
	if connected.Memory == nil {
		return errors.New("the client's connected message lacks its memory")
	}
	l.setRemote(*connected.Memory)
	return s.ctl.send(message{Kind: msgGo})
}

// measure runs the loop, and meanwhile listens to the peer.
func (s *session) measure(ctx context.Context, c *result.Case, lay layout, l link) (own, peer *result.End, err error) {
	sh := newShared()
	if c.Iters > 0 {
		sh.expect.Store(c.Iters + c.Warmup) // the peer will say the same, later
	}
	defer context.AfterFunc(ctx, func() { sh.abort(context.Cause(ctx)) })()

	var intervals []result.Interval
	var told sync.WaitGroup
	tell := make(chan result.Interval, 64)
	told.Go(func() {
		for iv := range tell {
			iv.End = "client"
			if !s.client {
				iv.End = "server"
				s.ctl.send(message{Kind: msgInterval, Interval: &iv})
			}
			intervals = append(intervals, iv)
			s.see(iv)
		}
	})
	w := newWorker(c, lay, l, sh, s.initiates(c), s.chosen.Fabric, func(iv result.Interval) {
		select {
		case tell <- iv:
		default: // nobody has taken the last 64: measuring goes first
		}
	}, func(counts []uint64) { s.ctl.send(message{Kind: msgSent, Counts: counts}) })

	peerEnd := make(chan *result.End, 1)
	finished := make(chan struct{})
	var listening sync.WaitGroup
	listening.Go(func() { s.listen(c, sh, peerEnd, finished) })
	listening.Go(func() { s.passFinish(sh, finished) })
	before := readCounters(&s.chosen)
	own, err = s.loop(w)
	close(tell)
	told.Wait()
	if err == nil {
		own.Intervals, own.Counters = intervals, before.until(readCounters(&s.chosen))
		err = s.ctl.send(message{Kind: msgEnd, End: own})
	}
	if err == nil { // the connections stay until the peer is done with them too
		select {
		case peer = <-peerEnd:
		case <-sh.stop:
			err = sh.err()
		case <-time.After(time.Duration(c.Stall) + answerTime):
			err = fmt.Errorf("this end is done, the %s has not told its result for %v", s.ctl.peer, time.Duration(c.Stall)+answerTime)
		}
	}
	close(finished)
	listening.Wait()
	return own, peer, err
}

// loop runs the worker, on the processor that it is pinned to.
func (s *session) loop(w *worker) (*result.End, error) {
	if s.cpu != nil {
		unpin, err := pin(*s.cpu)
		if err != nil {
			return nil, err
		}
		defer unpin()
	}
	return w.run()
}

func (s *session) see(iv result.Interval) {
	if s.watch != nil {
		s.watch(iv)
	}
}

// passFinish ends the run at both ends when this one is told to.
func (s *session) passFinish(sh *shared, finished <-chan struct{}) {
	select {
	case <-s.finish:
		sh.finish.Store(true)
		s.ctl.send(message{Kind: msgFinish})
	case <-finished:
	}
}

// listen takes the peer's messages until it has said its result, or this end has failed.
func (s *session) listen(c *result.Case, sh *shared, peerEnd chan<- *result.End, finished <-chan struct{}) {
	for {
		select {
		case <-finished:
			return
		case m, ok := <-s.ctl.in:
			var err error
			if ok {
				err = s.ctl.judge(m, msgInterval, msgSent, msgFinish, msgEnd)
			} else {
				err = s.ctl.err
			}
			switch {
			case err != nil:
				sh.abort(err)
				return
			case m.Kind == msgInterval && m.Interval != nil:
				s.see(*m.Interval)
			case m.Kind == msgFinish:
				sh.finish.Store(true)
			case m.Kind == msgSent && len(m.Counts) == c.QPs:
				sh.setExpect(m.Counts)
			case m.Kind == msgEnd && m.End != nil:
				peerEnd <- m.End
				return
			default:
				sh.abort(fmt.Errorf("the %s's %s message makes no sense here", s.ctl.peer, m.Kind))
				return
			}
		}
	}
}

// localAddr is the address of this end of the control connection, where it has one.
func (k *control) localAddr() netip.Addr {
	ap, err := netip.ParseAddrPort(k.conn.LocalAddr().String())
	if err != nil {
		return netip.Addr{}
	}
	return ap.Addr()
}
