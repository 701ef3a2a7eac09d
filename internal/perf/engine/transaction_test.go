package engine

import (
	"net/netip"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/internal/perf/result"
)

// Transactions move as much data as they report: with every kind of step, by both ends, on one
// queue pair and on several, with a number of operations and with a duration.
func TestTransactions(t *testing.T) {
	onEach(t, func(t *testing.T, device string, base result.Case) {
		scripts := []string{
			"send:3,send:5000,server-read:70,server-write:33,server-write:9,server-send:1,send:2",
			"read:4K,write:7",
			result.DefaultSteps,
			"send:1",
			"write:100",
			"send:8,server-write:64",
		}
		if testing.Short() {
			scripts = scripts[:2]
		}
		for _, steps := range scripts {
			for _, qps := range []int{1, 3} {
				c := base
				c.Test, c.Steps, c.QPs, c.SRQ, c.Iters, c.Warmup, c.Verify = result.Transaction, steps, qps, qps > 1, 50, 5, true
				if qps > 1 {
					c.Poll = result.Event
				}
				doc, err := measure(t, device, c)
				assert.NilError(t, err, "%s, %d queue pairs", steps, qps)
				run := doc.Runs[0]
				s := run.Client.Initiated
				assert.Equal(t, s.Ops, int64(50))
				assert.Equal(t, s.Bytes, 50*run.Case.Payload())
				assert.Assert(t, run.Client.Verified+run.Server.Verified > 0, steps)
			}
		}
		c := base
		c.Test, c.Duration, c.QPs = result.Transaction, result.Seconds(50e6), 2
		doc, err := measure(t, device, c)
		assert.NilError(t, err)
		assert.Assert(t, doc.Runs[0].Client.Initiated.Ops > 0)
	})
}

// A wrong payload is noticed in each kind of step.
func TestTransactionCorruption(t *testing.T) {
	chosen, err := choose("mem0", netip.Addr{})
	assert.NilError(t, err)
	c := result.Default()
	c.Test, c.Verify, c.Iters = result.Transaction, true, 10
	c.Complete()
	lay, _, err := fit(&c)
	assert.NilError(t, err)
	l, err := openLink(&c, lay, chosen)
	assert.NilError(t, err)
	w := newWorker(&c, lay, l, newShared(), false, fabricMem, nil, nil)
	w.sh.setExpect([]uint64{10})
	assert.ErrorContains(t, w.verifyTargets(), "wrong payload")
	assert.ErrorContains(t, w.gotMessage(&done{recv: true, n: 4096}), "wrong payload")
	assert.ErrorContains(t, w.gotMessage(&done{recv: true, n: 4095}), "a message of 4095 bytes arrived, 4096 were sent")
	assert.NilError(t, l.close())
}

// A case can run in huge pages if the host has some. Otherwise the error says how to reserve them.
func TestHugePages(t *testing.T) {
	onEach(t, func(t *testing.T, device string, base result.Case) {
		c := base
		c.Mode, c.Iters, c.Verify, c.HugePages = result.Bandwidth, 50, true, true
		if _, err := measure(t, device, c); err != nil {
			assert.ErrorContains(t, err, "vm.nr_hugepages")
			t.Skip(err)
		}
	})
}
