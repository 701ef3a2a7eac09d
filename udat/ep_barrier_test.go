package udat_test

import (
	"encoding/binary"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/rule"
)

// TestBindIsBarrier posts operations that need a window directly after its bind, without a fence
// and without waiting: when the peer gets the Send, the new context gives access to the memory, and
// the old one does not.
func TestBindIsBarrier(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := pair(t, dev, setup{})
		r := b.window(t)
		l := b.lmr(8192, udat.PrivLocalRead|udat.PrivLocalWrite)
		var old, remote udat.RMRTriplet
		for i := range 40 {
			assert.NilError(t, a.ep.PostRecv(a.iov(0, 4), 1, 0))
			part := l.Triplet(i*128, 128)
			context, err := r.Bind(part, bothRights, b.ep, 2, udat.CompletionSuppress)
			assert.NilError(t, err)
			binary.BigEndian.PutUint32(b.get(0, 4), context)
			assert.NilError(t, b.ep.PostSend(b.iov(0, 4), 3, 0))
			completion(t, a.recv, 1)
			old, remote = remote, udat.RMRTriplet{
				RMRContext: binary.BigEndian.Uint32(a.get(0, 4)), TargetAddress: l.RMRTriplet(i*128, 1).TargetAddress,
				SegmentLength: 128,
			}
			want := a.put(1024, 128, byte(i))
			assert.NilError(t, a.ep.PostRDMAWrite(a.iov(1024, 128), 4, remote, 0))
			completion(t, a.request, 4)
			assert.DeepEqual(t, l.Bytes()[i*128:][:128], want)
			completion(t, b.request, 3)
		}
		assert.NilError(t, a.ep.PostRDMAWrite(a.iov(1024, 128), 5, old, 0))
		failed(t, a.request, 5, udat.DTOErrRemoteAccess)
		broken(t, a)
		targetOfFault(t, b)
		rule.Proves(t, "F-09", "RMR-BIND-02")
	})
}

// TestNothingPassesFailedBind: operations that were posted after a bind have not begun when the
// bind fails.
func TestNothingPassesFailedBind(t *testing.T) {
	onMem(t, func(t *testing.T, dev string) {
		a, b := pair(t, dev, setup{})
		r := b.window(t)
		assert.NilError(t, a.ep.PostRecv(a.iov(0, 8), 1, 0))
		clear(a.get(0, 128))
		b.put(0, 64, 9)
		b.faults().FailOp(1, fabric.StatusMWBind)
		_, err := r.Bind(b.mem.Triplet(0, 10), bothRights, b.ep, 2, 0)
		assert.NilError(t, err)
		assert.NilError(t, b.ep.PostRDMAWrite(b.iov(0, 64), 3, a.mem.RMRTriplet(64, 64), 0))
		assert.NilError(t, b.ep.PostSend(b.iov(0, 8), 4, 0))
		ev := expect(t, b.request, udat.EventRMRBindCompletion)
		assert.Equal(t, ev.Status, udat.RMROperationFailed)
		flushed(t, b.request, 3)
		flushed(t, b.request, 4)
		flushed(t, a.recv, 1)
		assert.DeepEqual(t, a.get(0, 128), make([]byte, 128))
		rule.Proves(t, "F-09")
	})
}

// TestFlagsSupported: posts accept exactly the flags that the provider attribute lists.
func TestFlagsSupported(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := pair(t, dev, setup{attr: &udat.EPAttr{RequestCompletionFlags: udat.CompletionUnsignalled}})
		_, _, p, err := a.ia.Query()
		assert.NilError(t, err)
		listed := p.CompletionFlagsSupported
		assert.Equal(t, listed, udat.CompletionSuppress|udat.CompletionSolicitedWait|udat.CompletionUnsignalled|
			udat.CompletionBarrierFence)
		for bit := range 32 {
			flag := udat.CompletionFlags(1) << bit
			if listed&flag == 0 {
				refused(t, a.ep.PostSend(a.iov(0, 1), 1, flag), udat.InvalidParameter, udat.SubArg5)
				continue
			}
			assert.NilError(t, b.ep.PostRecv(b.iov(0, 1), 2, 0))
			assert.NilError(t, a.ep.PostSend(a.iov(0, 1), 1, flag))
			completion(t, b.recv, 2)
			if flag != udat.CompletionSuppress {
				eventually(t, func() bool { _, err := a.request.Dequeue(); return err == nil }, "flag 0x%x: no completion",
					uint32(flag))
			}
		}
		assert.Equal(t, state(t, a.ep), udat.EPConnected)
		rule.Proves(t, "F-10")
	})
}

// TestStatusIsSnapshot: GetStatus reports the current state and changes nothing. It neither
// dequeues events nor waits for anybody to dequeue them, and its result may be outdated at once.
func TestStatusIsSnapshot(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := pair(t, dev, setup{})
		status := func(ep *udat.EP, recv, request bool) {
			t.Helper()
			for range 3 { // asking changes nothing
				s, recvIdle, requestIdle, err := ep.GetStatus()
				assert.NilError(t, err)
				assert.Equal(t, s, udat.EPConnected)
				assert.DeepEqual(t, []bool{recvIdle, requestIdle}, []bool{recv, request})
			}
		}
		status(b.ep, true, true)
		receives := func() {
			for i := range 4 {
				assert.NilError(t, b.ep.PostRecv(b.iov(0, 8), udat.Cookie(i), 0))
			}
		}
		late := acknowledged(a) // the Sends wait for their receives
		if !late {
			receives()
		}
		for i := range 3 {
			assert.NilError(t, a.ep.PostSend(a.iov(0, 8), udat.Cookie(i), 0))
		}
		if late {
			status(a.ep, true, false)
			receives()
		}
		eventually(t, func() bool { _, _, idle, err := a.ep.GetStatus(); return err == nil && idle }, "the sends are done")
		status(a.ep, true, true)
		status(b.ep, false, true) // one receive is left
		assert.NilError(t, a.ep.PostSend(a.iov(0, 8), 3, 0))
		eventually(t, func() bool { _, idle, _, err := b.ep.GetStatus(); return err == nil && idle }, "the receives are done")
		// Idle, though nobody has taken an event, and all events are still there.
		for i := range udat.Cookie(4) {
			completion(t, a.request, i)
			completion(t, b.recv, i)
		}
		assert.NilError(t, b.ep.PostRecv(nil, 9, 0)) // idle then is not idle now
		status(b.ep, false, true)
		for _, evd := range []*udat.EVD{a.request, b.recv, a.conn, b.conn} {
			empty(t, evd)
		}
		rule.Proves(t, "EP-STATUS-01", "EP-STATUS-02")
	})
}
