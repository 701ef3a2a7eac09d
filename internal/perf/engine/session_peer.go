package engine

import (
	"fmt"
	"time"

	"github.com/godat/godat/internal/perf/result"
)

// Values of result.Interval.End.
const clientEnd, serverEnd = "client", "server"

// peer exchanges messages with the other end during a run. All its fields belong to the goroutine
// that runs talk, apart from the channels.
type peer struct {
	*session
	c    *result.Case
	sh   *shared
	own  chan result.Interval // of this end's loop
	over chan *result.End     // this end's result when its loop has ended; nil if it has failed
	end  *result.End          // the peer's result; on the server it is empty
}

// interval reports an interval of this end's loop. It drops the interval if 64 of them are unsent,
// rather than block the loop.
func (p *peer) interval(iv result.Interval) {
	iv.Ended = result.Now()
	select {
	case p.own <- iv:
	default:
	}
}

// sent announces this end's number of operations on each queue pair.
func (p *peer) sent(counts []uint64) {
	p.sh.said.Store(true)
	p.ctl.send(message{Kind: msgSent, Counts: counts})
}

// talk returns when both ends have their results, or when this end's loop has failed. Otherwise it
// returns an error.
func (p *peer) talk() error {
	over, finish := p.over, p.finish
	var late <-chan time.Time
	patience := time.Duration(p.c.Stall) + answerTime
	for over != nil || p.end == nil {
		select {
		case iv := <-p.own:
			p.report(iv)
		case own := <-over:
			if own == nil {
				return nil
			}
			for range len(p.own) { // the intervals go before the result
				p.report(<-p.own)
			}
			if err := p.ctl.send(message{Kind: msgEnd, End: raw(own)}); err != nil {
				return err
			}
			over, late = nil, time.After(patience)
		case m, ok := <-p.ctl.in:
			if !ok {
				return p.ctl.err
			}
			if err := p.hear(m); err != nil {
				return err
			}
		case <-finish:
			finish = nil
			p.sh.finish.Store(true)
			p.ctl.send(message{Kind: msgFinish})
		case <-p.sh.stop:
			return p.sh.err()
		case <-late:
			return fmt.Errorf("this end is done, the %s has not told its result for %v", p.ctl.peer, patience)
		}
	}
	return nil
}

// report passes on an interval of this end. A server sends it to the client.
func (p *peer) report(iv result.Interval) {
	if iv.End = clientEnd; !p.client {
		iv.End = serverEnd
		p.ctl.send(message{Kind: msgInterval, Interval: &iv})
		return
	}
	p.see(iv)
}

// hear handles a message of the peer.
func (p *peer) hear(m message) error {
	if err := p.ctl.judge(m, msgInterval, msgSent, msgFinish, msgEnd); err != nil {
		return err
	}
	switch {
	case m.Kind == msgInterval && m.Interval != nil && p.client:
		m.Interval.End, m.Interval.Ended = serverEnd, result.Now()
		p.see(*m.Interval)
	case m.Kind == msgFinish:
		p.sh.finish.Store(true)
	case m.Kind == msgSent && len(m.Counts) == p.c.QPs:
		p.sh.setExpect(m.Counts)
	case m.Kind == msgEnd && p.end == nil && p.mayEnd():
		if p.end = new(result.End); !p.client { // a server does not need the client's result
			return nil
		}
		end, err := readRaw[result.End](m.End)
		if err != nil {
			return fmt.Errorf("the server's result: %w", err)
		}
		end.Intervals = nil
		p.end = end
	default:
		return fmt.Errorf("the %s's %s message makes no sense here", p.ctl.peer, m.Kind)
	}
	return nil
}

// mayEnd reports whether the peer can have finished its part of the run. A peer that initiates must
// have announced how many operations it ran. A peer that waits for this end's operations must know
// their number: the case contains it, or this end has announced it.
func (p *peer) mayEnd() bool {
	c, sh := p.c, p.sh
	own, peer := p.initiates(c), !p.initiates(c) || c.Direction == result.Both
	waits := own && (!peer || c.TwoSided())
	return (!peer || sh.isTold()) && (!waits || c.Iters > 0 || sh.said.Load())
}
