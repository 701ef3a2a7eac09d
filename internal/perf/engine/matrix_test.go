package engine

import (
	"context"
	"errors"
	"regexp"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/internal/perf/result"
)

// option lists the values that one command-line flag can have.
type option []func(*result.Case)

func values[T any](set func(*result.Case, T), all ...T) option {
	var o option
	for _, v := range all {
		o = append(o, func(c *result.Case) { set(c, v) })
	}
	return o
}

// matrix returns every combination of the options.
func matrix() []result.Case {
	cases := []result.Case{result.Default()}
	for _, o := range []option{
		values(func(c *result.Case, v string) { c.Test = v }, result.Tests...),
		values(func(c *result.Case, v string) { c.Mode = v }, result.Modes...),
		values(func(c *result.Case, v string) { c.Layer = v }, result.Layers...),
		values(func(c *result.Case, v string) { c.Direction = v }, result.Directions...),
		values(func(c *result.Case, v string) { c.Poll = v }, result.Polls...),
		values(func(c *result.Case, v bool) { c.SRQ = v }, false, true),
		values(func(c *result.Case, v int) { c.QPs = v }, 1, 3),
		values(func(c *result.Case, v int) { c.Batch = v }, 1, 4),
		values(func(c *result.Case, v bool) { c.Verify = v }, false, true),
		values(func(c *result.Case, v float64) { c.Rate = v }, 0, 1e5),
		values(func(c *result.Case, v result.Seconds) {
			if c.Duration = v; v == 0 {
				c.Iters = 9
			}
		}, 0, result.Seconds(time.Millisecond)),
		values(func(c *result.Case, v int) { c.Inline = v }, -1, 16),
	} {
		var next []result.Case
		for _, c := range cases {
			for _, set := range o {
				c := c
				set(&c)
				next = append(next, c)
			}
		}
		cases = next
	}
	return cases
}

var flagNamed = regexp.MustCompile(`--[a-z]+`)

// Every combination of the options ends, either with a result, or with an error that names a flag
// before anything has run.
func TestMatrix(t *testing.T) {
	for _, device := range devices() {
		t.Run(device, func(t *testing.T) {
			every := 5 // all take half a minute; primes, so that each option still meets each other
			switch {
			case device != "mem0":
				every = 499
			case raceEnabled || testing.Short():
				every = 29
			}
			ran, refused := 0, 0
			for i, c := range matrix() {
				if every > 5 && i%every != 0 {
					continue
				}
				c.Size, c.Depth, c.RxDepth = 32, 8, 16
				c.Complete()
				if err := c.Validate(); err != nil {
					refused++
					assert.Assert(t, flagNamed.MatchString(err.Error()), "%s: %v", c.Name(), err)
					continue
				}
				if i%every != 0 {
					continue
				}
				begun := false
				ctx, cancel := context.WithTimeoutCause(t.Context(), patience, errors.New("it hangs"))
				cl := &Client{Setup: Setup{Device: device}}
				cl.Watcher.Case = func(int, int, *result.Case, int) { begun = true }
				doc, err := Local(ctx, cl, nil, Plan{Cases: []result.Case{c}, Repeats: 1})
				cancel()
				switch {
				case err != nil && begun:
					t.Errorf("%s: %v\n%+v", c.Name(), err, c)
				case err != nil:
					refused++
					assert.Assert(t, flagNamed.MatchString(err.Error()), "%s: %v", c.Name(), err)
				default:
					ran++
					for _, f := range doc.Runs[0].Flows() {
						assert.Assert(t, f.Stream.Ops > 0 && f.Stream.Elapsed > 0, "%s: %+v", c.Name(), f.Stream)
					}
				}
			}
			t.Logf("%d ran, %d were refused", ran, refused)
			assert.Assert(t, ran > 0 && refused > 0)
		})
	}
}
