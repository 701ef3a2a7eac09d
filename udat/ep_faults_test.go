package udat_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/fabric/faultfabric"
	"github.com/godat/godat/udat/internal/rule"
	"github.com/godat/godat/udat/internal/softnic"
)

// inTime runs a test in virtual time, on the fabric inside this process.
func inTime(t *testing.T, test func(t *testing.T)) {
	t.Run("mem0", func(t *testing.T) { synctest.Test(t, test) })
}

// victim connects an end to a peer that ignores its events. The end's device then refuses a write
// of the peer. victim returns the end.
func victim(t *testing.T, dev string) (b *end, begin time.Time) {
	t.Helper()
	a, b := pair(t, dev, setup{script: &faultfabric.Script{}})
	a.script.On(faultfabric.Disconnect, a.ep.QP()).Drop()
	a.script.On(faultfabric.SetError, a.ep.QP()).Drop()
	a.script.On(faultfabric.Async).Drop() // soft-RoCE reports none either
	assert.NilError(t, b.ep.PostRecv(nil, 1, 0))
	to := b.mem.RMRTriplet(0, 8)
	to.RMRContext ^= 0x5a00
	begin = time.Now()
	assert.NilError(t, a.ep.PostRDMAWrite(a.iov(0, 8), 2, to, 0))
	return b, begin
}

// TestRefusedAccess: a peer uses a wrong key and does not disconnect. The end whose device has
// refused the access learns of it in much less than a second.
func TestRefusedAccess(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		b, begin := victim(t, dev)
		broken(t, b)
		t.Logf("after %v", time.Since(begin))
		flushed(t, b.recv, 1)
		empty(t, b.conn)
	})
	t.Run("in time", func(t *testing.T) {
		inTime(t, func(t *testing.T) {
			b, begin := victim(t, "mem0")
			expect(t, b.conn, udat.EventConnectionBroken)
			assert.Assert(t, time.Since(begin) < 300*time.Millisecond, "after %v", time.Since(begin))
		})
	})
}

// TestRefusedReason: if the fabric knows why it has refused a message of the peer, the event of the
// broken connection has this reason.
func TestRefusedReason(t *testing.T) {
	noLeaks(t)
	a, b := pair(t, "tcp:127.0.0.1", setup{})
	to := b.mem.RMRTriplet(0, 8)
	to.RMRContext ^= 0x5a00
	assert.NilError(t, b.ep.PostRecv(nil, 1, 0))
	assert.NilError(t, a.ep.PostRDMAWrite(a.iov(0, 8), 2, to, 0))
	ev := expect(t, b.conn, udat.EventConnectionBroken)
	assert.ErrorContains(t, ev.Err(), "the device has reported a failure of the queue pair: DDP: invalid key")
	flushed(t, b.recv, 1)
}

// TestLostRequest loses the connection request: the attempt ends by the Consumer's timeout or by
// the fabric's, whichever is shorter.
func TestLostRequest(t *testing.T) {
	inTime(t, func(t *testing.T) {
		a, b := newEnd(t, "mem0", setup{}), newEnd(t, "mem0", setup{})
		psp := listen(t, b)
		a.faults().Lose(softnic.MsgRequest, 2)
		begin := time.Now()
		assert.NilError(t, a.ep.Connect(b.ia.Addr(), psp.Qual(), 20*time.Second, nil, 0, 0))
		expect(t, a.conn, udat.EventConnectionTimedOut)
		assert.Equal(t, time.Since(begin), 20*time.Second)
		assert.NilError(t, a.ep.Reset())
		assert.NilError(t, a.ep.Connect(b.ia.Addr(), psp.Qual(), udat.Infinite, nil, 0, 0))
		ev, _, err := a.conn.Wait(udat.Infinite, 1)
		assert.NilError(t, err)
		assert.Equal(t, ev.Number, udat.EventConnectionUnreachable)
		empty(t, b.cr)
		rule.Proves(t, "EPST-15", "EPST-16", "EP-CONNECT-03", "EP-CONNECT-09", "C-05", "GAP-41")
	})
}

// TestLostReply loses the answer to a connection request.
func TestLostReply(t *testing.T) {
	inTime(t, func(t *testing.T) {
		a, b := newEnd(t, "mem0", setup{}), newEnd(t, "mem0", setup{})
		b.faults().Lose(softnic.MsgReply, 1)
		psp := listen(t, b)
		assert.NilError(t, a.ep.Connect(b.ia.Addr(), psp.Qual(), 10*time.Second, nil, 0, 0))
		cr := expect(t, b.cr, udat.EventConnectionRequest).CR
		assert.NilError(t, b.ep.PostRecv(nil, 1, 0))
		assert.NilError(t, cr.Accept(b.ep, nil))
		assert.Equal(t, state(t, b.ep), udat.EPCompletionPending)
		expect(t, a.conn, udat.EventConnectionTimedOut)
		ev, _, err := b.conn.Wait(udat.Infinite, 1)
		assert.NilError(t, err)
		assert.Equal(t, ev.Number, udat.EventConnectionAcceptError)
		flushed(t, b.recv, 1)
		rule.Proves(t, "EPST-24", "EPST-26", "CR-ACCEPT-04", "EPST-16")
	})
}

// TestLostReady loses the last message of the handshake: the first message of data confirms the
// accept instead.
func TestLostReady(t *testing.T) {
	inTime(t, func(t *testing.T) {
		b, a := inState(t, "mem0", udat.EPCompletionPending, setup{})
		assert.NilError(t, b.ep.PostRecv(nil, 1, 0))
		refused(t, b.ep.PostSend(nil, 1, 0), udat.InvalidState, udat.SubStateEPComplPending)
		assert.NilError(t, a.ep.PostSend(nil, 2, 0)) // confirms the accept instead of the lost message
		expect(t, b.conn, udat.EventConnectionEstablished)
		completion(t, b.recv, 1)
		assert.Equal(t, state(t, b.ep), udat.EPConnected)
		rule.Proves(t, "EPST-25", "EVD-46")
	})
}

// TestCompletionPendingGivenUp: the passive end disconnects before the handshake is over.
func TestCompletionPendingGivenUp(t *testing.T) {
	inTime(t, func(t *testing.T) {
		for _, flags := range []udat.CloseFlags{udat.CloseAbrupt, udat.CloseGraceful} {
			b, a := inState(t, "mem0", udat.EPCompletionPending, setup{})
			assert.NilError(t, b.ep.PostRecv(nil, 1, 0))
			assert.NilError(t, b.ep.Disconnect(flags))
			expect(t, b.conn, udat.EventConnectionDisconnected)
			flushed(t, b.recv, 1)
			expect(t, a.conn, udat.EventConnectionDisconnected)
		}
		rule.Proves(t, "EPST-27", "EP-DISC-06", "EP-DISC-07")
	})
}

// TestFlushWithoutCause: the queue pair is in error, and no error explains why. The disconnect that
// explains it may still come.
func TestFlushWithoutCause(t *testing.T) {
	inTime(t, func(t *testing.T) {
		a, b := pair(t, "mem0", setup{})
		assert.NilError(t, a.ep.PostRecv(nil, 1, 0))
		assert.NilError(t, a.ep.QP().SetError())
		flushed(t, a.recv, 1)
		assert.Equal(t, state(t, a.ep), udat.EPConnected)
		begin := time.Now()
		expect(t, a.conn, udat.EventConnectionBroken)
		assert.Assert(t, time.Since(begin) <= 5*time.Second)
		expect(t, b.conn, udat.EventConnectionDisconnected)

		a, b = pair(t, "mem0", setup{})
		assert.NilError(t, a.ep.PostRecv(nil, 1, 0))
		assert.NilError(t, a.ep.QP().SetError())
		flushed(t, a.recv, 1)
		assert.NilError(t, b.ep.Disconnect(udat.CloseAbrupt))
		expect(t, a.conn, udat.EventConnectionDisconnected)
		time.Sleep(time.Minute)
		empty(t, a.conn)
		rule.Proves(t, "EPST-33", "EPST-34", "GAP-51")
	})
}

// TestSilentPeer: the peer's host has vanished without a message.
func TestSilentPeer(t *testing.T) {
	inTime(t, func(t *testing.T) {
		a, b := pair(t, "mem0", setup{})
		b.faults().Kill()
		assert.NilError(t, a.ep.PostRecv(nil, 1, 0))
		assert.NilError(t, a.ep.PostRDMAWrite(a.iov(0, 8), 2, b.mem.RMRTriplet(0, 8), 0))
		assert.NilError(t, a.ep.PostSend(nil, 3, udat.CompletionSuppress))
		ev := expect(t, a.request, udat.EventDTOCompletion)
		assert.Equal(t, ev.Status, udat.DTOErrTransport)
		assert.Equal(t, ev.Cookie, udat.Cookie(2))
		flushed(t, a.request, 3)
		flushed(t, a.recv, 1)
		expect(t, a.conn, udat.EventConnectionBroken)
		rule.Proves(t, "EPST-34", "POST-16", "EPST-43")
	})
}

// TestNobodyLooks: a broken connection is reported although no call dequeues the failed completion.
func TestNobodyLooks(t *testing.T) {
	inTime(t, func(t *testing.T) {
		a, b := pair(t, "mem0", setup{})
		a.faults().FailOp(1, fabric.StatusRemoteOp)
		assert.NilError(t, a.ep.PostSend(nil, 1, udat.CompletionSuppress))
		expect(t, a.conn, udat.EventConnectionBroken)
		expect(t, b.conn, udat.EventConnectionDisconnected)
		rule.Proves(t, "POST-16", "GAP-51")
	})
}

// TestStatuses makes work fail with every status of a fabric.
func TestStatuses(t *testing.T) {
	onMemOutside(t, func(t *testing.T, dev string) {
		for st, want := range map[fabric.Status][2]udat.DTOStatus{ // of a request, of a receive
			fabric.StatusLocalLength:   {udat.DTOErrLocalLength, udat.DTOErrLocalLength},
			fabric.StatusLocalQPOp:     {udat.DTOErrLocalEP, udat.DTOErrLocalLength},
			fabric.StatusLocalEEC:      {udat.DTOErrTransport, udat.DTOErrTransport},
			fabric.StatusLocalProt:     {udat.DTOErrLocalProtection, udat.DTOErrLocalProtection},
			fabric.StatusMWBind:        {udat.RMROperationFailed, udat.RMROperationFailed},
			fabric.StatusBadResponse:   {udat.DTOErrBadResponse, udat.DTOErrBadResponse},
			fabric.StatusLocalAccess:   {udat.DTOErrLocalProtection, udat.DTOErrLocalProtection},
			fabric.StatusRemoteInvReq:  {udat.DTOErrRemoteResponder, udat.DTOErrRemoteResponder},
			fabric.StatusRemoteAccess:  {udat.DTOErrRemoteAccess, udat.DTOErrRemoteAccess},
			fabric.StatusRemoteOp:      {udat.DTOErrRemoteResponder, udat.DTOErrRemoteResponder},
			fabric.StatusRetryExceeded: {udat.DTOErrTransport, udat.DTOErrTransport},
			fabric.StatusRNRExceeded:   {udat.DTOErrReceiverNotReady, udat.DTOErrReceiverNotReady},
			fabric.StatusLocalRDD:      {udat.DTOErrLocalProtection, udat.DTOErrLocalProtection},
			fabric.StatusRemoteInvRD:   {udat.DTOErrRemoteResponder, udat.DTOErrRemoteResponder},
			fabric.StatusRemoteAborted: {udat.DTOErrRemoteResponder, udat.DTOErrRemoteResponder},
			fabric.StatusFatal:         {udat.DTOErrTransport, udat.DTOErrTransport},
			fabric.StatusGeneral:       {udat.DTOErrTransport, udat.DTOErrLocalLength},
		} {
			for i, what := range []string{"request", "receive"} {
				t.Run(fmt.Sprintf("%v, %s", st, what), func(t *testing.T) {
					a, b := pair(t, dev, setup{})
					assert.NilError(t, a.ep.PostRecv(a.iov(0, 8), 1, 0))
					assert.NilError(t, a.ep.PostSend(a.iov(0, 8), 2, udat.CompletionSuppress)) // waits: the peer has no receive
					assert.NilError(t, a.ep.PostSend(a.iov(0, 8), 3, 0))
					evd, cookie := a.request, udat.Cookie(2)
					if i == 0 {
						a.faults().FailOp(1, st) // the next request that starts; the first may have started
						assert.NilError(t, b.ep.PostRecv(b.iov(0, 8), 9, 0))
						ev := expect(t, evd, udat.EventDTOCompletion)
						assert.Equal(t, ev.Status, want[i])
						assert.Equal(t, ev.RawStatus, uint32(st))
						assert.Equal(t, ev.Length, uint64(0))
						assert.Assert(t, ev.Cookie == cookie || ev.Cookie == cookie+1)
					} else {
						a.faults().FailRecv(1, st)
						assert.NilError(t, b.ep.PostSend(b.iov(0, 8), 9, 0))
						ev := expect(t, a.recv, udat.EventDTOCompletion)
						assert.Equal(t, ev.Status, want[i])
						assert.Equal(t, ev.RawStatus, uint32(st))
						assert.Equal(t, ev.Cookie, udat.Cookie(1))
						assert.Assert(t, !ev.HasImmediate)
					}
					expect(t, a.conn, udat.EventConnectionBroken)
					if i == 0 {
						expect(t, b.conn, udat.EventConnectionDisconnected)
					} else {
						expect(t, b.conn, udat.EventConnectionBroken)
					}
					empty(t, a.conn)
					empty(t, b.conn)
				})
			}
		}
		rule.Proves(t, "EVT-05", "POST-16", "EPST-34", "POST-17")
	})
}

// TestMisnamedProtection: if a local region has been freed since the post, or is not in the zone,
// the status is a protection error even if the device reports a queue pair operation error.
func TestMisnamedProtection(t *testing.T) {
	onMem(t, func(t *testing.T, dev string) {
		for _, behindEmpty := range []bool{false, true} {
			var script faultfabric.Script
			a, b := pair(t, dev, setup{script: &script})
			gone := a.lmr(1, udat.PrivAll)
			iov := []udat.LMRTriplet{gone.Triplet(0, 1)}
			if behindEmpty {
				iov = append(a.iov(0, 0), iov...)
			}
			hidden := script.On(faultfabric.Poll, udat.CompletionQueue(a.request)).Drop()
			a.faults().FailOp(1, fabric.StatusLocalQPOp)
			assert.NilError(t, a.ep.PostSend(iov, 2, 0))
			assert.NilError(t, gone.Free())
			hidden.Stop()
			failed(t, a.request, 2, udat.DTOErrLocalProtection)
			broken(t, a)
			parted(t, b)
		}
		for _, st := range []fabric.Status{fabric.StatusLocalQPOp, fabric.StatusGeneral} {
			a, b := newEnd(t, dev, setup{}), newEnd(t, dev, setup{})
			gone := b.lmr(8, udat.PrivAll)
			posted := [][]udat.LMRTriplet{{gone.Triplet(0, 8)}, b.iov(0, 8)}
			for i, spoil := range []func(){
				func() { assert.NilError(t, gone.Free()) },
				func() {
					pz, err := b.ia.CreatePZ()
					assert.NilError(t, err)
					assert.NilError(t, b.ep.Modify(udat.EPFieldPZ, udat.EPParam{PZ: pz}))
				},
			} {
				assert.NilError(t, b.ep.PostRecv(posted[i], 1, 0))
				spoil()
				connect(t, a, b)
				b.faults().FailRecv(1, st)
				assert.NilError(t, a.ep.PostSend(a.iov(0, 8), 2, 0))
				failed(t, b.recv, 1, udat.DTOErrLocalProtection)
				broken(t, a, b)
				for _, e := range []*end{a, b} {
					b.drain(e.request)
					assert.NilError(t, e.ep.Reset())
				}
			}
		}
		rule.Proves(t, "LMR-FREE-02", "OBJ-03")
	})
}

// TestDeviceRemoved: every endpoint gets one event, whatever its state.
func TestDeviceRemoved(t *testing.T) {
	inTime(t, func(t *testing.T) {
		a, b := pair(t, "mem0", setup{})
		assert.NilError(t, a.ep.PostRecv(nil, 1, 0))
		assert.NilError(t, a.ep.PostSend(nil, 2, 0))
		a.faults().Remove()
		expect(t, a.conn, udat.EventConnectionBroken)
		flushed(t, a.recv, 1)
		flushed(t, a.request, 2)
		ev := expect(t, a.ia.AsyncEVD(), udat.EventAsyncIACatastrophic)
		assert.Equal(t, ev.Object, udat.Handle(a.ia))
		refused(t, a.ep.PostSend(nil, 3, 0), udat.InternalError)
		empty(t, a.conn)
		assert.NilError(t, a.ep.Free())
		assert.NilError(t, a.ia.Close(udat.CloseAbrupt))
		assert.NilError(t, b.ia.Close(udat.CloseAbrupt))
		rule.Proves(t, "EPST-34")
	})
}

// TestShortOfResources: a call that fails for lack of resources changes nothing.
func TestShortOfResources(t *testing.T) {
	onMem(t, func(t *testing.T, dev string) {
		a, b := newEnd(t, dev, setup{}), newEnd(t, dev, setup{})
		psp := listen(t, b)
		assert.NilError(t, a.ep.PostRecv(nil, 1, 0))
		a.faults().Exhaust(softnic.Conns, 1)
		refused(t, a.ep.Connect(b.ia.Addr(), psp.Qual(), patience, nil, 0, 0), udat.InsufficientResources)
		assert.Equal(t, state(t, a.ep), udat.EPUnconnected)
		holds(t, a.ep, 1)
		rule.Proves(t, "EP-CONNECT-13", "EP-CONNECT-14")

		cr := ask(t, a, b, []byte("hello"))
		assert.NilError(t, b.ep.PostRecv(nil, 2, 0))
		b.faults().Exhaust(softnic.Conns, 1)
		before := accepting(t, cr, b.ep)
		refused(t, cr.Accept(b.ep, []byte("no")), udat.InsufficientResources)
		assert.Equal(t, accepting(t, cr, b.ep), before)
		holds(t, b.ep, 1)
		empty(t, b.conn)
		empty(t, a.conn)
		assert.NilError(t, cr.Accept(b.ep, []byte("yes")))
		expect(t, b.conn, udat.EventConnectionEstablished)
		assert.Equal(t, string(expect(t, a.conn, udat.EventConnectionEstablished).PrivateData()), "yes")

		part(t, a, b, udat.CloseAbrupt)
		flushed(t, a.recv, 1)
		flushed(t, b.recv, 2)
		a.faults().Exhaust(softnic.QPs, 1)
		refused(t, a.ep.Reset(), udat.InsufficientResources, udat.SubResourceTEP)
		assert.Equal(t, state(t, a.ep), udat.EPDisconnected)
		marker(t, a)
		assert.NilError(t, a.ep.Reset())
		assert.NilError(t, b.ep.Reset())
		connect(t, a, b)
		empty(t, a.conn)
	})
}

// TestEmptyWorkFails: work without segments fails, too.
func TestEmptyWorkFails(t *testing.T) {
	onMem(t, func(t *testing.T, dev string) {
		a, b := pair(t, dev, setup{})
		assert.NilError(t, b.ep.PostRecv(nil, 1, 0))
		a.faults().FailOp(1, fabric.StatusLocalQPOp)
		assert.NilError(t, a.ep.PostSend(nil, 2, 0))
		assert.Equal(t, expect(t, a.request, udat.EventDTOCompletion).Status, udat.DTOErrLocalEP)
		flushed(t, b.recv, 1)
	})
	onMem(t, func(t *testing.T, dev string) {
		a, b := pair(t, dev, setup{})
		assert.NilError(t, b.ep.PostRecv(nil, 1, 0))
		b.faults().FailRecv(1, fabric.StatusLocalQPOp)
		assert.NilError(t, a.ep.PostSend(nil, 2, 0))
		assert.Equal(t, expect(t, b.recv, udat.EventDTOCompletion).Status, udat.DTOErrLocalLength)
	})
}

// bystander is another endpoint of the adapter of e, with dispatchers of its own, and its peer.
func bystander(t *testing.T, dev string, e *end) (other, peer *end) {
	t.Helper()
	other, peer = new(end), newEnd(t, dev, setup{})
	*other = *e
	other.recv, other.request = e.evd(8, udat.EVDDTO), e.evd(8, udat.EVDDTO|udat.EVDRMRBind)
	other.conn = e.evd(8, udat.EVDConnection)
	var err error
	other.ep, err = e.ia.CreateEP(e.pz, other.recv, other.request, other.conn, nil)
	assert.NilError(t, err)
	connect(t, other, peer)
	return other, peer
}

// TestCompletionQueueFails: if a completion queue fails, the endpoints that use it are broken, and
// no others.
func TestCompletionQueueFails(t *testing.T) {
	onMem(t, func(t *testing.T, dev string) {
		a, b := pair(t, dev, setup{})
		other, _ := bystander(t, dev, a)
		a.faults().Overrun(udat.CompletionQueue(a.request))
		ev := expect(t, a.ia.AsyncEVD(), udat.EventAsyncEVDOverflow)
		assert.Equal(t, ev.Object, udat.Handle(a.request))
		expect(t, a.conn, udat.EventConnectionBroken)
		expect(t, b.conn, udat.EventConnectionDisconnected) // no work of this end has failed
		expect(t, a.ia.AsyncEVD(), udat.EventAsyncEPBroken)
		assert.Equal(t, state(t, other.ep), udat.EPConnected)
		assert.NilError(t, a.ep.Free())
	})
}

// TestQueuePairFails: if the device reports that a queue pair has failed, its endpoint is broken
// and no other. The event names the endpoint.
func TestQueuePairFails(t *testing.T) {
	onMem(t, func(t *testing.T, dev string) {
		a, _ := pair(t, dev, setup{})
		other, _ := bystander(t, dev, a)
		a.faults().Report(fabric.AsyncEvent{Kind: fabric.AsyncQPFatal, QP: a.ep.QP()})
		ev := expect(t, a.ia.AsyncEVD(), udat.EventAsyncEPBroken)
		assert.Assert(t, ev.Object == udat.Handle(a.ep) && ev.EP == a.ep && ev.Reason == udat.ReasonEPTransferToError)
		expect(t, a.conn, udat.EventConnectionBroken)
		assert.Equal(t, state(t, other.ep), udat.EPConnected)
	})
}

// TestRecvNotPosted: if the device refuses a receive, the post returns an error, and the receive
// does not count.
func TestRecvNotPosted(t *testing.T) {
	onMem(t, func(t *testing.T, dev string) {
		e := newEnd(t, dev, setup{})
		assert.NilError(t, e.ep.PostRecv(e.iov(0, 8), 1, 0))
		e.faults().Remove()
		assert.Assert(t, e.ep.PostRecv(e.iov(0, 8), 2, 0) != nil)
		n, err := e.ep.PostRecvBatch(make([]udat.Recv, 3))
		assert.Equal(t, n, 0)
		assert.Assert(t, err != nil)
		_, err = e.ep.PostRecvBatch([]udat.Recv{{Flags: udat.CompletionSuppress}})
		// errors of the arguments come before errors of the device
		refused(t, err, udat.InvalidParameter, udat.SubArg5)
		n, _, err = e.ep.RecvQuery()
		assert.NilError(t, err)
		assert.Assert(t, n <= 1, "%d receives, 1 has been posted", n)
		rule.Proves(t, "EP-RECVQ-02")
	})
}

func second(_ any, err error) error { return err }

// TestRequestNotPosted: if the device refuses a request, alone or in a batch, the post returns an
// error. A fault of the device is an internal error of every call that needs the device, and hides
// no error of the Consumer.
func TestRequestNotPosted(t *testing.T) {
	onSoftware(t, func(t *testing.T, dev string) {
		a, b := pair(t, dev, setup{})
		a.nic().Remove()
		become(t, a.ep, udat.EPDisconnected)
		for _, p := range posters {
			refused(t, p.post(a, b, a.iov(0, 8), 1, 0), udat.InternalError)
			// Errors of the arguments come before errors of the device.
			refused(t, p.post(a, b, a.iov(endMemory, 8), 1, 0), udat.InvalidParameter)
			refused(t, p.post(a, b, []udat.LMRTriplet{b.mem.Triplet(0, 8)}, 1, 0), udat.ProtectionViolation)
			refused(t, p.post(a, b, []udat.LMRTriplet{{SegmentLength: 8}}, 1, 0), udat.PrivilegesViolation)
		}
		for what, err := range map[string][2]error{ // the errors of a valid call and of an invalid one
			"zone":       {second(a.ia.CreatePZ())},
			"region":     {second(a.ia.AllocLMR(a.pz, 8, 0)), second(a.ia.AllocLMR(a.pz, 0, 0))},
			"dispatcher": {second(a.ia.CreateEVD(8, udat.EVDDTO, nil)), second(a.ia.CreateEVD(0, udat.EVDDTO, nil))},
			"endpoint": {second(a.ia.CreateEP(a.pz, nil, nil, nil, nil)),
				second(a.ia.CreateEP(a.pz, nil, nil, nil, &udat.EPAttr{MaxRecvDTOs: -7}))},
			"queue": {second(a.ia.CreateSRQ(a.pz, udat.SRQAttr{MaxRecvDTOs: 1})),
				second(a.ia.CreateSRQ(a.pz, udat.SRQAttr{}))},
			"listener": {second(a.ia.CreatePSP(4711, a.cr, udat.PSPConsumer)),
				second(a.ia.CreatePSP(0, a.cr, udat.PSPConsumer))},
		} {
			assert.ErrorIs(t, err[0], udat.ErrInternalError, what)
			if what != "zone" {
				assert.ErrorIs(t, err[1], udat.ErrInvalidParameter, what)
			}
		}
		rule.Proves(t, "GEN-05")
		n, err := a.ep.PostBatch([]udat.Op{{IOV: a.iov(0, 8)}, {IOV: a.iov(0, 8)}})
		assert.Equal(t, n, 0)
		assert.Assert(t, err != nil)
		_, _, idle, err := a.ep.GetStatus()
		assert.NilError(t, err)
		assert.Assert(t, idle)
		empty(t, a.request)
		rule.Proves(t, "EP-STATUS-02")
	})
}
