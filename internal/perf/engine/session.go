package engine

import (
	"context"
	"fmt"

	"github.com/godat/godat/internal/perf/result"
)

// session is one end of a conversation on a control connection, after the hellos.
type session struct {
	ctl       *control
	chosen    choice
	counted   portCounters    // counters of the chosen device
	client    bool            // this end is the client
	cpu       *int            // processor to pin the loop to; may be nil
	memory    *budget         // budget of the cases of all clients of the server
	finish    <-chan struct{} // when closed, the run ends and the results so far are kept; may be nil
	watch     func(result.Interval)
	intervals []result.Interval           // of both ends in the current run; client only
	start     func(context.Context) error // called when the connections are established; may be nil
	disturbed func() bool                 // another client has measured meanwhile; server only
}

// fit adapts the case to the memory limits and returns its layout. With verification every request
// and receive needs its own slot, so the function may reduce the depths. The returned notes say
// what it has reduced.
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
		notes = append(notes,
			fmt.Sprintf("depth is %d instead of %d: with --verify every outstanding message has memory of its own",
				lay.tx.slots, c.Depth))
		c.Depth = int(lay.tx.slots)
		c.Batch = min(c.Batch, c.Depth)
	}
	if c.TwoSided() && lay.rx.slots < uint64(c.RxDepth) {
		c.RxDepth = int(lay.rx.slots)
	}
	lay, err = layoutOf(c)
	return lay, notes, err
}

func (s *session) initiates(c *result.Case) bool {
	return c.Direction == result.Both || (c.Direction == result.Out) == s.client
}

func (s *session) see(iv result.Interval) {
	s.intervals = append(s.intervals, iv)
	if s.watch != nil {
		s.watch(iv)
	}
}
