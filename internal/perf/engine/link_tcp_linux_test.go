package engine

import (
	"fmt"
	"io"
	"net/netip"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/internal/perf/result"
)

// Plain TCP is measured by the same loops: every message of every size arrives, in order and
// verified, over each number of connections, in each direction and with each way to wait.
func TestPlainTCP(t *testing.T) {
	ofNoDevice(t)
	for _, mode := range result.Modes {
		for _, direction := range result.Directions {
			for i, size := range []int{1, 100, 64<<10 + 1} {
				c := result.Default()
				c.Layer, c.Mode, c.Direction, c.Size, c.Verify, c.Iters = result.TCP, mode, direction, size, true, 50
				c.QPs, c.Poll = []int{1, 3, 1}[i], result.Polls[i]
				if mode == result.Latency && direction == result.Both {
					continue
				}
				t.Run(fmt.Sprintf("%s/%s/%d", mode, direction, size), func(t *testing.T) {
					doc, err := measure(t, "mem0", c)
					assert.NilError(t, err)
					flows := doc.Runs[0].Flows()
					assert.Equal(t, len(flows), map[bool]int{true: 2, false: 1}[direction == result.Both])
					for _, f := range flows {
						assert.Equal(t, f.Stream.Ops, c.Iters)
						assert.Equal(t, f.Stream.Bytes, c.Iters*int64(size))
						assert.Assert(t, f.Target.Verified >= c.Iters)
						if mode == result.Latency {
							assert.Equal(t, f.Stream.Latency.Count, c.Iters)
							assert.Assert(t, f.Stream.RoundTrip != nil)
						}
					}
				})
			}
		}
	}
}

// A connection of a stranger is closed and does not count; a peer that closes is an error, not an
// end without data.
func TestPlainTCPStranger(t *testing.T) {
	ofNoDevice(t)
	c := result.Default()
	c.Layer, c.Iters = result.TCP, 10
	c.Complete()
	chosen, err := choose("mem0", netip.Addr{})
	assert.NilError(t, err)
	lay, _, err := fit(&c)
	assert.NilError(t, err)
	open := func() *tcpLink {
		l, err := openLink(&c, lay, chosen)
		assert.NilError(t, err)
		return l.(*tcpLink)
	}
	server, stranger, client := open(), open(), open()
	at, err := server.listen()
	assert.NilError(t, err)
	accepted := make(chan error, 1)
	go func() { accepted <- server.accept(t.Context(), 7) }()
	assert.NilError(t, stranger.connect(t.Context(), at, 8))
	_, err = stranger.wait(make([]done, 4), time.Minute)
	assert.ErrorIs(t, err, io.EOF)
	assert.NilError(t, client.connect(t.Context(), at, 7))
	assert.NilError(t, <-accepted)
	n, err := server.wait(make([]done, 4), 0)
	assert.NilError(t, err)
	assert.Equal(t, n, 0)
	assert.NilError(t, client.close())
	_, err = server.wait(make([]done, 4), time.Minute)
	assert.ErrorIs(t, err, io.EOF)
	assert.NilError(t, server.close())
	assert.NilError(t, stranger.close())
}
