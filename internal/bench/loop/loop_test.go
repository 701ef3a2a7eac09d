//go:build linux && cgo && nulldev

package main

import (
	"slices"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/cverbs"
)

// Every loop of every layer measures something, and nothing that is faster than the wire.
func TestLoops(t *testing.T) {
	const delay = 2 * time.Microsecond
	cverbs.LoopWire(delay, 0)
	defer cverbs.LoopWire(0, 0)
	runC := func(w cverbs.LoopWork) (r run, err error) {
		r.samples, r.ops, r.took, err = cverbs.LoopBench(w)
		return r, err
	}
	layers := map[string]func(cverbs.LoopWork) (run, error){"c": runC, "cverbs": runCverbs, "udat": runUdat}
	for layer, do := range layers {
		for name, w := range map[string]cverbs.LoopWork{
			"ping":           {Kind: cverbs.LoopPing, Threads: 1},
			"two threads":    {Kind: cverbs.LoopPing, Threads: 2, Size: 4096},
			"events":         {Kind: cverbs.LoopPing, Threads: 1, Events: true},
			"events of two":  {Kind: cverbs.LoopPing, Threads: 2, Events: true},
			"write":          {Kind: cverbs.LoopWrite},
			"read":           {Kind: cverbs.LoopRead, Size: 4096},
			"rate":           {Kind: cverbs.LoopRate},
			"one":            {Kind: cverbs.LoopBatch, Batch: 1},
			"batch":          {Kind: cverbs.LoopBatch, Batch: 32},
			"many":           {Kind: cverbs.LoopMany, Ends: 100},
			"posters":        {Kind: cverbs.LoopPosters},
			"shared posters": {Kind: cverbs.LoopPosters, Shared: true},
		} {
			t.Run(layer+"/"+name, func(t *testing.T) {
				w.Size, w.Warmup, w.Time = max(w.Size, 64), 2*time.Millisecond, 10*time.Millisecond
				r, err := do(w)
				assert.NilError(t, err)
				if w.Kind > cverbs.LoopRead {
					assert.Assert(t, r.ops > 0 && r.took >= w.Time, "%+v", r)
					return
				}
				assert.Assert(t, len(r.samples) > 0)
				least := time.Duration(slices.Min(r.samples))
				wire := 2 * delay * 98 / 100 // the device's clock is calibrated to about a percent
				assert.Assert(t, least >= wire, "%v, and the wire alone takes %v", least, wire)
			})
		}
	}
}

func TestWaiters(t *testing.T) {
	for layer, wait := range map[string]func(int) (func() error, error){"cverbs": waitCverbs, "udat": waitUdat} {
		stop, err := wait(50)
		assert.NilError(t, err, layer)
		assert.NilError(t, stop(), layer)
	}
}
