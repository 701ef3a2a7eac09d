package udat_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
	"github.com/godat/godat/udat/internal/fabric/faultfabric"
	"github.com/godat/godat/udat/internal/rule"
)

// inlineSize is the size of a payload that devices copy at the post.
const inlineSize = 64

// TestFreeBesidePosts frees regions while other goroutines post small requests from them on two
// endpoints: each post sends the bytes of the region or is refused, and the process does not crash.
func TestFreeBesidePosts(t *testing.T) {
	onEachOutside(t, func(t *testing.T, dev string) {
		a, b := pair(t, dev, setup{attr: &udat.EPAttr{MaxRequestDTOs: 256}, qlen: 1024})
		second, peer := *a, newEnd(t, dev, setup{})
		second.ep = a.another(&udat.EPAttr{MaxRequestDTOs: 256})
		connect(t, &second, peer)
		remotes := []udat.RMRTriplet{b.mem.RMRTriplet(0, inlineSize), peer.mem.RMRTriplet(0, inlineSize)}
		var region atomic.Pointer[udat.LMR]
		region.Store(a.lmr(inlineSize, udat.PrivLocalRead))
		var stop atomic.Bool
		var posted, refusals atomic.Int64
		var posters sync.WaitGroup
		for i, ep := range []*udat.EP{a.ep, a.ep, second.ep, second.ep} {
			posters.Go(func() {
				ops := make([]udat.Op, 64)
				for !stop.Load() {
					for k := range ops {
						ops[k] = udat.Op{
							Kind: udat.OpRDMAWrite, IOV: []udat.LMRTriplet{region.Load().Triplet(0, inlineSize)}, Remote: remotes[i/2],
							Flags: udat.CompletionSuppress,
						}
					}
					n, err := ep.PostBatch(ops[:1+i%2*63])
					posted.Add(int64(n))
					switch {
					case err == nil || errorsIs(err, udat.ErrInsufficientResources):
					case errorsIs(err, udat.ErrPrivilegesViolation):
						refusals.Add(1)
					default:
						t.Error(err)
						return
					}
				}
			})
		}
		rounds := 0
		for until := time.Now().Add(time.Second); time.Now().Before(until); rounds++ {
			next := a.lmr(inlineSize, udat.PrivLocalRead)
			assert.NilError(t, region.Swap(next).Free())
		}
		stop.Store(true)
		posters.Wait()
		t.Logf("%d regions freed, %d requests posted, %d posts refused", rounds, posted.Load(), refusals.Load())
		assert.Assert(t, posted.Load() > 0)
		assert.Equal(t, state(t, a.ep), udat.EPConnected)
		assert.Equal(t, state(t, second.ep), udat.EPConnected)
		rule.Proves(t, "LMR-FREE-02", "GEN-10")
	})
}

// TestFreeWaitsForPosts frees a region while a post has been checked but has not reached the
// device: Free returns, and the memory is released, only after the post. This is also true if the
// endpoint is being freed.
func TestFreeWaitsForPosts(t *testing.T) {
	onEachOutside(t, func(t *testing.T, dev string) {
		for _, freeEP := range []bool{false, true} {
			var script faultfabric.Script
			a, b := newEnd(t, dev, setup{script: &script}), newEnd(t, dev, setup{})
			connect(t, a, b)
			l, err := a.ia.CreateLMR(a.pz, make([]byte, inlineSize), udat.PrivLocalRead|udat.PrivLocalWrite)
			assert.NilError(t, err)
			segment := []udat.LMRTriplet{l.Triplet(0, inlineSize)}
			entered, leave := make(chan bool), make(chan bool)
			script.On(faultfabric.PostSend).Times(1).Before(func() { close(entered); <-leave })
			returned := make(chan bool, 1)
			posted, gone, freed := make(chan error, 1), make(chan error, 1), make(chan error, 1)
			go func() {
				posted <- a.ep.PostRDMAWrite(segment, 1, b.mem.RMRTriplet(0, inlineSize), udat.CompletionSuppress)
			}()
			<-entered
			if freeEP {
				go func() { gone <- a.ep.Free() }()
				eventually(t, func() bool { _, err := udat.GetHandleType(a.ep); return err != nil }, "the endpoint goes")
			}
			go func() { freed <- l.Free(); returned <- true }()
			eventually(t, func() bool { return l.Bytes() == nil }, "the region goes")
			refused(t, a.another(nil).PostRecv(segment, 2, 0), udat.PrivilegesViolation) // others go on
			early := false
			select {
			case early = <-returned:
			case <-time.After(100 * time.Millisecond):
			}
			close(leave)
			assert.Assert(t, !early, "Free returned during the post (endpoint freed: %v)", freeEP)
			assert.NilError(t, <-posted)
			assert.NilError(t, <-freed)
			if freeEP {
				assert.NilError(t, <-gone)
				continue
			}
			_, err = a.ep.PostBatch([]udat.Op{{Kind: udat.OpSend, IOV: segment}})
			refused(t, err, udat.PrivilegesViolation)
		}
		rule.Proves(t, "LMR-FREE-02", "GEN-10")
	})
}

// TestFreeRefusedChangesNothing: a Free that is refused does not change the region; windows can
// still be bound to it.
func TestFreeRefusedChangesNothing(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := pair(t, dev, setup{})
		l := b.lmr(4096, udat.PrivAll)
		unuse := l.Use()
		refused(t, l.Free(), udat.InvalidState, udat.SubStateLMRInUse)
		assert.Equal(t, len(l.Bytes()), 4096)
		assert.NilError(t, a.ep.PostRDMAWrite(a.iov(0, 8), 1, l.RMRTriplet(0, 8), 0))
		completion(t, a.request, 1)
		assert.NilError(t, b.ep.PostRDMAWrite([]udat.LMRTriplet{l.Triplet(0, 8)}, 2, a.mem.RMRTriplet(0, 8), 0))
		completion(t, b.request, 2)
		if udat.DeviceAttr(b.ia).MaxMW > 0 {
			r := b.window(t)
			tr := b.bind(t, r, l, 0, 100, bothRights)
			unuse()
			refused(t, l.Free(), udat.InvalidState, udat.SubStateLMRInUse) // for the window now
			assert.NilError(t, a.ep.PostRDMAWrite(a.iov(0, 8), 3, sub(tr, 0, 8), 0))
			completion(t, a.request, 3)
			b.bind(t, r, l, 200, 100, bothRights)
			b.bind(t, r, l, 0, 0, 0) // unbinds
			unuse = func() {}
		}
		unuse()
		assert.NilError(t, l.Free())
		refused(t, l.Free(), udat.InvalidHandle, udat.SubHandleLMR)
		rule.Proves(t, "LMR-FREE-01")
	})
}
