package udat_test

import (
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
	"github.com/godat/godat/udat/internal/rule"
)

// onTheDevice waits until n Sends of a have completed, and leaves their completions on the device.
func onTheDevice(t *testing.T, a, b *end, n int) {
	t.Helper()
	for i := range n {
		assert.NilError(t, b.ep.PostRecv(b.iov(0, 8), udat.Cookie(i), 0))
	}
	for i := range n {
		assert.NilError(t, a.ep.PostSend(a.iov(0, 8), udat.Cookie(i), 0))
	}
	for i := range n {
		completion(t, b.recv, udat.Cookie(i))
	}
	time.Sleep(quiet)
	assert.Equal(t, udat.Queued(a.request), 0)
}

// TestDequeueFromDevice: what comes straight from the device into the caller's slice comes in the same order as the rest, whatever
// was in the slice, and leaves nothing behind.
func TestDequeueFromDevice(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := pair(t, dev, setup{unkept: true})
		for _, size := range []int{1, 3, 8, 100} {
			const n = 8
			onTheDevice(t, a, b, n)
			events := make([]udat.Event, size)
			for i := range events {
				events[i] = udat.Event{Status: udat.DTOErrTransport, Software: t, RawStatus: 1, Reason: 1, HasImmediate: true}
			}
			var got []udat.Event
			for len(got) < n {
				k, err := a.request.DequeueBatch(events)
				assert.NilError(t, err)
				got = append(got, events[:k]...)
			}
			for i, ev := range got {
				want := udat.Event{Number: udat.EventDTOCompletion, EVD: a.request, EP: a.ep, Cookie: udat.Cookie(i), Operation: udat.DTOSend, Length: 8}
				assert.Assert(t, ev.Number == want.Number && ev.Status == want.Status && ev.EVD == want.EVD && ev.EP == want.EP &&
					ev.Cookie == want.Cookie && ev.Operation == want.Operation && ev.Length == want.Length && ev.Software == nil &&
					ev.RawStatus == 0 && ev.Reason == 0 && !ev.HasImmediate, "event %d: %s", i, describe(ev))
			}
			empty(t, a.request)
		}
	})
}

// TestDequeueFromDeviceOverflow: more completions than the queue's length overflow it, even if the caller's slice has room for all.
func TestDequeueFromDeviceOverflow(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		const qlen, n = 4, 8
		a, b := newEnd(t, dev, setup{unkept: true}), newEnd(t, dev, setup{})
		assert.NilError(t, a.ep.Free())
		a.request = a.evd(qlen, udat.EVDDTO)
		var err error
		a.ep, err = a.ia.CreateEP(a.pz, a.recv, a.request, a.conn, nil)
		assert.NilError(t, err)
		connect(t, a, b)
		onTheDevice(t, a, b, n)
		events := make([]udat.Event, 2*n)
		k, err := a.request.DequeueBatch(events)
		assert.NilError(t, err)
		assert.Equal(t, k, n)
		for i := range n {
			assert.Equal(t, events[i].Cookie, udat.Cookie(i))
		}
		ev := expect(t, a.ia.AsyncEVD(), udat.EventAsyncEVDOverflow)
		assert.Equal(t, ev.Object, udat.Handle(a.request))
		empty(t, a.ia.AsyncEVD())
		rule.Proves(t, "EVD-50")
	})
}
