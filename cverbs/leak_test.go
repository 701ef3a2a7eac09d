//go:build linux && cgo

package cverbs

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/internal/blocker"
)

// footprint counts the resources that a process can leak.
func footprint(t *testing.T) (fds, goroutines int, kernel string) {
	t.Helper()
	blocker.Free() // opens the descriptors of the blockers, which then stay open
	entries, err := os.ReadDir("/proc/self/fd")
	assert.NilError(t, err)
	if out, err := exec.Command("rdma", "resource").Output(); err == nil {
		kernel = string(out)
	}
	return len(entries), runtime.NumGoroutine(), kernel
}

// After many connections, each with its own queue pairs, regions, queues and channels, the process
// has as many descriptors, goroutines and kernel RDMA resources as before.
func TestManyConnections(t *testing.T) {
	ctx := openDevice(t)
	addr := localAddr(t, ctx)
	cycle := func(t *testing.T) {
		a, b := newEnd(t, ctx), newEnd(t, ctx)
		client, server, cch, sch := meet(t, ctx, addr, a.qp, b.qp)
		b.recv(1, b.sge(0, 100))
		a.send(SendWR{Opcode: OpSend}, a.sge(0, 100))
		a.sent()
		b.received()
		assert.NilError(t, client.Disconnect())
		want(t, sch, CMEventDisconnected)
		assert.NilError(t, server.Disconnect())
		want(t, cch, CMEventDisconnected)
	}
	t.Run("first", cycle) // opens the descriptors that libraries and runtime open only once
	fds, goroutines, kernel := footprint(t)
	n := 1000
	if testing.Short() {
		n = 50
	}
	t.Run("all", func(t *testing.T) {
		for range n {
			ok := t.Run("", cycle)
			assert.Assert(t, ok)
		}
	})
	fds2, goroutines2, kernel2 := 0, 0, ""
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if fds2, goroutines2, kernel2 = footprint(t); fds2 == fds && goroutines2 <= goroutines && kernel2 == kernel {
			break
		}
	}
	t.Logf("after %d connections: %d descriptors, %d goroutines\n%s", n, fds2, goroutines2, kernel2)
	assert.Equal(t, fds2, fds)
	assert.Assert(t, goroutines2 <= goroutines, "%d goroutines before", goroutines)
	assert.Equal(t, kernel2, kernel)
}

// A closed id leaves no handle behind.
func TestClosedIDIsForgotten(t *testing.T) {
	openDevice(t)
	ch := closing[*EventChannel](t)(CreateEventChannel())
	handles := func() int {
		byHandle.ids.mu.RLock()
		defer byHandle.ids.mu.RUnlock()
		return len(byHandle.ids.m)
	}
	before := handles()
	for range 2 {
		id, err := ch.CreateID(PortSpaceTCP)
		assert.NilError(t, err)
		assert.Equal(t, handles(), before+1)
		assert.NilError(t, id.Close())
		assert.Equal(t, handles(), before)
	}
}

func init() { failed = func(ch *CompChannel) { ch.err = errors.New("of an earlier wait") } }
