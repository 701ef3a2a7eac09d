package udat_test

import (
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
	"github.com/godat/godat/udat/internal/rule"
	"github.com/godat/godat/udat/internal/softnic"
)

// TestCreateEP makes an endpoint without and one with a shared queue: both are UNCONNECTED, have no
// event, and keep the objects that they were made with in use until they are freed.
func TestCreateEP(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		e := newEnd(t, dev, setup{})
		made := func() {
			t.Helper()
			s, recvIdle, requestIdle, err := e.ep.GetStatus()
			assert.NilError(t, err)
			assert.Equal(t, s, udat.EPUnconnected)
			assert.Assert(t, recvIdle && requestIdle)
			for _, evd := range []*udat.EVD{e.recv, e.request, e.conn, e.ia.AsyncEVD()} {
				empty(t, evd)
			}
			refused(t, e.pz.Free(), udat.InvalidState, udat.SubStatePZInUse)
			for _, evd := range []*udat.EVD{e.recv, e.request, e.conn} {
				refused(t, evd.Free(), udat.InvalidState, udat.SubStateEVDInUse)
			}
		}
		made()
		rule.Proves(t, "EP-CREATE-01", "EPST-01")
		if udat.DeviceAttr(e.ia).MaxSRQ > 0 {
			s := e.shared(t, udat.SRQAttr{MaxRecvDTOs: 4})
			e.share(t, s, udat.EPAttr{})
			made()
			refused(t, s.Free(), udat.InvalidState, udat.SubStateSRQInUse)
			rule.Proves(t, "EPST-10")
			assert.NilError(t, e.ep.Free())
			assert.NilError(t, s.Free())
		} else {
			assert.NilError(t, e.ep.Free())
		}
		for _, evd := range []*udat.EVD{e.recv, e.request, e.conn} {
			assert.NilError(t, evd.Free())
		}
		assert.NilError(t, e.mem.Free())
		assert.NilError(t, e.pz.Free())
		rule.Proves(t, "EP-CREATE-11", "OBJ-08")
	})
}

// TestCreateEPStreams shows that each kind of event comes to the dispatcher for that kind.
func TestCreateEPStreams(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := pair(t, dev, setup{}) // ESTABLISHED came to conn, the request to cr
		windows := udat.DeviceAttr(a.ia).MaxMW > 0
		assert.NilError(t, b.ep.PostRecv(b.iov(0, 8), 1, 0))
		assert.NilError(t, a.ep.PostSend(a.iov(0, 8), 2, 0))
		assert.NilError(t, a.ep.PostRDMAWrite(a.iov(0, 8), 3, b.mem.RMRTriplet(0, 8), 0))
		assert.NilError(t, a.ep.PostRDMARead(a.iov(0, 8), 4, b.mem.RMRTriplet(0, 8), 0))
		if windows {
			rmr, err := a.pz.CreateRMR()
			assert.NilError(t, err)
			_, err = rmr.Bind(a.mem.Triplet(0, 64), udat.PrivRemoteRead, a.ep, 5, 0)
			assert.NilError(t, err)
		}
		assert.Equal(t, completion(t, b.recv, 1).Operation, udat.DTOReceive)
		assert.Equal(t, completion(t, a.request, 2).Operation, udat.DTOSend)
		assert.Equal(t, completion(t, a.request, 3).Operation, udat.DTORDMAWrite)
		assert.Equal(t, completion(t, a.request, 4).Operation, udat.DTORDMARead)
		if windows {
			assert.Equal(t, expect(t, a.request, udat.EventRMRBindCompletion).Cookie, udat.Cookie(5))
		}
		for _, evd := range []*udat.EVD{a.recv, a.request, a.conn, b.recv, b.request, b.conn} {
			empty(t, evd)
		}
		rule.Proves(t, "EP-CREATE-02", "POST-15")
	})
}

// TestCreateEPWithoutDispatchers shows that an endpoint works without any one of its dispatchers
// and without all of them, and that events for a missing dispatcher are not reported.
func TestCreateEPWithoutDispatchers(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		const noRecv, noRequest, noConn = 1, 2, 4
		for _, lacks := range []int{noRecv, noRequest, noConn, noRecv | noRequest | noConn} {
			a, b := newEnd(t, dev, setup{}), newEnd(t, dev, setup{})
			have := func(evd *udat.EVD, what int) *udat.EVD {
				if lacks&what != 0 {
					return nil
				}
				return evd
			}
			silent, err := a.ia.CreateEP(a.pz, have(a.recv, noRecv), have(a.request, noRequest), have(a.conn, noConn), nil)
			assert.NilError(t, err)
			a.ep = silent
			ask := ask(t, a, b, nil)
			assert.NilError(t, ask.Accept(b.ep, nil))
			expect(t, b.conn, udat.EventConnectionEstablished)
			become(t, a.ep, udat.EPConnected)
			if lacks&noConn == 0 {
				expect(t, a.conn, udat.EventConnectionEstablished)
			}
			for i := range 50 { // more than a queue holds: requests without a dispatcher complete too
				assert.NilError(t, b.ep.PostRecv(b.iov(i*8, 8), udat.Cookie(i), 0))
				assert.NilError(t, a.ep.PostRecv(a.iov(i*8, 8), udat.Cookie(i), 0))
				eventually(t, func() bool { return a.ep.PostSend(a.iov(0, 8), udat.Cookie(i), 0) == nil }, "post %d", i)
				completion(t, b.recv, udat.Cookie(i))
				assert.NilError(t, b.ep.PostSend(b.iov(0, 8), udat.Cookie(i), 0))
				completion(t, b.request, udat.Cookie(i))
				if lacks&noRecv == 0 {
					completion(t, a.recv, udat.Cookie(i))
				}
				if lacks&noRequest == 0 {
					completion(t, a.request, udat.Cookie(i))
				}
			}
			eventually(t, func() bool { _, r, q, err := a.ep.GetStatus(); return r && q && err == nil }, "work is left")
			for _, evd := range []*udat.EVD{a.recv, a.request, a.conn, a.ia.AsyncEVD()} {
				empty(t, evd) // events without a dispatcher overflow no queue
			}
			// A failure is noticed although no dispatcher takes its completion.
			assert.NilError(t, a.ep.PostRDMAWrite(a.iov(0, 8), 0, udat.RMRTriplet{RMRContext: 0xdeadbe00, TargetAddress: 1,
				SegmentLength: 8}, 0))
			become(t, a.ep, udat.EPDisconnected)
			targetOfFault(t, b)
			assert.NilError(t, a.ep.Reset())
			assert.NilError(t, a.ep.Free())
		}
		rule.Proves(t, "EP-CREATE-03", "POST-16")
	})
}

// TestCreateEPDefaults connects endpoints that were made without attributes, and fills their
// queues.
func TestCreateEPDefaults(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := pair(t, dev, setup{qlen: 32})
		for i := range 16 {
			assert.NilError(t, b.ep.PostRecv(b.iov(i*8, 8), udat.Cookie(i), 0))
		}
		refused(t, b.ep.PostRecv(b.iov(0, 8), 0, 0), udat.InsufficientResources)
		for i := range 16 {
			assert.NilError(t, a.ep.PostSend(a.iov(i*8, 8), udat.Cookie(i), 0))
		}
		for i := range 16 {
			completion(t, b.recv, udat.Cookie(i))
			completion(t, a.request, udat.Cookie(i))
		}
		empty(t, a.ia.AsyncEVD())
		empty(t, b.ia.AsyncEVD())
		rule.Proves(t, "EP-CREATE-04", "EP-CREATE-05")
	})
}

func TestCreateEPWithoutZone(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		e := newEnd(t, dev, setup{})
		bare, err := e.ia.CreateEP(nil, e.recv, e.request, e.conn, nil)
		assert.NilError(t, err)
		assert.Equal(t, state(t, bare), udat.EPUnconnected)
		refused(t, bare.Connect(e.ia.Addr(), 4711, patience, nil, udat.QoSBestEffort, 0), udat.InvalidState,
			udat.SubStateEPNotReady)
		refused(t, bare.PostRecv(e.iov(0, 8), 0, 0), udat.ProtectionViolation, udat.SubProtectionWrite)
		refused(t, bare.PostSend(e.iov(0, 8), 0, 0), udat.InvalidState)
		assert.Equal(t, state(t, bare), udat.EPUnconnected)
		cr := ask(t, newEnd(t, dev, setup{}), e, nil)
		refused(t, cr.Accept(bare, nil), udat.InvalidState, udat.SubStateEPNotReady)
		assert.NilError(t, cr.Accept(e.ep, nil), "a refused accept leaves the request")
		expect(t, e.conn, udat.EventConnectionEstablished)
		assert.NilError(t, bare.Reset())
		assert.NilError(t, bare.Free())
		rule.Proves(t, "EP-CREATE-09", "EPST-03", "EP-CONNECT-13", "EP-CONNECT-14")
	})
}

func TestCreateEPRefused(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		e := newEnd(t, dev, setup{})
		create := func(recv, request, conn *udat.EVD, attr *udat.EPAttr) error {
			t.Helper()
			ep, err := e.ia.CreateEP(e.pz, recv, request, conn, attr)
			if err == nil {
				assert.NilError(t, ep.Free())
			}
			return err
		}
		// Dispatchers that do not accept the stream.
		refused(t, create(e.conn, e.request, e.conn, nil), udat.InvalidHandle, udat.SubHandleEVDRecv)
		refused(t, create(e.recv, e.conn, e.conn, nil), udat.InvalidHandle, udat.SubHandleEVDRequest)
		refused(t, create(e.recv, e.request, e.recv, nil), udat.InvalidHandle, udat.SubHandleEVDConn)
		rule.Proves(t, "EP-CREATE-07", "EVD-03")

		// Completion flags that differ on one dispatcher, or are not allowed with its other
		// streams.
		threshold := &udat.EPAttr{RecvCompletionFlags: udat.CompletionEVDThreshold}
		refused(t, create(e.recv, e.recv, e.conn, threshold), udat.InvalidParameter)
		refused(t, create(e.recv, e.request, e.conn, threshold), udat.InvalidParameter) // e.ep feeds recv with other flags
		both := e.evd(64, udat.EVDDTO|udat.EVDConnection)
		for _, flags := range []udat.CompletionFlags{udat.CompletionUnsignalled, udat.CompletionSolicitedWait} {
			refused(t, create(both, nil, both, &udat.EPAttr{RecvCompletionFlags: flags}), udat.InvalidParameter)
		}
		assert.NilError(t, create(both, both, both, &udat.EPAttr{
			RecvCompletionFlags: udat.CompletionEVDThreshold, RequestCompletionFlags: udat.CompletionEVDThreshold,
		}))
		rule.Proves(t, "EP-CREATE-06", "EVD-10", "EVD-11")

		// Attributes that no adapter can provide.
		limits := e.ia.Device().Attr()
		for name, attr := range map[string]udat.EPAttr{
			"service":        {ServiceType: 1},
			"message size":   {MaxMessageSize: limits.MaxMessage + 1},
			"RDMA size":      {MaxRDMASize: limits.MaxMessage + 1},
			"recv flags":     {RecvCompletionFlags: udat.CompletionSuppress},
			"recv fence":     {RecvCompletionFlags: udat.CompletionBarrierFence},
			"request flags":  {RequestCompletionFlags: udat.CompletionSolicitedWait},
			"request flags2": {RequestCompletionFlags: udat.CompletionSuppress},
			"recvs":          {MaxRecvDTOs: limits.MaxQPWR + 1},
			"recvs below":    {MaxRecvDTOs: -1},
			"requests":       {MaxRequestDTOs: limits.MaxQPWR + 1},
			"requests below": {MaxRequestDTOs: -2},
			"recv IOV":       {MaxRecvIOV: limits.MaxSGE + 1},
			"request IOV":    {MaxRequestIOV: limits.MaxSGE + 1},
			"read IOV":       {MaxRDMAReadIOV: limits.MaxReadSGE + 1},
			"write IOV":      {MaxRDMAWriteIOV: limits.MaxSGE + 1},
			"reads in":       {MaxRDMAReadIn: limits.MaxReadIn + 1},
			"reads out":      {MaxRDMAReadOut: limits.MaxReadOut + 1},
		} {
			err := create(nil, nil, nil, &attr)
			assert.ErrorIs(t, err, udat.ErrInvalidParameter, name)
		}
		refused(t, create(nil, nil, nil, &udat.EPAttr{QoS: udat.QoSPremium}), udat.ModelNotSupported)

		// Objects that have been freed, or belong to another adapter.
		other := newEnd(t, e.ia.Name(), setup{})
		gone := e.evd(8, udat.EVDDTO)
		assert.NilError(t, gone.Free())
		refused(t, create(gone, e.request, e.conn, nil), udat.InvalidHandle)
		refused(t, create(other.recv, e.request, e.conn, nil), udat.InvalidHandle)
		_, err := e.ia.CreateEP(other.pz, nil, nil, nil, nil)
		refused(t, err, udat.InvalidHandle, udat.SubHandlePZ)
		_, err = (*udat.IA)(nil).CreateEP(e.pz, nil, nil, nil, nil)
		refused(t, err, udat.InvalidHandle, udat.SubHandleIA)
		rule.Proves(t, "EP-CREATE-08")

		// A refusal leaves nothing behind.
		assert.NilError(t, e.ep.Free())
		assert.NilError(t, e.recv.Free())
		assert.NilError(t, both.Free())
		assert.NilError(t, other.ep.Free())
		assert.NilError(t, other.mem.Free())
		assert.NilError(t, other.pz.Free())
	})
}

// TestCreateEPForeignConnect: connection events may go to a dispatcher of another adapter, until
// that dispatcher is freed, if the endpoints' adapters were opened with WithForeignConnectEVDs.
func TestCreateEPForeignConnect(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		events := newEnd(t, dev, setup{})
		foreign := setup{opts: []udat.Option{udat.WithForeignConnectEVDs()}}
		a, b := newEnd(t, dev, foreign), newEnd(t, dev, foreign)
		_, err := events.ia.CreateEP(events.pz, nil, nil, a.conn, nil)
		refused(t, err, udat.InvalidHandle)
		_, err = a.ia.CreateEP(a.pz, events.recv, nil, nil, nil) // of completions
		refused(t, err, udat.InvalidHandle)
		for _, e := range []*end{a, b} {
			assert.NilError(t, e.ep.Free())
			var err error
			e.ep, err = e.ia.CreateEP(e.pz, e.recv, e.request, events.conn, nil)
			assert.NilError(t, err)
			e.conn = events.conn
		}
		psp := listen(t, b)
		assert.NilError(t, a.ep.Connect(b.ia.Addr(), psp.Qual(), udat.Infinite, nil, udat.QoSBestEffort,
			udat.ConnectDefault))
		request := next(t, b.cr)
		assert.NilError(t, request.CR.Accept(b.ep, nil))
		up := map[*udat.EP]bool{}
		for range 2 {
			ev := next(t, events.conn)
			assert.Equal(t, ev.Number, udat.EventConnectionEstablished)
			up[ev.EP] = true
		}
		assert.Assert(t, up[a.ep] && up[b.ep])
		refused(t, events.conn.Free(), udat.InvalidState, udat.SubStateEVDInUse)
		assert.NilError(t, events.ia.Close(udat.CloseAbrupt))
		assert.NilError(t, a.ep.Disconnect(udat.CloseAbrupt)) // nobody hears of it
		assert.NilError(t, a.ep.Free())
		assert.NilError(t, b.ep.Free())
	})
}

func TestCreateEPShort(t *testing.T) {
	onMem(t, func(t *testing.T, dev string) {
		e := newEnd(t, dev, setup{})
		e.faults().Exhaust(softnic.QPs, 1)
		_, err := e.ia.CreateEP(e.pz, e.recv, e.request, e.conn, nil)
		refused(t, err, udat.InsufficientResources, udat.SubResourceTEP)
		assert.NilError(t, e.ep.Free())
		assert.NilError(t, e.recv.Free()) // the failed one holds nothing
		assert.NilError(t, e.mem.Free())
		assert.NilError(t, e.pz.Free())
	})
}
