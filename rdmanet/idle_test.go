//go:build unix

package rdmanet_test

import (
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/rdmanet"
)

// TestIdle has 1,000 connections that do nothing, with a Read blocked on one: they cost memory, no
// goroutine each where they share a poller, and next to no time of a processor.
func TestIdle(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		n := 1000
		if testing.Short() {
			n = 50
		}
		const buffer = 4096
		l := listen(t, dev, rdmanet.ListenConfig{ReadBuffer: buffer, WriteBuffer: buffer})
		d := rdmanet.Dialer{ReadBuffer: buffer, WriteBuffer: buffer}
		first, firstPeer := join(t, dev, l, d) // with the memory that all connections share
		defer firstPeer.Close()
		defer first.Close()
		heap, goroutines := inUse(), runtime.NumGoroutine()
		conns := make([]*rdmanet.Conn, 0, 2*n)
		for range n {
			client, server := join(t, dev, l, d)
			conns = append(conns, client, server)
		}
		each := (int64(inUse()) - int64(heap)) / int64(2*n)
		grown := runtime.NumGoroutine() - goroutines
		read := make(chan error, 1)
		go func() {
			_, err := conns[0].Read(make([]byte, 1))
			read <- err
		}()
		time.Sleep(time.Second) // the goroutines that have made the connections end
		const rest = 2 * time.Second
		before := processorTime(t)
		time.Sleep(rest)
		used := processorTime(t) - before
		t.Logf("%d connections: %d bytes of heap for each end, %d goroutines more, %v of a processor in %v", n, each, grown,
			used, rest)
		assert.Assert(t, each < 64<<10, "%d bytes of heap for each end", each)
		most := n / 4
		if hasGoroutines(dev) {
			most += 4 * n
		}
		assert.Assert(t, grown < most, "%d goroutines more", grown)
		if os.Getenv("GODAT_VM") == "" { // an emulated kernel's timers take long
			assert.Assert(t, used < rest/5, "%v of a processor in %v", used, rest)
		}
		for i, c := range conns {
			if i%200 == 1 { // the connections still work
				go c.Write([]byte("x"))
				_, err := conns[i-1].Write([]byte("x"))
				assert.NilError(t, err)
				_, err = c.Read(make([]byte, 1))
				assert.NilError(t, err)
			}
		}
		assert.NilError(t, <-read)
		for i := 0; i < len(conns); i += 2 {
			go conns[i].Close()
			conns[i+1].Close()
		}
	})
}

// processorTime returns the processor time that this process has used.
func processorTime(t *testing.T) time.Duration {
	var u syscall.Rusage
	assert.NilError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
