package udat_test

import (
	"sync"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/fabric/faultfabric"
	"github.com/godat/godat/udat/internal/rule"
)

func TestEVDResize(t *testing.T) {
	onEachKind(t, func(t *testing.T, ia *udat.IA, evd *udat.EVD) {
		for i := range 8 {
			soft(t, evd, i)
		}
		assert.ErrorIs(t, evd.PostSE(udat.Event{Number: udat.EventSoftware}), udat.ErrQueueFull)
		assert.NilError(t, evd.Resize(20))
		assert.Assert(t, queueLength(t, evd) >= 20)
		for i := 8; i < 20; i++ {
			soft(t, evd, i)
		}
		assert.ErrorIs(t, evd.Resize(19), udat.ErrInvalidState)
		assert.Equal(t, queueLength(t, evd), 20)
		rule.Proves(t, "EVD-RESIZE-02")
		for i := range 15 {
			assert.Equal(t, next(t, evd).Software, any(i))
		}
		assert.NilError(t, evd.Resize(5))
		assert.ErrorIs(t, evd.PostSE(udat.Event{Number: udat.EventSoftware}), udat.ErrQueueFull)
		_, _, err := evd.Wait(0, 6)
		assert.ErrorIs(t, err, udat.ErrInvalidParameter)
		for i := 15; i < 20; i++ {
			assert.Equal(t, next(t, evd).Software, any(i))
		}
		empty(t, evd)
		rule.Proves(t, "EVD-RESIZE-01", "EVD-04")
		for _, bad := range []int{0, -3} {
			assert.ErrorIs(t, evd.Resize(bad), udat.ErrInvalidParameter)
		}
		assert.ErrorIs(t, evd.Resize(udat.DeviceAttr(ia).MaxCQE+1), udat.ErrInsufficientResources)
		assert.Equal(t, queueLength(t, evd), 5)
		rule.Proves(t, "EVD-RESIZE-03")
		// A blocked waiter may rely on its threshold.
		w := waitOn(t, evd, udat.Infinite, 4)
		assert.ErrorIs(t, evd.Resize(3), udat.ErrInvalidState)
		assert.NilError(t, evd.Resize(4))
		for i := range 4 {
			soft(t, evd, i)
		}
		assert.NilError(t, w.result(t).err)
		empty(t, ia.AsyncEVD())
		rule.Proves(t, "EVD-RESIZE-01")
	})
}

// TestEVDResizeInUse resizes dispatchers under a running stream of transfers.
func TestEVDResizeInUse(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		const n = 200
		a, b := pair(t, dev, setup{qlen: 20})
		var group sync.WaitGroup
		quit := make(chan struct{})
		group.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-quit:
					return
				default:
				}
				for _, evd := range []*udat.EVD{a.request, b.recv, b.ia.AsyncEVD()} {
					if err := evd.Resize(20 + i%200); err != nil {
						t.Error(err)
						return
					}
				}
			}
		})
		b.receive(0, 0)
		for i := range udat.Cookie(n) {
			if i+1 < n {
				b.receive(0, i+1)
			}
			assert.NilError(t, a.ep.PostSend(a.iov(0, 8), i, 0))
			completion(t, b.recv, i)
			completion(t, a.request, i)
		}
		close(quit)
		group.Wait()
		empty(t, a.ia.AsyncEVD())
		empty(t, b.ia.AsyncEVD())
		rule.Proves(t, "EVD-RESIZE-04", "EVD-RESIZE-01")
	})
}

// TestEVDResizeCompletionQueue: the completion queue grows with the dispatcher, each time by enough
// that it grows rarely, up to the device's limit, and never shrinks.
func TestEVDResizeCompletionQueue(t *testing.T) {
	onMem(t, func(t *testing.T, dev string) {
		ia := lacking(t, dev, func(a *fabric.Attr) { a.MaxCQE = 250 })
		evd, err := ia.CreateEVD(16, udat.EVDDTO, nil)
		assert.NilError(t, err)
		for _, c := range []struct{ qlen, depth int }{{16, 16}, {17, 32}, {4, 32}, {32, 32}, {100, 100}, {130, 200},
			{201, 250}, {250, 250}} {
			assert.NilError(t, evd.Resize(c.qlen))
			assert.Equal(t, udat.CompletionQueue(evd).Depth(), c.depth, "of a dispatcher of %d", c.qlen)
			assert.Equal(t, queueLength(t, evd), c.qlen)
		}
		refused(t, evd.Resize(251), udat.InsufficientResources, udat.SubResourceTEVD)
	})
}

// TestEVDResizeByEndpoints: the completion queue has room for all work that its endpoints can have
// in flight, up to the limit of the device.
func TestEVDResizeByEndpoints(t *testing.T) {
	onMem(t, func(t *testing.T, dev string) {
		ia := lacking(t, dev, func(a *fabric.Attr) { a.MaxCQE = 64 })
		pz, err := ia.CreatePZ()
		assert.NilError(t, err)
		evd, err := ia.CreateEVD(4, udat.EVDDTO, nil)
		assert.NilError(t, err)
		other, err := ia.CreateEVD(64, udat.EVDDTO, nil)
		assert.NilError(t, err)
		create := func(receives int) (*udat.EP, error) {
			return ia.CreateEP(pz, evd, other, nil, &udat.EPAttr{MaxRecvDTOs: receives, MaxRequestDTOs: 1})
		}
		for _, c := range []struct{ receives, depth int }{{15, 16}, {15, 32}, {31, 64}} { // each has one spare slot
			_, err := create(c.receives)
			assert.NilError(t, err)
			assert.Equal(t, udat.CompletionQueue(evd).Depth(), c.depth)
		}
		_, err = create(1)
		refused(t, err, udat.InsufficientResources, udat.SubResourceTEVD)
		assert.Equal(t, udat.CompletionQueue(evd).Depth(), 64)
	})
}

// TestEVDResizeFails: a Resize that the device refuses changes nothing. If the device cannot resize
// at all, the library's ring has room for the events.
func TestEVDResizeFails(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		var script faultfabric.Script
		e := newEnd(t, dev, setup{qlen: 16, script: &script})
		cq := udat.CompletionQueue(e.request)
		depth := cq.Depth()
		script.On(faultfabric.Resize, cq).Times(1).Fail(fabric.ErrResources)
		refused(t, e.request.Resize(2*depth), udat.InsufficientResources, udat.SubResourceTEVD)
		assert.Equal(t, queueLength(t, e.request), 16)
		script.On(faultfabric.Resize, cq).Fail(fabric.ErrNotSupported)
		assert.NilError(t, e.request.Resize(2*depth))
		assert.Equal(t, queueLength(t, e.request), 2*depth)
		assert.Equal(t, cq.Depth(), depth)
		_, err := e.ia.CreateEP(e.pz, e.recv, e.request, e.conn, &udat.EPAttr{MaxRequestDTOs: 2 * depth})
		refused(t, err, udat.InsufficientResources, udat.SubResourceTEVD)
		rule.Proves(t, "EVD-RESIZE-03")
	})
}

// TestEVDResizeCountsDevice: completions that are still on the device count as queued events.
func TestEVDResizeCountsDevice(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := pair(t, dev, setup{unkept: true})
		onTheDevice(t, a, b, 4)
		refused(t, a.request.Resize(3), udat.InvalidState)
		assert.NilError(t, a.request.Resize(4))
		for i := range udat.Cookie(4) {
			completion(t, a.request, i)
		}
		rule.Proves(t, "EVD-RESIZE-01", "EVD-RESIZE-03")
	})
}

// TestEVDResizeArms: if the completion queue grows while a call is parked, the queue is armed
// again, because some devices disarm a queue that grows.
func TestEVDResizeArms(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		var script faultfabric.Script
		e := newEnd(t, dev, setup{unkept: true, script: &script, opts: []udat.Option{udat.WithSpin(0)}})
		cq := udat.CompletionQueue(e.recv)
		arms := script.On(faultfabric.Arm, cq).Count()
		w := waitOn(t, e.recv, udat.Infinite, 1)
		time.Sleep(quiet)
		before := arms.Calls()
		depth := cq.Depth()
		assert.NilError(t, e.recv.Resize(2*depth))
		if cq.Depth() == depth {
			t.Skip("the device cannot resize completion queues")
		}
		until(t, "the queue is armed again", func() bool { return arms.Calls() > before })
		w.still(t)
		assert.NilError(t, e.recv.SetUnwaitable())
		assert.ErrorIs(t, w.result(t).err, errUnwaitable)
	})
}
