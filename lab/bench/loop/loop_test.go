package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// Every loop of every layer measures something, and no time is shorter than the delay of the wire.
func TestLoops(t *testing.T) {
	needsLoop(t)
	const delay = 2 * time.Microsecond
	t.Setenv("GODAT_LOOP_WIRE", delay.String())
	layers := map[string]func(work) (run, error){"c": buildC(t, delay), "cverbs": runCverbs, "udat": runUdat}
	for layer, do := range layers {
		for name, w := range map[string]work{
			"ping":          {Kind: kindPing, Threads: 1},
			"two threads":   {Kind: kindPing, Threads: 2, Size: 4096},
			"events":        {Kind: kindPing, Threads: 1, Events: true},
			"events of two": {Kind: kindPing, Threads: 2, Events: true},
			"rate":          {Kind: kindRate},
			"one":           {Kind: kindBatch, Batch: 1},
			"batch":         {Kind: kindBatch, Batch: 32},
			"many":          {Kind: kindMany, Ends: 100},
		} {
			t.Run(layer+"/"+name, func(t *testing.T) {
				w.Size, w.Warmup, w.Time = max(w.Size, 64), 2*time.Millisecond, 10*time.Millisecond
				r, err := do(w)
				assert.NilError(t, err)
				if w.Kind != kindPing {
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

func needsLoop(t *testing.T) {
	if os.Getenv("GODAT_TEST_DEVICE") != "loop0" {
		t.Skip("needs the loop device: lab/loopdev/loop.sh")
	}
}

// buildC builds the loops in C, and returns a function that runs them. Its result has three
// samples: the least, the median and the 99th percentile.
func buildC(t *testing.T, delay time.Duration) func(work) (run, error) {
	bin := filepath.Join(t.TempDir(), "loopbench")
	out, err := exec.Command("cc", "-O2", "-Wall", "-Werror", "-o", bin, "../../../lab/loopdev/loopbench.c", "-libverbs",
		"-lpthread").CombinedOutput()
	assert.NilError(t, err, "%s", out)
	return func(w work) (r run, err error) {
		args := []string{
			"-delay", delay.String(), "-warmup", w.Warmup.String(), "-time", w.Time.String(), "-size", fmt.Sprint(w.Size),
			"-batch", fmt.Sprint(w.Batch), "-ends", fmt.Sprint(max(w.Ends, 1)), "-threads", fmt.Sprint(w.Threads),
		}
		if w.Events {
			args = append(args, "-events")
		}
		for name, k := range kinds {
			if k == w.Kind {
				args = append(args, name)
			}
		}
		var figures struct {
			Min, P50, P99 uint32
			Ops           uint64
			Took          time.Duration
		}
		out, err := exec.Command(bin, args...).Output()
		if err == nil {
			err = json.Unmarshal(out, &figures)
		}
		return run{samples: []uint32{figures.Min, figures.P50, figures.P99}, ops: figures.Ops, took: figures.Took}, err
	}
}
