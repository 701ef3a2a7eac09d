package udat_test

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
	"github.com/godat/godat/udat/internal/rule"
)

// storm runs every function repeatedly for a second, each in its own goroutine.
func storm(t *testing.T, works ...func(r *rand.Rand)) {
	t.Helper()
	stop := time.Now().Add(time.Second)
	var all sync.WaitGroup
	for i, w := range works {
		all.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), 1))
			for time.Now().Before(stop) {
				w(r)
			}
		})
	}
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatal("a call hangs")
	}
}

// TestServicePointStorm makes and frees service points, connects, accepts, rejects and hands off,
// all concurrently.
func TestServicePointStorm(t *testing.T) {
	onEachOutside(t, func(t *testing.T, dev string) {
		a, b := newEnd(t, dev, setup{qlen: 1000}), newEnd(t, dev, setup{qlen: 1000})
		var mu sync.Mutex
		points := map[udat.ConnQual]bool{}
		some := func(r *rand.Rand) udat.ConnQual {
			mu.Lock()
			defer mu.Unlock()
			for q := range points {
				if r.IntN(3) > 0 {
					return q
				}
			}
			return 4711
		}
		answer := func(r *rand.Rand) {
			ev, _, err := b.cr.Wait(time.Millisecond, 1)
			if err != nil {
				return
			}
			if r.IntN(2) == 0 {
				if ev.CR.Handoff(some(r)) == nil {
					return
				}
			}
			if r.IntN(2) == 0 {
				ev.CR.Reject(nil)
				return
			}
			p, err := ev.CR.Query()
			if err != nil {
				return
			}
			ep := p.LocalEP
			if ep == nil {
				if ep, err = b.ia.CreateEP(b.pz, b.recv, b.request, b.conn, nil); err != nil {
					return
				}
				defer ep.Free()
				ev.CR.Accept(ep, nil)
			} else {
				ep.Modify(udat.EPFieldPZ, udat.EPParam{PZ: b.pz})
				ev.CR.Accept(nil, nil)
				defer ep.Free()
			}
		}
		serve := func(r *rand.Rand) {
			flags := udat.PSPFlags(r.IntN(2))
			qual, psp, err := b.ia.CreatePSPAny(b.cr, flags)
			if err != nil {
				return
			}
			mu.Lock()
			points[qual] = true
			mu.Unlock()
			time.Sleep(time.Duration(r.IntN(3000)) * time.Microsecond)
			psp.Query()
			mu.Lock()
			delete(points, qual)
			mu.Unlock()
			psp.Free()
			if r.IntN(2) == 0 {
				return
			}
			ep, err := b.ia.CreateEP(b.pz, b.recv, b.request, b.conn, nil)
			if err != nil {
				return
			}
			if rsp, err := b.ia.CreateRSP(qual, ep, b.cr); err == nil {
				mu.Lock()
				points[qual] = true
				mu.Unlock()
				time.Sleep(time.Duration(r.IntN(3000)) * time.Microsecond)
				rsp.Free()
				mu.Lock()
				delete(points, qual)
				mu.Unlock()
			}
			ep.Free() // refused where a request waits for it
		}
		call := func(r *rand.Rand) {
			ep, err := a.ia.CreateEP(a.pz, nil, nil, nil, nil)
			if err != nil {
				return
			}
			defer ep.Free()
			if ep.Connect(b.ia.Addr(), some(r), time.Duration(r.IntN(20)+1)*time.Millisecond, nil, 0, 0) == nil {
				time.Sleep(time.Duration(r.IntN(3000)) * time.Microsecond)
			}
		}
		storm(t, answer, answer, serve, serve, call, call, call, func(*rand.Rand) { b.conn.Wait(time.Millisecond, 1) })
		assert.NilError(t, a.ia.Close(udat.CloseAbrupt))
		assert.NilError(t, b.ia.Close(udat.CloseAbrupt))
	})
}

// TestSRQStorm posts to, resizes, queries and uses a shared queue concurrently; no receive and no
// message is lost.
func TestSRQStorm(t *testing.T) {
	onEachOutside(t, func(t *testing.T, dev string) {
		a1, a2, b1, b2, s := twoWithSRQ(t, dev, 32, udat.EPAttr{})
		needAcknowledged(t, a1)
		sends := func(a *end) func(*rand.Rand) {
			return func(*rand.Rand) {
				if a.ep.PostSend(a.iov(0, 8), 1, 0) == nil {
					a.request.Wait(10*time.Millisecond, 1)
				}
			}
		}
		var received [2]int
		receives := func(i int, b *end) func(*rand.Rand) {
			return func(*rand.Rand) {
				if ev, _, err := b.recv.Wait(time.Millisecond, 1); err == nil && ev.Status == udat.DTOSuccess {
					received[i]++
				}
			}
		}
		posts := func(r *rand.Rand) {
			if s.PostRecv(b1.iov(r.IntN(100), 8), 1) != nil {
				time.Sleep(100 * time.Microsecond)
			}
		}
		storm(t, sends(a1), sends(a2), receives(0, b1), receives(1, b2), posts, posts,
			func(r *rand.Rand) { s.Resize(r.IntN(40) + 1); s.SetLW(r.IntN(8)); s.Query() },
			func(*rand.Rand) { b1.ia.AsyncEVD().Wait(time.Millisecond, 1) },
			func(r *rand.Rand) {
				if ep, err := b1.ia.CreateEPWithSRQ(b1.pz, b1.recv, nil, nil, s, &udat.EPAttr{}); err == nil {
					ep.Free()
				}
			})
		assert.Assert(t, received[0] > 0 && received[1] > 0)
		assert.Equal(t, state(t, b1.ep), udat.EPConnected)
		assert.Equal(t, state(t, b2.ep), udat.EPConnected)
		until(t, "every message has found a receive", func() bool {
			for _, evd := range []*udat.EVD{a1.request, a2.request, b1.recv, b2.recv} {
				for err := error(nil); err == nil; {
					_, err = evd.Dequeue()
				}
			}
			_, _, idle1, _ := a1.ep.GetStatus()
			_, _, idle2, _ := a2.ep.GetStatus()
			if !idle1 || !idle2 {
				s.PostRecv(b1.iov(0, 8), 1)
			}
			return idle1 && idle2
		})
		time.Sleep(20 * time.Millisecond)
		for _, evd := range []*udat.EVD{a1.request, a2.request, b1.recv, b2.recv} {
			for err := error(nil); err == nil; {
				_, err = evd.Dequeue()
			}
		}
		p := count(t, s)
		for range p.OutstandingDTOCount {
			assert.NilError(t, a1.ep.PostSend(nil, 2, 0))
			completion(t, a1.request, 2)
			expect(t, b1.recv, udat.EventDTOCompletion)
		}
		assert.Equal(t, count(t, s).OutstandingDTOCount, 0)
		rule.Proves(t, "GEN-10")
	})
}

// TestRMRStorm binds windows from many goroutines, to regions that are made and freed meanwhile.
func TestRMRStorm(t *testing.T) {
	onEachOutside(t, func(t *testing.T, dev string) {
		a, b := pair(t, dev, setup{attr: &udat.EPAttr{MaxRequestDTOs: 32}})
		shared := b.window(t)
		storm(t,
			func(r *rand.Rand) {
				shared.Bind(b.mem.Triplet(r.IntN(100), r.IntN(2)*10), bothRights, b.ep, 1, udat.CompletionSuppress)
			},
			func(r *rand.Rand) {
				l, err := b.ia.AllocLMR(b.pz, 4096, udat.PrivAll)
				assert.NilError(t, err)
				w, err := b.pz.CreateRMR()
				assert.NilError(t, err)
				w.Bind(l.Triplet(0, 100), bothRights, b.ep, 2, 0)
				shared.Bind(l.Triplet(0, 100), bothRights, b.ep, 3, 0)
				w.Query()
				b.request.Wait(time.Millisecond, 1)
				if r.IntN(2) == 0 {
					w.Bind(udat.LMRTriplet{}, 0, b.ep, 4, 0)
				}
				until(t, "all binds have completed", func() bool {
					_, _, idle, err := b.ep.GetStatus()
					for err := error(nil); err == nil; {
						_, err = b.request.Dequeue()
					}
					return err == nil && idle
				})
				assert.NilError(t, w.Free())
				for l.Free() != nil { // until the window shared is bound to another region
					shared.Bind(b.mem.Triplet(0, 1), bothRights, b.ep, 5, 0)
					b.request.Dequeue()
				}
			})
		assert.Equal(t, state(t, a.ep), udat.EPConnected)
		assert.Equal(t, state(t, b.ep), udat.EPConnected)
		assert.NilError(t, shared.Free())
		assert.NilError(t, b.mem.Free())
	})
}
