package udat_test

import (
	"bytes"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
	"github.com/godat/godat/udat/internal/rule"
)

// TestCountersWrap makes the sequence numbers of an endpoint's work pass 2^31 and 2^32 with each
// kind of work: receives that are posted before the connection and moved by Modify, suppressed and
// fenced requests, batches, full queues, and what a disconnect flushes.
func TestCountersWrap(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		const limit = 4
		for _, turn := range []uint32{1 << 31, 0} {
			for before := range uint32(2*limit + 1) {
				attr := &udat.EPAttr{MaxRequestDTOs: limit, MaxRecvDTOs: limit, MaxRDMAReadIn: 4}
				a, b := newEnd(t, dev, setup{attr: attr}), newEnd(t, dev, setup{attr: attr})
				a.ep.CountFrom(turn - before)
				b.ep.CountFrom(turn - before)
				for i := range udat.Cookie(limit) {
					assert.NilError(t, b.ep.PostRecv(b.iov(int(8*i), 8), i, 0))
				}
				refused(t, b.ep.PostRecv(nil, 9, 0), udat.InsufficientResources)
				if before%2 == 1 { // posts the receives to another queue, from 0 on
					assert.NilError(t, b.ep.Modify(udat.EPFieldMaxRequestDTOs,
						udat.EPParam{Attr: udat.EPAttr{MaxRequestDTOs: limit}}))
					b.ep.CountRequestsFrom(turn - before)
				}
				connect(t, a, b)
				for i := range udat.Cookie(2 * limit) {
					var flags udat.CompletionFlags
					if i%2 == 0 {
						flags = udat.CompletionSuppress
					}
					want := a.put(0, 8, byte(i))
					assert.NilError(t, a.ep.PostSend(a.iov(0, 8), i, flags))
					if flags == 0 {
						completion(t, a.request, i)
					}
					completion(t, b.recv, i)
					sameBytes(t, b.get(int(8*(i%limit)), 8), want)
					assert.NilError(t, b.ep.PostRecv(b.iov(int(8*(i%limit)), 8), limit+i, 0))
				}
				empty(t, a.request)
				want := b.put(512, 8, byte(before))
				ops := []udat.Op{
					{Kind: udat.OpRDMARead, IOV: a.iov(64, 8), Cookie: 21, Remote: b.mem.RMRTriplet(512, 8)},
					{Kind: udat.OpRDMAWrite, IOV: a.iov(64, 8), Cookie: 22, Remote: b.mem.RMRTriplet(600, 8),
						Flags: udat.CompletionBarrierFence},
					{Kind: udat.OpRDMAWrite, IOV: a.iov(64, 8), Cookie: 23, Remote: b.mem.RMRTriplet(700, 8)},
				}
				n, err := a.ep.PostBatch(ops)
				assert.NilError(t, err)
				assert.Equal(t, n, len(ops))
				for i := range udat.Cookie(len(ops)) {
					completion(t, a.request, 21+i)
				}
				if !acknowledged(a) { // the write is done before the peer has it
					eventually(t, func() bool { return bytes.Equal(b.get(600, 8), want) }, "the write does not come")
				}
				sameBytes(t, b.get(600, 8), want)
				if acknowledged(a) {
					for i := range udat.Cookie(limit) {
						assert.NilError(t, b.ep.PostSend(nil, i, udat.CompletionSuppress)) // the peer has no receive
					}
					refused(t, b.ep.PostSend(nil, 9, 0), udat.InsufficientResources)
				}
				_, recvIdle, _, err := b.ep.GetStatus()
				assert.NilError(t, err)
				assert.Assert(t, !recvIdle)
				part(t, a, b, udat.CloseAbrupt)
				for i := range udat.Cookie(limit) {
					flushed(t, b.recv, 2*limit+i)
					if acknowledged(a) {
						flushed(t, b.request, i)
					}
				}
				empty(t, b.recv)
				empty(t, b.request)
				_, recvIdle, requestIdle, err := b.ep.GetStatus()
				assert.NilError(t, err)
				assert.Assert(t, recvIdle && requestIdle)
				assert.NilError(t, b.ep.Reset())
			}
		}
		rule.Proves(t, "POST-10", "EPST-57", "EP-STATUS-02")
	})
}
