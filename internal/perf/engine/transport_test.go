package engine

import (
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/internal/perf/result"
)

// Cases run over unreliable connections and datagrams as over reliable connections. A message that
// finds no receive is lost. The end that misses it counts it, and the run still ends.
func TestTransports(t *testing.T) {
	onEach(t, func(t *testing.T, device string, base result.Case) {
		if base.Layer != result.Cverbs || device == "loop0" {
			t.Skip("there are no other transports on it")
		}
		for _, transport := range []string{result.UC, result.UD} {
			base.Transport, base.Size, base.Iters = transport, 1000, 50
			base.Stall = result.Seconds(time.Minute)
			latency, bandwidth, losing := base, base, base
			bandwidth.Mode, bandwidth.QPs = result.Bandwidth, 2
			losing.Mode, losing.RxDepth, losing.Iters = result.Bandwidth, 1, 1000
			doc, err := measure(t, device, latency, bandwidth, losing)
			assert.NilError(t, err)
			assert.Equal(t, doc.Runs[0].Client.Initiated.Latency.Count, int64(50))
			for _, run := range doc.Runs[1:] {
				sent := run.Case.Iters + run.Case.Warmup
				assert.Equal(t, run.Client.Initiated.Ops, run.Case.Iters)
				assert.Assert(t, run.Server.Lost >= 0 && run.Server.Lost < sent, "%d of %d", run.Server.Lost, sent)
			}
			assert.Assert(t, doc.Runs[2].Server.Lost > 0, "one receive was enough for 1000 messages")
		}
	})
}

// TestRestIsLost: a receiver counts missing messages as lost half a second after its peer has sent
// all. One of perftest's programs does not report that, so the receiver waits for half of --stall
// after the last message, and without a limit for the first one.
func TestRestIsLost(t *testing.T) {
	for _, c := range []struct {
		foreign  bool
		received int64
		idle     time.Duration
		lost     bool
	}{
		{false, 0, 400 * time.Millisecond, false}, {false, 0, 600 * time.Millisecond, true},
		{true, 1, 14 * time.Second, false}, {true, 1, 16 * time.Second, true}, {true, 0, 16 * time.Second, false},
	} {
		w := &worker{c: &result.Case{Transport: result.UD, Stall: result.Seconds(30 * time.Second)}, sh: newShared(),
			received: c.received, idle: idleState{empty: 1}}
		w.sh.foreign = c.foreign
		w.sh.setExpect([]uint64{5})
		assert.Equal(t, w.restIsLost(int64(c.idle)), c.lost, "%+v", c)
	}
}
