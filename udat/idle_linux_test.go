package udat_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/internal/leaktest"
	"github.com/godat/godat/udat"
)

// roleIdle connects two endpoints, transfers a message each way, and does nothing more.
func roleIdle(t *testing.T, dev string) {
	a, b := pair(t, dev, setup{})
	for _, e := range [][2]*end{{a, b}, {b, a}} {
		e[1].receive(0, 1)
		assert.NilError(t, e[0].ep.PostSend(e[0].iov(0, 8), 1, 0))
		completion(t, e[1].recv, 1)
		completion(t, e[0].request, 1)
	}
	fmt.Println("idle")
	select {}
}

// TestIdle: unused endpoints wake no thread of their process. The limit leaves room for two
// keep-alives and for Go's runtime; a poll every 100 ms would exceed it.
func TestIdle(t *testing.T) {
	onEachOutside(t, func(t *testing.T, dev string) {
		cmd, out := process(t, "idle", dev, 0)
		for out.Scan() && out.Text() != "idle" {
		}
		const rest = 2 * time.Second
		time.Sleep(rest / 2)
		before, err := leaktest.Switches(cmd.Process.Pid)
		assert.NilError(t, err)
		time.Sleep(rest)
		after, err := leaktest.Switches(cmd.Process.Pid)
		assert.NilError(t, err)
		t.Logf("%d voluntary context switches in %v", after-before, rest)
		assert.Assert(t, after-before <= 15, "%d voluntary context switches in %v", after-before, rest)
	})
}

// TestIdlePeerKilled kills the peer's process while both ends are idle: the connection ends
// although no call dequeues completions.
func TestIdlePeerKilled(t *testing.T) {
	onEachOutside(t, func(t *testing.T, dev string) {
		crossProcess(t, dev)
		cmd, out := process(t, "sink", dev, 0)
		var host string
		var qual udat.ConnQual
		for out.Scan() {
			if n, _ := fmt.Sscanf(out.Text(), "at %s %d", &host, &qual); n == 2 {
				break
			}
		}
		a := newEnd(t, dev, setup{opts: keepAlive(0)})
		assert.NilError(t, a.ep.Connect(netip.MustParseAddr(host), qual, patience, nil, 0, 0))
		expect(t, a.conn, udat.EventConnectionEstablished)
		a.receive(0, 1)
		becomesIdle(t, a.request)
		becomesIdle(t, a.recv)
		assert.NilError(t, cmd.Process.Kill())
		ev := next(t, a.conn)
		assert.Assert(t, ev.Number == udat.EventConnectionDisconnected || ev.Number == udat.EventConnectionBroken,
			describe(ev))
		flushed(t, a.recv, 1)
	})
}
