package udat_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
	"github.com/godat/godat/udat/internal/memfabric"
	"github.com/godat/godat/udat/internal/rule"
	"github.com/godat/godat/udat/internal/softnic/nicfault"
)

// overtake calls post so that the requests posted by it overtake an earlier RDMA read, unless they
// are fenced. It posts the receives of the peer: n of size bytes each, from off on. It returns the
// number of receives, which may be n+1.
func overtake(a, b *end, off, size, n int, post func()) int {
	a.t.Helper()
	d, slow := a.ia.Device().(*memfabric.Device)
	switch {
	case slow: // the read takes a while
		nicfault.Of(d).Delay(2 * time.Millisecond)
		defer nicfault.Of(d).Delay(0)
	case acknowledged(a):
		// A Send without a receive blocks all requests, which then start together. Otherwise rxe
		// would finish each request before it starts the next.
		assert.NilError(a.t, a.ep.PostSend(nil, 8, udat.CompletionSuppress))
		post()
		n++
		post = func() {}
	}
	for range n {
		assert.NilError(a.t, b.ep.PostRecv(b.iov(off, size), 1, 0))
	}
	post()
	return n
}

// fenced lists the requests that carry data to the peer: from the end's memory at off to the peer's
// memory at to.
var fenced = []struct {
	kind            udat.OpKind
	recv, immediate bool // the peer needs a receive; not every device has it
}{
	{udat.OpSend, true, false}, {udat.OpSendImmediate, true, true}, {udat.OpRDMAWrite, false, false},
	{udat.OpRDMAWriteImmediate, true, true},
}

// TestFence reads into a buffer and, without waiting, posts a fenced request that sends the buffer
// back to the peer. The request must carry the new bytes, whatever its size and kind, and however
// it is posted.
func TestFence(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := pair(t, dev, setup{attr: &udat.EPAttr{MaxRDMAReadIn: 4, MaxRequestIOV: 2, MaxRDMAWriteIOV: 2}})
		round := byte(0)
		for _, size := range []int{1, 8, 64, 127, 128, 129, 4096, 16000} {
			for _, kind := range fenced {
				if kind.immediate && !udat.DeviceAttr(a.ia).WriteImmediate {
					continue
				}
				for _, how := range []string{"single", "batch", "two segments"} {
					round++
					name := fmt.Sprintf("%d bytes, operation %d, %s", size, kind.kind, how)
					clear(a.get(0, size))
					clear(b.get(20000, size))
					want := b.put(0, size, round)
					iov := a.iov(0, size)
					if how == "two segments" && size > 1 {
						iov = []udat.LMRTriplet{a.mem.Triplet(0, 1), a.mem.Triplet(1, size-1)}
					}
					ops := []udat.Op{
						{Kind: udat.OpRDMARead, IOV: a.iov(0, size), Cookie: 2, Remote: b.mem.RMRTriplet(0, size),
							Flags: udat.CompletionSuppress},
						{Kind: kind.kind, IOV: iov, Cookie: 3, Remote: b.mem.RMRTriplet(20000, size), Flags: udat.CompletionBarrierFence},
					}
					recvs := 1
					if kind.recv {
						recvs++
					}
					split := len(ops)
					if how == "single" {
						split = 1
					}
					recvs = overtake(a, b, 20000, size, recvs, func() {
						for part := range slices.Chunk(ops, split) {
							_, err := a.ep.PostBatch(part)
							assert.NilError(t, err, name)
						}
					})
					completion(t, a.request, 3)
					a.last(b, recvs)
					assert.Assert(t, bytes.Equal(b.get(20000, size), want), name)
				}
			}
		}
		rule.Proves(t, "F-08", "EP-SEND-04", "EP-WRITE-03")
	})
}

// last sends an empty message after all other requests, and waits until the peer has received it as
// the last of n messages.
func (e *end) last(peer *end, n int) {
	e.t.Helper()
	assert.NilError(e.t, e.ep.PostSend(nil, 9, 0))
	completion(e.t, e.request, 9)
	for range n {
		completion(e.t, peer.recv, 1)
	}
}

// TestBehindFence posts a request without a fence after a fenced one: requests start in order, so
// the request without a fence also starts after the reads.
func TestBehindFence(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := pair(t, dev, setup{})
		fences := map[string]func() error{
			"send": func() error { return a.ep.PostSend(nil, 4, udat.CompletionBarrierFence) },
			"write": func() error {
				return a.ep.PostRDMAWrite(a.iov(4096, 1), 4, b.mem.RMRTriplet(30000, 1), udat.CompletionBarrierFence)
			},
		}
		if udat.DeviceAttr(a.ia).MaxMW > 0 {
			r := a.window(t)
			fences["bind"] = func() error {
				_, err := r.Bind(a.mem.Triplet(8192, 64), bothRights, a.ep, 4, udat.CompletionBarrierFence)
				return err
			}
		}
		round := byte(0)
		for _, size := range []int{8, 129} {
			for name, fence := range fences {
				for _, kind := range []udat.OpKind{udat.OpSend, udat.OpRDMAWrite} {
					round++
					clear(a.get(0, size))
					want := b.put(0, size, round)
					recvs := 1
					if name == "send" {
						recvs++
					}
					if kind == udat.OpSend {
						recvs++
					}
					recvs = overtake(a, b, 20000, size, recvs, func() {
						assert.NilError(t, a.ep.PostRDMARead(a.iov(0, size), 2, b.mem.RMRTriplet(0, size), 0))
						assert.NilError(t, fence())
						_, err := a.ep.PostBatch([]udat.Op{{Kind: kind, IOV: a.iov(0, size), Cookie: 3,
							Remote: b.mem.RMRTriplet(20000, size)}})
						assert.NilError(t, err)
					})
					completion(t, a.request, 2)
					assert.Equal(t, next(t, a.request).Cookie, udat.Cookie(4))
					completion(t, a.request, 3)
					a.last(b, recvs)
					assert.Assert(t, bytes.Equal(b.get(20000, size), want), "%d bytes behind a fenced %s", size, name)
				}
			}
		}
		rule.Proves(t, "F-08")
		if fences["bind"] != nil {
			rule.Proves(t, "RMR-BIND-07")
		}
	})
}
