package udat_test

import (
	"sync"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
	"github.com/godat/godat/udat/internal/rule"
)

// holds checks both counts of the endpoint's receives.
func holds(t *testing.T, ep *udat.EP, n int) {
	t.Helper()
	allocated, span, err := ep.RecvQuery()
	assert.NilError(t, err)
	assert.Equal(t, allocated, n)
	assert.Equal(t, span, n)
}

// TestRecvQuery checks the counts during the life of an endpoint.
func TestRecvQuery(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := newEnd(t, dev, setup{}), newEnd(t, dev, setup{})
		holds(t, b.ep, 0)
		for i := range 5 {
			assert.NilError(t, b.ep.PostRecv(b.iov(0, 8), udat.Cookie(i), 0))
			holds(t, b.ep, i+1)
		}
		connect(t, a, b)
		holds(t, b.ep, 5)
		for i := range 3 {
			assert.NilError(t, a.ep.PostSend(a.iov(0, 8), udat.Cookie(i), 0))
			completion(t, a.request, udat.Cookie(i))
			completion(t, b.recv, udat.Cookie(i))
			holds(t, b.ep, 4-i)
		}
		assert.NilError(t, a.ep.PostSend(a.iov(0, 8), 9, 0))
		completion(t, a.request, 9)
		eventually(t, func() bool { n, _, _ := b.ep.RecvQuery(); return n == 1 },
			"what has completed counts though it is not dequeued")
		part(t, a, b, udat.CloseAbrupt)
		completion(t, b.recv, 3)
		flushed(t, b.recv, 4)
		holds(t, b.ep, 0)
		assert.NilError(t, b.ep.PostRecv(nil, 5, 0))
		flushed(t, b.recv, 5)
		holds(t, b.ep, 0)
		assert.NilError(t, b.ep.Reset())
		holds(t, b.ep, 0)
		rule.Proves(t, "EP-RECVQ-01", "EP-RECVQ-02", "EP-RECVQ-06", "EP-RECVQ-12", "V-34", "C-32")

		assert.NilError(t, b.ep.Free())
		_, _, err := b.ep.RecvQuery()
		refused(t, err, udat.InvalidHandle, udat.SubHandleEP)
		_, _, err = (*udat.EP)(nil).RecvQuery()
		refused(t, err, udat.InvalidHandle, udat.SubHandleEP)
		rule.Proves(t, "EP-RECVQ-11")
	})
}

// TestRecvQueryConsistent queries while receives are posted and complete: both counts are of the
// same moment, and equal.
func TestRecvQueryConsistent(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := pair(t, dev, setup{})
		var wg sync.WaitGroup
		stop := make(chan struct{})
		for range 2 {
			wg.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					allocated, span, err := b.ep.RecvQuery()
					if err != nil || allocated < 0 || allocated > 16 || span != allocated {
						t.Errorf("%d receives in a span of %d, %v", allocated, span, err)
						return
					}
				}
			})
		}
		for i := range 300 {
			assert.NilError(t, b.ep.PostRecv(nil, udat.Cookie(i), 0))
			assert.NilError(t, a.ep.PostSend(nil, udat.Cookie(i), 0))
			completion(t, b.recv, udat.Cookie(i))
			completion(t, a.request, udat.Cookie(i))
		}
		close(stop)
		wg.Wait()
		rule.Proves(t, "EP-RECVQ-06", "EP-RECVQ-07", "GEN-10")
	})
}

// TestRecvQuerySpan: the span is the number of messages that can still be received; RDMA operations
// are no messages. Messages are received in the order of sending.
func TestRecvQuerySpan(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		const posted = 7
		a, b := newEnd(t, dev, setup{}), newEnd(t, dev, setup{})
		for i := range posted {
			assert.NilError(t, b.ep.PostRecv(b.iov(8*i, 8), udat.Cookie(i), 0))
		}
		connect(t, a, b)
		for i := range posted {
			_, span, err := b.ep.RecvQuery()
			assert.NilError(t, err)
			assert.Equal(t, span, posted-i)
			a.put(0, 1, byte(100+i))
			assert.NilError(t, a.ep.PostRDMAWrite(a.iov(512, 8), 100, b.mem.RMRTriplet(512, 8), 0))
			assert.NilError(t, a.ep.PostRDMARead(a.iov(1024, 8), 101, b.mem.RMRTriplet(1024, 8), 0))
			completion(t, a.request, 100)
			completion(t, a.request, 101)
			holds(t, b.ep, posted-i)
			assert.NilError(t, a.ep.PostSend(a.iov(0, 1+i), udat.Cookie(i), udat.CompletionSuppress*udat.CompletionFlags(i%2)))
			if i%2 == 0 {
				completion(t, a.request, udat.Cookie(i))
			}
			ev := completion(t, b.recv, udat.Cookie(i))
			assert.Equal(t, ev.Length, uint64(1+i))
			assert.Equal(t, b.get(8*i, 1)[0], byte(100+i))
		}
		holds(t, b.ep, 0)
		rule.Proves(t, "EP-RECVQ-03", "EP-RECVQ-04")
	})
}
