package udat_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/godat/godat/internal/leaktest"
	"github.com/godat/godat/udat"
)

// roleStarved accepts one connection, then lets its process open no more files while another
// request comes, and accepts that one when files can be opened again.
func roleStarved(t *testing.T, dev string) {
	e := newEnd(t, dev, setup{})
	second, psp := e.another(nil), listen(t, e)
	fmt.Printf("at %v %d\n", e.ia.Addr(), psp.Qual())
	assert.NilError(t, e.ep.PostRecv(e.iov(0, 8), 0, 0))
	assert.NilError(t, expect(t, e.cr, udat.EventConnectionRequest).CR.Accept(e.ep, nil))
	expect(t, e.conn, udat.EventConnectionEstablished)

	enough := leaktest.LimitFiles(t, 3)
	began, busy := time.Now(), processorTime(t)
	fmt.Println("starved")
	completion(t, e.recv, 0) // the connection goes on
	assert.NilError(t, e.ep.PostSend(e.iov(0, 8), 1, 0))
	completion(t, e.request, 1)
	for range 2 {
		ev := expect(t, e.ia.AsyncEVD(), udat.EventAsyncProviderInternalError)
		assert.Equal(t, ev.Object, udat.Handle(psp))
		assert.Equal(t, ev.Reason, uint32(udat.ReasonOther))
		assert.ErrorIs(t, ev.Err(), udat.ErrInsufficientResources)
		assert.ErrorIs(t, ev.Err(), unix.EMFILE)
		assert.ErrorContains(t, ev.Err(), "open-file limit of the process (RLIMIT_NOFILE, ulimit -n) is reached")
	}
	empty(t, e.cr)
	busy, took := processorTime(t)-busy, time.Since(began)
	assert.Assert(t, busy < took/2, "the process waited for %v, and its threads ran for %v", took, busy)
	enough()

	assert.NilError(t, expect(t, e.cr, udat.EventConnectionRequest).CR.Accept(second, nil))
	expect(t, e.conn, udat.EventConnectionEstablished)
	fmt.Println("fed")
}

// processorTime is how long the threads of this process have run.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var use unix.Rusage
	assert.NilError(t, unix.Getrusage(unix.RUSAGE_SELF, &use))
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}

// TestStarvedListener: a service point of a process that may open no more files reports the limit
// again and again. Meanwhile its connections go on and no processor spins. The request that came
// meanwhile arrives when files can be opened again.
func TestStarvedListener(t *testing.T) {
	const dev = "tcp:127.0.0.1"
	cmd, out := process(t, "starved", dev, 0)
	a := newEnd(t, dev, setup{})
	second := a.another(nil)
	var host netip.Addr
	var qual udat.ConnQual
	fed := false
	for out.Scan() {
		var text string
		switch n, _ := fmt.Sscanf(out.Text(), "at %s %d", &text, &qual); {
		case n == 2:
			host = netip.MustParseAddr(text)
			assert.NilError(t, a.ep.Connect(host, qual, patience, nil, 0, 0))
			expect(t, a.conn, udat.EventConnectionEstablished)
		case out.Text() == "starved":
			assert.NilError(t, second.Connect(host, qual, patience, nil, 0, 0))
			assert.NilError(t, a.ep.PostRecv(a.iov(0, 8), 0, 0))
			assert.NilError(t, a.ep.PostSend(a.iov(8, 8), 1, 0))
			completion(t, a.request, 1)
			completion(t, a.recv, 0)
		case out.Text() == "fed":
			fed = true
			expect(t, a.conn, udat.EventConnectionEstablished)
		default:
			t.Log(out.Text())
		}
	}
	assert.NilError(t, cmd.Wait())
	assert.Assert(t, fed)
}
