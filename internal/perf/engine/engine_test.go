package engine

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"strings"
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
	return Local(ctx, &Client{Device: device, Version: "test"}, nil, Plan{Cases: cases, Repeats: 1})
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
