package engine

import (
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/internal/perf/result"
)

// Unreliable connections and datagrams measure as reliable ones do. What finds no receive is lost,
// and counted at the end that misses it; the run ends all the same.
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
