package engine

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/internal/perf/result"
)

// devices returns mem0, and the verbs device that GODAT_TEST_DEVICE names, if it names one. In a
// short run on a verbs device it leaves out mem0.
func devices() []string {
	list := []string{"mem0"}
	if shortOnDevice() {
		list = nil
	}
	if env := os.Getenv("GODAT_TEST_DEVICE"); env != "" {
		list = append(list, strings.Split(env, ",")...)
	}
	return list
}

// shortOnDevice reports whether this is a short run on a device. Other runs test what needs no
// device.
func shortOnDevice() bool { return testing.Short() && os.Getenv("GODAT_TEST_DEVICE") != "" }

// ofNoDevice skips a test that needs no device, in a short run on a device.
func ofNoDevice(t *testing.T) {
	t.Helper()
	if shortOnDevice() {
		t.Skip("not in a short run on a device")
	}
}

// onEach runs a test on every device and layer that there is.
func onEach(t *testing.T, test func(t *testing.T, device string, base result.Case)) {
	for _, device := range devices() {
		for _, layer := range result.Layers {
			if layer == result.Cverbs && device == "mem0" {
				continue
			}
			t.Run(device+"/"+layer, func(t *testing.T) {
				c := result.Default()
				c.Layer, c.Iters = layer, 1000
				test(t, device, c)
			})
		}
	}
}

// measure runs cases with both ends in this process.
func measure(t *testing.T, device string, cases ...result.Case) (*result.Document, error) {
	t.Helper()
	for i := range cases {
		cases[i].Complete()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	return Local(ctx, &Client{Setup: Setup{Device: device, Version: "test"}}, nil, Plan{Cases: cases, Repeats: 1})
}

// Every test, in each mode and with each way to wait, moves as much data as it reports, and
// verifies it.
func TestEveryTest(t *testing.T) {
	iters := int64(200)
	if testing.Short() {
		iters = 50
	}
	onEach(t, func(t *testing.T, device string, base result.Case) {
		for _, test := range result.Tests {
			for _, mode := range result.Modes {
				for _, poll := range result.Polls {
					c := base
					c.Test, c.Mode, c.Poll, c.Iters, c.Size, c.Verify = test, mode, poll, iters, 100, true
					if c.Mode == result.Latency && c.Test == result.Write && poll != result.Busy {
						continue
					}
					if testing.Short() && poll == result.Adaptive && test != result.Send && test != result.Read {
						continue // it is the one, then the other
					}
					t.Run(fmt.Sprintf("%s/%s/%s", test, mode, poll), func(t *testing.T) {
						doc, err := measure(t, device, c)
						assert.NilError(t, err)
						run := doc.Runs[0]
						s := run.Client.Initiated
						assert.Equal(t, s.Ops, iters)
						assert.Equal(t, s.Bytes, iters*int64(run.Case.Size))
						assert.Assert(t, s.Elapsed > 0 && s.OpsS > 0)
						assert.Assert(t, run.Client.Verified+run.Server.Verified > 0)
						if mode == result.Latency {
							l := s.Latency
							assert.Equal(t, l.Count, iters)
							assert.Assert(t, l.Min > 0 && l.Min <= l.At(50) && l.At(50) <= l.At(99.99) && l.At(99.99) <= l.Max)
							assert.Equal(t, s.RoundTrip != nil, run.Case.PingPong())
						}
					})
				}
			}
		}
	})
}

// A wrong payload is noticed, and so is a message of another length.
func TestCorruption(t *testing.T) {
	chosen, err := choose("mem0", netip.Addr{})
	assert.NilError(t, err)
	c := result.Default()
	c.Mode, c.Size, c.Verify, c.Iters = result.Bandwidth, 4096, true, 10
	c.Complete()
	lay, _, err := fit(&c)
	assert.NilError(t, err)
	l, err := openLink(&c, lay, chosen)
	assert.NilError(t, err)
	w := newWorker(&c, lay, l, newShared(), false, fabricMem, nil, nil)
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

// Runs and intervals have a time of the client's clock, in order; the buckets of a histogram are in
// order and have all samples, each below its bound.
func TestStampsAndHistogram(t *testing.T) {
	ofNoDevice(t)
	for _, direction := range []string{result.Out, result.In} {
		c := result.Default()
		c.Direction, c.Interval = direction, result.Seconds(10*time.Millisecond)
		c.Duration = 5 * c.Interval
		before := result.Now()
		doc, err := measure(t, "mem0", c, c)
		assert.NilError(t, err)
		last := before
		for i := range doc.Runs {
			r := &doc.Runs[i]
			assert.Assert(t, !r.Started.Before(last), "run %d started at %v, before %v", i, r.Started, last)
			last = r.Started
			for _, iv := range slices.Concat(r.Client.Intervals, r.Server.Intervals) {
				assert.Assert(t, !iv.Ended.Before(last), "an interval of run %d ended at %v, before %v", i, iv.Ended, last)
				last = iv.Ended
			}
			l := r.Flows()[0].Stream.Latency
			sum, bound := int64(0), 0.0
			for _, b := range l.Histogram {
				assert.Assert(t, b.Count > 0 && b.UpTo > bound)
				sum, bound = sum+b.Count, b.UpTo
			}
			assert.Equal(t, sum, l.Count)
			assert.Equal(t, bound, l.Max)
			assert.Assert(t, l.Histogram[0].UpTo >= l.Min)
			assert.Assert(t, len(l.Histogram) > 1 && len(l.Histogram) < 500)
		}
		assert.Assert(t, !last.After(result.Now()))
	}
}

func TestRoundUp(t *testing.T) {
	for ns, want := range map[int64]int64{0: 0, 9: 9, 99: 99, 100: 100, 101: 110, 990: 990, 991: 1000, 123456: 130000} {
		assert.Equal(t, roundUp(ns), want)
	}
}

// If two clients measure at a server at the same time, both results say so. Alone, and as threads
// of one client, they do not.
func TestTwoClients(t *testing.T) {
	ofNoDevice(t)
	for name, groups := range map[string][]uint64{"alone": {0}, "two": {0, 0}, "of two programs": {1, 2},
		"threads": {7, 7}} {
		t.Run(name, func(t *testing.T) {
			chosen, err := choose("mem0", netip.Addr{})
			assert.NilError(t, err)
			srv := &Server{Setup: Setup{chosen: &chosen}}
			srv.prepare()
			together := &barrier{n: len(groups), open: make(chan struct{}), over: make(chan struct{})}
			docs, errs := make([]*result.Document, len(groups)), make([]error, len(groups))
			var all sync.WaitGroup
			for i, group := range groups {
				a, b := net.Pipe()
				all.Go(func() { srv.serve(t.Context(), b) })
				all.Go(func() {
					c := result.Default()
					c.Iters = 100
					c.Complete()
					cl := &Client{Setup: Setup{Device: "mem0"}, group: group, start: together.wait}
					docs[i], errs[i] = cl.Run(t.Context(), a, Plan{Cases: []result.Case{c}, Repeats: 1})
				})
			}
			all.Wait()
			want := result.Notes(nil)
			if len(groups) > 1 && (groups[0] == 0 || groups[0] != groups[1]) {
				want = result.Notes{"another client measured at this server at the same time"}
			}
			for i := range docs {
				assert.NilError(t, errs[i])
				assert.DeepEqual(t, docs[i].Runs[0].Server.Notes, want)
			}
		})
	}
}
