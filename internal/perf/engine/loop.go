package engine

import (
	"fmt"

	"github.com/godat/godat/internal/perf/result"
)

// run runs this end's part of the case and returns the results.
func (w *worker) run() (end *result.End, err error) {
	end = &result.End{}
	w.cost.start() // the loops begin anew when the warm-up has ended
	switch {
	case w.c.Mode == result.Latency && w.initOps:
		err = w.ping()
	case w.c.PingPong():
		err = w.pong()
	case w.c.Mode == result.Latency || !w.initOps && !w.c.TwoSided():
		err = w.watch()
	default:
		err = w.stream()
	}
	if err != nil {
		return nil, err
	}
	ops, bytes := w.rec.ops, w.rec.ops*w.rec.size
	if w.c.Mode == result.Bandwidth && w.c.TwoSided() && w.received > w.c.Warmup {
		n := w.received - w.c.Warmup
		// Between the first and the last of n messages there are n-1 intervals.
		end.Received = &result.Stream{Ops: n - 1, Bytes: (n - 1) * int64(w.c.Size),
			Elapsed: result.Seconds(w.rxLast - w.rxFirst)}
		end.Received.Fill()
		ops, bytes = ops+n, bytes+n*int64(w.c.Size)
	}
	if !w.initOps && end.Received == nil { // a passive end reports its cost per operation of its peer
		ops = w.sh.expect.Load()
		if w.c.PingPong() {
			ops = max(ops-w.c.Warmup, 0)
		} // the target of one-sided operations does not see when the warm-up ends: its cost includes it
		bytes = ops * int64(w.c.Size)
	}
	end.Cost = w.cost.end(ops, bytes)
	if w.initOps { // after the cost, which does not include the histogram's
		end.Initiated = w.rec.stream()
		end.Notes = append(end.Notes, w.missedRate()...)
	}
	if w.c.Verify {
		if err := w.verifyTargets(); err != nil {
			return nil, err
		}
	}
	end.Verified = w.verified
	end.Path = w.l.path()
	if sent := w.expected(); w.c.Lossy() && w.c.Mode == result.Bandwidth && w.c.TwoSided() && sent > 0 {
		end.Lost = sent - w.received
		arrived := 0.0
		if end.Received != nil {
			arrived = end.Received.GbitS
		}
		end.Notes = append(end.Notes, fmt.Sprintf("%s: %d of %d messages were lost (%.3g%%), %.3f Gb/s arrived",
			w.c.Transport, end.Lost, sent, float64(end.Lost)/float64(sent)*100, arrived))
	}
	return end, nil
}
