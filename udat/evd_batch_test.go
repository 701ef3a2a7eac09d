package udat_test

import (
	"reflect"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/fabric/faultfabric"
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

// TestDequeueFromDevice: events that go directly from the device into the caller's slice have the
// same order as all others. The previous contents of the slice do not matter, and no event is left
// over.
func TestDequeueFromDevice(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := pair(t, dev, setup{unkept: true})
		newEnd(t, dev, setup{}).call(b, listen(t, b).Qual(), "x")
		dirty := expect(t, b.cr, udat.EventConnectionRequest) // with the fields of other kinds of events set
		dirty.EP, dirty.Status, dirty.Cookie, dirty.Length, dirty.Operation = b.ep, udat.DTOErrTransport, 99, 99, udat.DTOBind
		dirty.HasImmediate, dirty.Immediate, dirty.RMRContext, dirty.RawStatus, dirty.VendorError = true, 1, 1, 1, 1
		dirty.Reason, dirty.RMR, dirty.Software = 1, &udat.RMR{}, t
		for _, size := range []int{1, 3, 8, 100} {
			const n = 8
			onTheDevice(t, a, b, n)
			events := make([]udat.Event, size)
			for i := range events {
				events[i] = dirty
			}
			var got []udat.Event
			for len(got) < n {
				k, err := a.request.DequeueBatch(events)
				assert.NilError(t, err)
				got = append(got, events[:k]...)
			}
			for i, ev := range got {
				want := udat.Event{Number: udat.EventDTOCompletion, EVD: a.request, EP: a.ep, Cookie: udat.Cookie(i),
					Operation: udat.DTOSend, Length: 8}
				assert.Assert(t, reflect.DeepEqual(ev, want), "event %d: %s", i, describe(ev))
			}
			empty(t, a.request)
		}
		intoDirty := func(evd *udat.EVD) udat.Event { // an event of another kind
			t.Helper()
			events := []udat.Event{dirty}
			for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
				n, err := evd.DequeueBatch(events)
				assert.NilError(t, err)
				if n == 1 {
					return events[0]
				}
				assert.Assert(t, time.Now().Before(end))
			}
		}
		program := softEVD(t, a.ia, nil)
		soft(t, program, 7)
		ev, want := intoDirty(program), udat.Event{Number: udat.EventSoftware, EVD: program, Software: 7}
		assert.Assert(t, reflect.DeepEqual(ev, want), "%s", describe(ev))
		assert.NilError(t, a.ep.Disconnect(udat.CloseAbrupt))
		ev = intoDirty(a.conn)
		assert.Equal(t, len(ev.PrivateData()), 0)
		assert.Assert(t, ev.Object == nil && ev.ConnQual() == 0, "%s", describe(ev))
		want = udat.Event{Number: udat.EventConnectionDisconnected, EVD: a.conn, EP: a.ep}
		assert.Equal(t, describe(ev), describe(want))
		assert.Assert(t, ev.EVD == a.conn && ev.EP == a.ep && !ev.HasImmediate && ev.Immediate == 0 && ev.RMRContext == 0 &&
			ev.VendorError == 0 && ev.Reason == 0 && ev.RMR == nil && ev.CR == nil && ev.Software == nil)
		rule.Proves(t, "EVD-WAIT-02", "EVD-DEQ-04")
	})
}

// TestDequeueFromDeviceOverflow: more completions than the queue's length overflow it, even if the
// caller's slice has room for all.
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

// TestDequeueFromDeviceMixed: receives of a shared queue go through the ring. Later completions of
// the device come after them.
func TestDequeueFromDeviceMixed(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := newEnd(t, dev, setup{}), newEnd(t, dev, setup{unkept: true})
		s := b.shared(t, udat.SRQAttr{MaxRecvDTOs: 8, MaxRecvIOV: 1})
		b.recv = b.request
		b.share(t, s, udat.EPAttr{})
		connect(t, a, b)
		for _, receives := range []udat.Cookie{1, 2} {
			assert.NilError(t, a.ep.PostRecv(a.iov(0, 8), 0, 0))
			for i := range receives {
				assert.NilError(t, s.PostRecv(b.iov(0, 8), i))
				assert.NilError(t, a.ep.PostSend(a.iov(0, 8), i, 0))
				completion(t, a.request, i)
				time.Sleep(quiet)
			}
			assert.NilError(t, b.ep.PostSend(b.iov(0, 8), receives, 0))
			completion(t, a.recv, 0)
			time.Sleep(quiet)
			assert.Equal(t, udat.Queued(b.request), 0)
			events := make([]udat.Event, 8)
			n, err := b.request.DequeueBatch(events)
			assert.NilError(t, err)
			assert.Equal(t, n, int(receives)+1)
			for i := range n {
				assert.Equal(t, events[i].Cookie, udat.Cookie(i), "event %d: %s", i, describe(events[i]))
			}
		}
	})
}

// TestDequeueRingAndDevice: if the ring does not fill a batch, the batch also takes the completions
// of the device, after the events of the ring.
func TestDequeueRingAndDevice(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		all := udat.EVDSoftware | udat.EVDDTO | udat.EVDConnection | udat.EVDCR | udat.EVDRMRBind
		a, b := pair(t, dev, setup{unkept: true, streams: all})
		b.receive(0, 1)
		soft(t, b.recv, "first")
		a.send(8, 7, quietly)
		time.Sleep(quiet)
		assert.Equal(t, udat.Queued(b.recv), 1)
		events := make([]udat.Event, 4)
		n, err := b.recv.DequeueBatch(events)
		assert.NilError(t, err)
		assert.Equal(t, n, 2)
		assert.Equal(t, events[0].Software, any("first"))
		assert.Equal(t, events[1].Cookie, udat.Cookie(1))
	})
}

// TestDequeueRingAlone: if the ring has enough events, the device is not polled.
func TestDequeueRingAlone(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := pair(t, dev, setup{unkept: true, streams: udat.EVDDefault | udat.EVDSoftware})
		b.receive(0, 1)
		soft(t, b.recv, "first")
		a.send(8, 7, quietly)
		time.Sleep(quiet)
		ev, err := b.recv.Dequeue()
		assert.NilError(t, err)
		assert.Equal(t, ev.Software, any("first"))
		assert.Equal(t, udat.Queued(b.recv), 0)
		completion(t, b.recv, 1)
	})
}

// TestWaitFromDevice: a Wait that does not block finds the completions of the device, and dequeues
// nothing if there are fewer events than its threshold.
func TestWaitFromDevice(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := pair(t, dev, setup{unkept: true})
		take := func(threshold int, cookie udat.Cookie, left int) {
			t.Helper()
			ev, nmore, err := a.request.Wait(0, threshold)
			assert.NilError(t, err)
			assert.Equal(t, ev.Cookie, cookie)
			assert.Equal(t, nmore, left)
		}
		onTheDevice(t, a, b, 1)
		_, nmore, err := a.request.Wait(0, 2)
		assert.ErrorIs(t, err, udat.ErrTimeoutExpired)
		assert.Equal(t, nmore, 1)
		take(1, 0, 0)
		onTheDevice(t, a, b, 3)
		take(3, 0, 2)
		take(1, 1, 1)
		take(1, 2, 0)
		onTheDevice(t, a, b, 2)
		take(1, 0, 1)
		take(1, 1, 0)
		rule.Proves(t, "EVD-WAIT-03", "EVD-WAIT-07")
	})
}

// TestWaitDeviceFails: if the wait on the device fails, the call returns an error, and a later call
// may succeed.
func TestWaitDeviceFails(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		var script faultfabric.Script
		a, b := pair(t, dev, setup{unkept: true, script: &script, opts: []udat.Option{udat.WithSpin(0)}})
		cq := udat.CompletionQueue(a.request)
		script.On(faultfabric.Arm, cq).Times(1).Fail(fabric.ErrResources)
		_, _, err := a.request.Wait(patience, 1)
		refused(t, err, udat.InsufficientResources)
		script.On(faultfabric.Wait, cq).Times(1).Fail(fabric.ErrResources)
		_, _, err = a.request.Wait(patience, 1)
		refused(t, err, udat.InsufficientResources)
		onTheDevice(t, a, b, 1)
		completion(t, a.request, 0)
	})
}

// TestPostOneSegment: the limits of sizes also apply to operations of one segment, which addFast
// handles.
func TestPostOneSegment(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := newEnd(t, dev, setup{attr: &udat.EPAttr{MaxMessageSize: 16, MaxRDMASize: 32}}), newEnd(t, dev, setup{})
		connect(t, a, b)
		b.receive(0, 1)
		refused(t, a.ep.PostSend(a.iov(0, 17), 0, 0), udat.InvalidParameter, udat.SubArg2)
		far := a.mem.Triplet(0, 16)
		far.VirtualAddress += 1 << 32 // inside the region, but for a width
		refused(t, a.ep.PostSend([]udat.LMRTriplet{far}, 0, 0), udat.InvalidParameter, udat.SubArg3)
		refused(t, a.ep.PostRDMAWrite(a.iov(0, 33), 0, b.mem.RMRTriplet(0, 64), 0), udat.InvalidParameter, udat.SubArg2)
		assert.NilError(t, a.ep.PostRDMAWrite(a.iov(0, 32), 2, b.mem.RMRTriplet(0, 64), 0))
		completion(t, a.request, 2)
		refused(t, a.ep.PostRDMARead(a.iov(0, 33), 0, b.mem.RMRTriplet(0, 33), 0), udat.InvalidParameter, udat.SubArg2)
		assert.NilError(t, a.ep.PostRDMARead(a.iov(0, 32), 3, b.mem.RMRTriplet(0, 32), 0))
		completion(t, a.request, 3)
		assert.NilError(t, a.ep.PostSend(a.iov(0, 16), 1, 0))
		completion(t, a.request, 1)
		completion(t, b.recv, 1)
	})
}

// TestPostOneSegmentEmpty: an empty segment is left out, since some devices take it for 2 GiB.
func TestPostOneSegmentEmpty(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := pair(t, dev, setup{})
		assert.NilError(t, b.ep.PostRecv(b.iov(0, 0), 1, 0))
		assert.NilError(t, a.ep.PostSend(a.iov(0, 0), 1, 0))
		assert.Equal(t, completion(t, a.request, 1).Length, uint64(0))
		assert.Equal(t, completion(t, b.recv, 1).Length, uint64(0))
		assert.NilError(t, a.ep.PostRDMAWrite(a.iov(0, 0), 2, b.mem.RMRTriplet(0, 8), 0))
		completion(t, a.request, 2)
	})
}

// TestBatchOfOneSegment: a batch of the greatest length, on an endpoint that allows one segment in
// each request.
func TestBatchOfOneSegment(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		const n = 100
		one := &udat.EPAttr{MaxRequestIOV: 1, MaxRDMAReadIOV: 1, MaxRDMAWriteIOV: 1, MaxRequestDTOs: n}
		a, b := newEnd(t, dev, setup{attr: one}), newEnd(t, dev, setup{})
		connect(t, a, b)
		var ops []udat.Op
		for i := range udat.Cookie(n) {
			ops = append(ops, udat.Op{Kind: udat.OpRDMAWrite, Cookie: i, IOV: a.iov(int(i), 1),
				Remote: b.mem.RMRTriplet(int(i), 1)})
		}
		want := a.put(0, n, 3)
		posted, err := a.ep.PostBatch(ops)
		assert.NilError(t, err)
		assert.Equal(t, posted, n)
		for i := range udat.Cookie(n) {
			completion(t, a.request, i)
		}
		if acknowledged(a) {
			sameBytes(t, b.get(0, n), want)
		}
	})
}
