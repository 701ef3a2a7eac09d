package memfabric

import (
	"bytes"
	"encoding/binary"
	"runtime"
	"sort"
	"sync"
	"testing"
	"time"
	"unsafe"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/softnic/nicfault"
)

// noGoroutinesLeft fails the test if it ends with more goroutines than it began with.
func noGoroutinesLeft(t *testing.T) {
	t.Helper()
	before := runtime.NumGoroutine()
	t.Cleanup(func() {
		for deadline := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > before; {
			if time.Now().After(deadline) {
				buf := make([]byte, 1<<16)
				t.Fatalf("%d goroutines are left of %d:\n%s", runtime.NumGoroutine(), before, buf[:runtime.Stack(buf, true)])
			}
			time.Sleep(time.Millisecond)
		}
	})
}

// Atomics of many queue pairs on one word are atomic, and the data that was in memory at the post
// arrives.
func TestConcurrentQueuePairs(t *testing.T) {
	noGoroutinesLeft(t)
	const pairs, rounds = 4, 300
	f := New()
	server := newEnd(t, f, endOptions{srq: 64, depth: 1024})
	var clients []*end
	for range pairs {
		c := newEnd(t, f, endOptions{})
		server.renew()
		join(t, c, server)
		clients = append(clients, c)
	}
	var wg sync.WaitGroup
	for _, c := range clients {
		wg.Go(func() {
			for i := range uint64(rounds) {
				binary.NativeEndian.PutUint64(c.mem[8:], i)
				c.post(fabric.SendWR{
					Opcode: fabric.OpFetchAdd, RemoteAddr: server.at(0, 0).Addr, RKey: server.mr.RKey(), CompareAdd: 1,
				}, c.at(0, 8))
				c.send(i, c.at(8, 8))
				wc := c.completions(1)[0]
				assert.Check(t, wc.Status == fabric.StatusSuccess && wc.ID == i, "%+v", wc)
			}
		})
	}
	slot := func(i uint64) fabric.SGE { return server.at(64+int(i)*8, 8) }
	for i := range uint64(64) {
		server.recv(i, slot(i))
	}
	seen := map[uint32]uint64{}
	for range pairs * rounds {
		wc := server.completions(1)[0]
		assert.Equal(t, wc.Status, fabric.StatusSuccess)
		got := binary.NativeEndian.Uint64(server.mem[64+wc.ID*8:])
		assert.Equal(t, got, seen[wc.SrcQP], "messages of one queue pair are in order")
		seen[wc.SrcQP]++
		server.recv(wc.ID, slot(wc.ID))
	}
	wg.Wait()
	assert.Equal(t, binary.NativeEndian.Uint64(server.mem), uint64(pairs*rounds))
}

// The race detector does not see the accesses of the fabric to payload, which come at any time, as
// those of a NIC.
func TestPayloadIsOutOfTheRaceDetectorsSight(t *testing.T) {
	noGoroutinesLeft(t)
	a, b := pair(t, endOptions{bytes: 3 * 4096})
	word := func(buf []byte) *byte { return unsafe.SliceData(buf) }
	for i := range 50 {
		a.mem[0] = byte(i)
		a.remote(1, fabric.OpWrite, b.at(0, 0), a.at(0, len(a.mem)))
		for deadline := time.Now().Add(bound); peek(word(b.mem)) != byte(i); runtime.Gosched() {
			assert.Assert(t, time.Now().Before(deadline))
		}
		a.mem[1]++ // still being read, for all we know
		b.mem[1]++ // still being written
		a.remote(2, fabric.OpFetchAdd, b.at(8, 0), a.at(8, 8))
		b.mem[8]++
		a.completions(2)
	}
}

//go:noinline
func peek(p *byte) byte { return *p }

// If any object is closed by any goroutine during a transfer, nothing hangs, crashes or leaks.
func TestCloseInMidTransfer(t *testing.T) {
	noGoroutinesLeft(t)
	for i := range 60 {
		func() {
			f := New()
			a, b := newEnd(t, f, endOptions{Options: fabric.Options{Retry: 0, RNRRetry: 7}, bytes: 1 << 16}), newEnd(t, f,
				endOptions{bytes: 1 << 16})
			join(t, a, b)
			for id := range uint64(8) {
				b.recv(id, b.at(0, 1<<16))
			}
			var wg sync.WaitGroup
			for _, e := range []*end{a, b} {
				wg.Go(func() {
					other := a
					if e == a {
						other = b
					}
					wr := []fabric.SendWR{{
						Opcode: fabric.OpWrite, NumSGE: 1, Flags: fabric.Signaled, RKey: other.mr.RKey(), RemoteAddr: addrOf(other.mem),
					}, {Opcode: fabric.OpSend, NumSGE: 1, Flags: fabric.Signaled}}
					var wcs [8]fabric.WC
					for range 20 {
						if _, err := e.qp.PostSend(wr,
							[]fabric.SGE{{Addr: addrOf(e.mem), Length: 1 << 16, LKey: e.mr.LKey()}}); err != nil {
							runtime.Gosched()
						}
						e.cq.Poll(wcs[:], 1)
					}
				})
			}
			closes := []func(){
				func() { a.conn.Close() }, func() { b.conn.Disconnect() }, func() { a.qp.Close() }, func() { b.qp.Close() },
				func() { a.mr.Close() }, func() { b.mr.Close() }, func() { nicfault.Of(b.dev).Remove() },
				func() { a.qp.SetError() },
			}
			wg.Go(closes[i%len(closes)])
			wg.Go(closes[(i*3+1)%len(closes)])
			wg.Wait()
			for _, e := range []*end{a, b} {
				e.conn.Close()
				e.qp.Close()
				e.mr.Close()
			}
		}()
	}
}

// When Close of a queue pair or of a region returns, a copy that was running has ended, and nothing
// more of it comes.
func TestCloseWaitsForTheCopy(t *testing.T) {
	for what, st := range map[string]fabric.Status{"queue pair": fabric.StatusRetryExceeded,
		"region": fabric.StatusRemoteAccess, "region of the poster": fabric.StatusLocalProt} {
		noGoroutinesLeft(t)
		const size = 64 << 20
		a, b := pair(t, endOptions{bytes: size})
		for i := range a.mem {
			a.mem[i] = 1
		}
		a.remote(1, fabric.OpWrite, b.at(0, 0), a.at(0, size))
		for peek(unsafe.SliceData(b.mem)) == 0 {
			runtime.Gosched()
		}
		closing := map[string]closer{"queue pair": b.qp, "region": b.mr, "region of the poster": a.mr}[what]
		assert.NilError(t, closing.Close())
		begun := sort.Search(size/turn, func(i int) bool { return peek(&b.mem[i*turn]) == 0 })
		assert.Equal(t, peek(&b.mem[begun*turn-1]), byte(1), what)
		if got := a.completions(1)[0].Status; got != fabric.StatusSuccess { // else the copy was too fast to be caught
			assert.Equal(t, got, st, what)
			assert.Equal(t, bytes.IndexByte(b.mem, 0), begun*turn, what)
		}
	}
}

func TestConnectCycles(t *testing.T) {
	noGoroutinesLeft(t)
	n := 1000
	if testing.Short() {
		n = 100
	}
	f := New()
	a, b := newEnd(t, f, endOptions{}), newEnd(t, f, endOptions{})
	addr, requests, _ := b.listen()
	assert.NilError(t, a.qp.Close())
	assert.NilError(t, b.qp.Close())
	for range n {
		for _, e := range []*end{a, b} {
			var err error
			e.qp, err = e.dev.CreateQP(e.init)
			assert.NilError(t, err)
		}
		var err error
		a.conn, err = a.dev.Connect(a.qp, fabric.ConnectParams{Remote: addr}, a.on)
		assert.NilError(t, err)
		b.conn, err = next(t, requests).Accept(b.qp, fabric.AcceptParams{}, b.on)
		assert.NilError(t, err)
		a.wants(fabric.EventEstablished)
		b.wants(fabric.EventEstablished)
		b.recv(1, b.at(0, 8))
		a.send(2, a.at(0, 8))
		b.completion(1, fabric.StatusSuccess)
		a.completion(2, fabric.StatusSuccess)
		assert.NilError(t, a.conn.Disconnect())
		b.wants(fabric.EventDisconnected)
		assert.NilError(t, b.conn.Close())
		a.wants(fabric.EventDisconnected)
		assert.NilError(t, a.conn.Close())
		assert.NilError(t, a.qp.Close())
		assert.NilError(t, b.qp.Close())
	}
	f.Mu.Lock()
	defer f.Mu.Unlock()
	assert.Equal(t, len(f.QPNs), 0)
	for _, d := range []*Device{a.dev, b.dev} {
		assert.Equal(t, len(d.Conns)+len(d.Requests), 0)
	}
}

func TestDataPathDoesNotAllocate(t *testing.T) {
	a, b := pair(t, endOptions{})
	recv, sges := []fabric.RecvWR{{NumSGE: 2}}, []fabric.SGE{b.at(0, 8), b.at(8, 64)}
	wrs := []fabric.SendWR{
		{Opcode: fabric.OpSend, Flags: fabric.Signaled, NumSGE: 2},
		{Opcode: fabric.OpSend, Flags: fabric.Signaled | fabric.Inline, NumSGE: 1},
		{Opcode: fabric.OpRead, Flags: fabric.Signaled, NumSGE: 2, RemoteAddr: b.at(0, 0).Addr, RKey: b.mr.RKey()},
		{Opcode: fabric.OpFetchAdd, Flags: fabric.Signaled, NumSGE: 1, RemoteAddr: b.at(0, 0).Addr, RKey: b.mr.RKey()},
	}
	from := []fabric.SGE{a.at(0, 8), a.at(8, 64)}
	wcs := make([]fabric.WC, 8)
	far := time.Now().Add(time.Hour)
	reap := func(e *end, n int) {
		for n > 0 {
			e.cq.Arm(false)
			k, _ := e.cq.Poll(wcs, 1)
			if n -= k; k == 0 {
				e.cq.Wait(far)
			}
		}
	}
	got := testing.AllocsPerRun(500, func() {
		b.qp.PostRecv(recv, sges)
		b.qp.PostRecv(recv, sges)
		a.qp.PostSend(wrs, from)
		reap(b, 2)
		reap(a, 4)
	})
	assert.Equal(t, got, 0.0)
}
