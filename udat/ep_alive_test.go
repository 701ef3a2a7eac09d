package udat_test

import (
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/cverbs"
	"github.com/godat/godat/udat"
	"github.com/godat/godat/udat/internal/fabric/faultfabric"
	"github.com/godat/godat/udat/internal/rule"
	"github.com/godat/godat/udat/internal/softnic"
)

// keepAlive is short, so that the tests are; 4 of them bound the time to the event.
func keepAlive(d time.Duration) []udat.Option { return []udat.Option{udat.WithQuickKeepAlive(d)} }

// TestVanishedPeer: a connection whose peer has vanished without a message is broken, whether it is
// idle or not, and even if a Send waits for a receive.
func TestVanishedPeer(t *testing.T) {
	onMem(t, func(t *testing.T, dev string) {
		for _, sends := range []int{0, 1} {
			a, b := pair(t, dev, setup{opts: keepAlive(300 * time.Millisecond)})
			for range sends {
				assert.NilError(t, a.ep.PostSend(a.iov(0, 8), 1, 0))
			}
			time.Sleep(1500 * time.Millisecond)
			assert.Equal(t, state(t, a.ep), udat.EPConnected)
			b.faults().Kill()
			ev := expect(t, a.conn, udat.EventConnectionBroken)
			assert.ErrorContains(t, ev.Err(), "the peer's device does not answer")
			if sends > 0 {
				assert.Equal(t, next(t, a.request).Status, udat.DTOErrTransport)
			}
			empty(t, a.request) // the keep-alive makes no event
			assert.NilError(t, a.ep.Reset())
		}
	})
}

// TestSilentRequests: a vanished peer is noticed although the device retries the keep-alive for
// ever, as soft-RoCE does with 7 retries. A Send may wait for ever.
func TestSilentRequests(t *testing.T) {
	onMem(t, func(t *testing.T, dev string) {
		for _, sends := range []bool{false, true} {
			var script faultfabric.Script
			a, b := pair(t, dev, setup{script: &script, opts: keepAlive(100 * time.Millisecond)})
			hidden := script.On(faultfabric.Poll, udat.CompletionQueue(a.request)).Drop()
			if sends {
				b.receive(0, 1)
				assert.NilError(t, a.ep.PostSend(a.iov(0, 8), 1, 0))
				time.Sleep(3 * time.Second)
				assert.Equal(t, state(t, a.ep), udat.EPConnected)
				hidden.Stop()
				completion(t, a.request, 1)
				continue
			}
			ev := expectUnpolled(t, a, hidden)
			assert.ErrorContains(t, ev.Err(), "answered for")
		}
	})
}

// TestKeepAliveIsNoRequest: GetStatus reports the requests as idle while only a keep-alive is in
// flight.
func TestKeepAliveIsNoRequest(t *testing.T) {
	onMem(t, func(t *testing.T, dev string) {
		var script faultfabric.Script
		a, _ := pair(t, dev, setup{script: &script, opts: keepAlive(100 * time.Millisecond)})
		script.On(faultfabric.Poll, udat.CompletionQueue(a.request)).Drop()
		posts := script.On(faultfabric.PostSend).Count()
		status := func(want bool) {
			t.Helper()
			_, _, idle, err := a.ep.GetStatus()
			assert.NilError(t, err)
			assert.Equal(t, idle, want)
		}
		eventually(t, func() bool { return posts.Calls() > 0 }, "no keep-alive is posted")
		status(true)
		assert.NilError(t, a.ep.PostSend(a.iov(0, 8), 1, 0)) // after the keep-alive
		status(false)
		rule.Proves(t, "EP-STATUS-02")
	})
}

// TestForgottenConnection: a connection is broken if its peer has disconnected but the message was
// lost, whether the connection is idle or a Send waits for a receive.
func TestForgottenConnection(t *testing.T) {
	onMem(t, func(t *testing.T, dev string) {
		for sends := range 3 {
			a, b := pair(t, dev, setup{opts: keepAlive(100 * time.Millisecond)})
			for range sends {
				assert.NilError(t, a.ep.PostSend(a.iov(0, 8), 1, 0))
			}
			b.faults().Lose(softnic.MsgDisconnect, 1)
			assert.NilError(t, b.ep.Disconnect(udat.CloseAbrupt))
			expect(t, a.conn, udat.EventConnectionBroken)
			for range sends {
				assert.Assert(t, next(t, a.request).Status != udat.DTOSuccess)
			}
			empty(t, a.request)
		}
	})
}

// expectUnpolled waits for the end of a connection whose completions are hidden until it ends.
func expectUnpolled(t *testing.T, e *end, hidden *faultfabric.Rule) udat.Event {
	t.Helper()
	become(t, e.ep, udat.EPDisconnected)
	hidden.Stop()
	return expect(t, e.conn, udat.EventConnectionBroken)
}

// TestKeepAliveIdle: an idle connection stays for many intervals at both ends, with and without a
// Send that waits for a receive. Without the keep-alive a vanished peer is not noticed.
func TestKeepAliveIdle(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		interval := time.Second
		if dev == "mem0" {
			interval /= 10
		}
		opts := keepAlive(interval)
		a, b := pair(t, dev, setup{opts: opts})
		c, d := pair(t, dev, setup{opts: opts})
		waits := udat.DeviceAttr(c.ia).Acknowledged // iWARP: the peer ends the connection
		if waits {
			assert.NilError(t, c.ep.PostSend(c.iov(0, 8), 7, 0))
		}
		time.Sleep(8 * interval)
		for _, e := range []*end{a, b, c, d} {
			assert.Equal(t, state(t, e.ep), udat.EPConnected)
			empty(t, e.request)
			empty(t, e.recv)
		}
		if waits {
			d.receive(0, 3)
			completion(t, d.recv, 3)
			completion(t, c.request, 7)
		}
		part(t, a, b, udat.CloseGraceful)
		part(t, c, d, udat.CloseGraceful)
	})
	onMem(t, func(t *testing.T, dev string) {
		a, b := pair(t, dev, setup{opts: keepAlive(0)})
		b.faults().Kill()
		time.Sleep(time.Second)
		assert.Equal(t, state(t, a.ep), udat.EPConnected)
	})
}

// TestKeepAliveEnds: the keep-alive runs while the adapter has connections, and starts again with a
// later connection.
func TestKeepAliveEnds(t *testing.T) {
	onMem(t, func(t *testing.T, dev string) {
		a, b := newEnd(t, dev, setup{opts: keepAlive(20 * time.Millisecond)}), newEnd(t, dev, setup{})
		for range 2 {
			connect(t, a, b)
			assert.Assert(t, udat.FlusherOf(a.ia).Running())
			part(t, a, b, udat.CloseGraceful)
			eventually(t, func() bool { return !udat.FlusherOf(a.ia).Running() }, "the keep-alive goes on")
			assert.NilError(t, a.ep.Reset())
			assert.NilError(t, b.ep.Reset())
		}
	})
}

// TestKeepAliveOfDevice: where the device has a keep-alive the adapter has none. A peer whose
// program is stopped could not answer its requests.
func TestKeepAliveOfDevice(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, _ := pair(t, dev, setup{})
		assert.Equal(t, udat.FlusherOf(a.ia).Running(), !udat.DeviceAttr(a.ia).WatchesPeers)
	})
}

// TestKeepAliveRange: the option names its limits.
func TestKeepAliveRange(t *testing.T) {
	for _, d := range []time.Duration{-1, 1, 999 * time.Millisecond, 61 * time.Minute} {
		_, err := udat.Open("mem0", udat.WithKeepAlive(d))
		assert.ErrorIs(t, err, udat.ErrInvalidParameter)
		assert.ErrorContains(t, err, "must be 0 or from 1s to 1h")
	}
	for _, d := range []time.Duration{0, time.Second, time.Hour} {
		ia, err := udat.Open("mem0", udat.WithKeepAlive(d))
		assert.NilError(t, err)
		assert.NilError(t, ia.Close(udat.CloseAbrupt))
	}
}

// TestMarkOnlyBehindSuppressed: after a request that makes a completion the library posts no
// request of its own.
func TestMarkOnlyBehindSuppressed(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		var script faultfabric.Script
		a, _ := pair(t, dev, setup{script: &script})
		needAcknowledged(t, a)
		posts := script.On(faultfabric.PostSend).Count()
		for cookie, flags := range []udat.CompletionFlags{0, udat.CompletionSuppress} { // they wait for a receive
			assert.NilError(t, a.ep.PostSend(nil, udat.Cookie(cookie), flags))
			_, _, idle, err := a.ep.GetStatus()
			assert.NilError(t, err)
			assert.Assert(t, !idle)
			assert.Equal(t, posts.Calls(), []int{1, 3}[cookie])
		}
	})
}

// TestVanishedQueuePair: the peer's queue pair has vanished without a message, but its host still
// answers. The connection is broken, whether it is idle or a request is in flight, even a Send
// whose receiver was not ready.
func TestVanishedQueuePair(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		send := func(e *end) error { return e.ep.PostSend(e.iov(0, 8), 1, 0) }
		for _, c := range []struct {
			name          string
			before, after func(e *end) error
		}{
			{"idle", nil, nil},
			{"write", nil, func(e *end) error {
				return e.ep.PostRDMAWrite(e.iov(0, 8), 1, udat.RMRTriplet{RMRContext: 1, SegmentLength: 8}, 0)
			}},
			{"send", nil, send},
			{"send that waits", send, nil},
		} {
			if strings.HasPrefix(dev, "loop") && strings.HasPrefix(c.name, "send") {
				t.Skip("the loop device sends again for ever")
			}
			e := newEnd(t, dev, setup{opts: []udat.Option{udat.WithKeepAlive(2 * time.Second)}})
			p := newCPeer(t, e)
			assert.NilError(t, e.ep.Connect(e.ia.Addr(), p.listens(e.ia.Addr()), patience, nil, 0, 0))
			id := p.request().ID
			p.drive(id)
			assert.NilError(t, id.Accept(cverbs.ConnParam{QPNum: p.qp.Num(), RNRRetryCount: 7}))
			p.event(cverbs.CMEventEstablished)
			expect(t, e.conn, udat.EventConnectionEstablished)
			if c.before != nil {
				assert.NilError(t, c.before(e))
				time.Sleep(time.Second)
				assert.Equal(t, state(t, e.ep), udat.EPConnected)
			}
			start := time.Now()
			assert.NilError(t, p.qp.Modify(cverbs.QPAttr{State: cverbs.QPStateReset}, cverbs.QPAttrState))
			if c.after != nil {
				assert.NilError(t, c.after(e))
			}
			ev := expect(t, e.conn, udat.EventConnectionBroken)
			t.Logf("%s: after %v: %v", c.name, time.Since(start), ev.Err())
		}
	})
}

// TestKeepAliveSuppressed: the answers of the peer to suppressed requests count, although these
// requests make no completion.
func TestKeepAliveSuppressed(t *testing.T) {
	onMem(t, func(t *testing.T, dev string) {
		for _, writes := range []int{1, 3} {
			a, b := pair(t, dev, setup{opts: keepAlive(100 * time.Millisecond)})
			for i := range writes {
				assert.NilError(t, a.ep.PostRDMAWrite(a.iov(0, 8), udat.Cookie(i), b.mem.RMRTriplet(0, 8), udat.CompletionSuppress))
			}
			time.Sleep(1500 * time.Millisecond)
			assert.Equal(t, state(t, a.ep), udat.EPConnected)
			assert.Equal(t, state(t, b.ep), udat.EPConnected)
			empty(t, a.conn)
			empty(t, a.request)
		}
	})
}

// TestKeepAlivePatience: how long a request may stay unanswered depends on its bytes and on those
// of the suppressed requests before it: 3 checks, and one more for each second that 4096 bytes per
// second need.
func TestKeepAlivePatience(t *testing.T) {
	onMem(t, func(t *testing.T, dev string) {
		const tenth = 100 * time.Millisecond
		var ends []*end
		var hidden []*faultfabric.Rule
		cases := []struct {
			interval time.Duration
			writes   []int // bytes; all but the last two are suppressed
			want     string
		}{
			{tenth, []int{0}, "for 300ms"},
			{tenth, []int{4095}, "for 300ms"},
			{tenth, []int{4096}, "for 400ms"},
			{tenth, []int{16384}, "for 700ms"},
			{tenth, []int{8192, 4096, 65536}, "for 600ms"},
			{tenth, []int{65536}, "for 1.9s"},
			{time.Second, []int{8191}, "for 3s"},
			{time.Second, []int{8192}, "for 4s"},
		}
		for _, c := range cases {
			var script faultfabric.Script
			a, b := pair(t, dev, setup{script: &script, opts: keepAlive(c.interval)})
			hidden = append(hidden, script.On(faultfabric.Poll, udat.CompletionQueue(a.request)).Drop())
			for i, n := range c.writes {
				var flags udat.CompletionFlags
				if i < len(c.writes)-2 {
					flags = udat.CompletionSuppress
				}
				assert.NilError(t, a.ep.PostRDMAWrite(a.iov(0, n), 1, b.mem.RMRTriplet(0, n), flags))
			}
			ends = append(ends, a)
		}
		for i, c := range cases {
			ev := expectUnpolled(t, ends[i], hidden[i])
			assert.ErrorContains(t, ev.Err(), "answered "+c.want, "%v", c.writes)
		}
	})
}
