package udat_test

import (
	"context"
	"net/netip"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/rule"
)

// alarm causes one asynchronous event about the end's endpoint.
func (e *end) alarm() {
	e.t.Helper()
	assert.NilError(e.t, e.ep.PostRecv(nil, 0, 0))
	assert.NilError(e.t, e.ep.SetWatermark(0, udat.WatermarkInfinite))
}

// TestOpen shows that each Open makes a new adapter.
func TestOpen(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := newEnd(t, dev, setup{}), newEnd(t, dev, setup{})
		assert.Assert(t, a.ia != b.ia && a.ia.AsyncEVD() != b.ia.AsyncEVD())
		assert.Equal(t, a.ia.Name(), dev)
		assert.NilError(t, a.ia.Close(udat.CloseAbrupt))
		assert.Assert(t, !live(a.ep) && live(b.ep) && live(b.ia))
		assert.NilError(t, b.ep.PostRecv(b.iov(0, 1), 1, 0))
		rule.Proves(t, "OBJ-01", "IA-OPEN-01")
	})
}

// TestAsyncDispatcher shows where asynchronous events go.
func TestAsyncDispatcher(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a := newEnd(t, dev, setup{opts: []udat.Option{udat.WithAsyncQLen(100)}})
		async := a.ia.AsyncEVD()
		p, err := async.Query()
		assert.NilError(t, err)
		assert.Assert(t, p.QLen >= 100 && p.CNO == nil && p.Streams&udat.EVDAsync != 0 && p.IA == a.ia)
		rule.Proves(t, "IA-OPEN-02", "IA-OPEN-05")
		cno, err := a.ia.CreateCNO(nil)
		assert.NilError(t, err)
		assert.NilError(t, async.ModifyCNO(cno))
		assert.NilError(t, async.Resize(200))
		a.alarm()
		evd, err := cno.Wait(patience)
		assert.NilError(t, err)
		assert.Equal(t, evd, async)
		rule.Proves(t, "IA-OPEN-04")
		ev := expect(t, async, udat.EventAsyncEPSoftHighWatermark)
		assert.Equal(t, ev.Object, udat.Handle(a.ep))
		assert.Equal(t, ev.Reason, uint32(udat.ReasonEPSoftHighWatermark))
		rule.Proves(t, "EVT-02", "EVT-03")
		assert.ErrorIs(t, async.Free(), udat.ErrInvalidState)

		// The requested length is ignored: no dispatcher could have that length.
		b := newEnd(t, dev, setup{opts: []udat.Option{udat.WithAsyncQLen(1 << 40), udat.WithAsyncEVD(async)}})
		assert.Equal(t, queueLength(t, async), 200)
		assert.Equal(t, b.ia.AsyncEVD(), async)
		b.alarm()
		assert.Equal(t, expect(t, async, udat.EventAsyncEPSoftHighWatermark).Object, udat.Handle(b.ep))
		assert.NilError(t, b.ia.Close(udat.CloseAbrupt))
		assert.Assert(t, live(async))
		rule.Proves(t, "IA-OPEN-06")
		_, err = udat.Open(dev, udat.WithAsyncEVD(a.conn))
		assert.ErrorIs(t, err, udat.WithSubtype(udat.InvalidHandle, udat.SubHandleEVDAsync))
		_, err = udat.Open(dev, udat.WithAsyncEVD(nil))
		assert.ErrorIs(t, err, udat.ErrInvalidHandle)
		rule.Proves(t, "IA-OPEN-07")

		c := newEnd(t, dev, setup{opts: []udat.Option{udat.WithoutAsyncEVD()}})
		evd, _, _, err = c.ia.Query()
		assert.NilError(t, err)
		assert.Assert(t, evd == nil && c.ia.AsyncEVD() == nil)
		rule.Proves(t, "IA-QUERY-03")
		gentle := open(t, dev, udat.WithAsyncEVD(async))
		assert.NilError(t, gentle.Close(udat.CloseGraceful))
		assert.Assert(t, live(async))
		assert.NilError(t, a.ia.Close(udat.CloseAbrupt))
		gentle = open(t, dev)
		own := gentle.AsyncEVD()
		assert.NilError(t, gentle.Close(udat.CloseGraceful))
		for _, gone := range []*udat.EVD{async, own} {
			assert.Assert(t, !live(gone))
			_, err = gone.Dequeue()
			assert.ErrorIs(t, err, udat.ErrInvalidHandle)
		}
		rule.Proves(t, "IA-CLOSE-05")
	})
}

// TestAsyncElsewhere opens an adapter without a dispatcher of asynchronous events: each dispatcher
// of the device's other adapters receives them, once.
func TestAsyncElsewhere(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		without := newEnd(t, dev, setup{opts: []udat.Option{udat.WithoutAsyncEVD()}})
		without.alarm() // there is no such dispatcher
		a, b := open(t, dev), open(t, dev)
		open(t, dev, udat.WithAsyncEVD(b.AsyncEVD()))
		full := without.evd(1, udat.EVDSoftware|udat.EVDConnection)
		soft(t, full, 0)
		without.ep = without.another(nil)
		without.alarm()
		peer := newEnd(t, dev, setup{})
		told := []*udat.EVD{a.AsyncEVD(), b.AsyncEVD(), peer.ia.AsyncEVD()}
		for _, evd := range told[:2] {
			ev := expect(t, evd, udat.EventAsyncEPSoftHighWatermark)
			assert.Equal(t, ev.Object, udat.Handle(without.ep))
			assert.Equal(t, ev.EVD, evd)
		}
		overflow, err := without.ia.CreateEP(without.pz, nil, nil, full, nil)
		assert.NilError(t, err)
		without.ep = overflow
		assert.NilError(t, overflow.Connect(peer.ia.Addr(), listen(t, peer).Qual(), patience, nil, 0, 0))
		assert.NilError(t, expect(t, peer.cr, udat.EventConnectionRequest).CR.Reject(nil))
		for _, evd := range told {
			assert.Equal(t, expect(t, evd, udat.EventAsyncEVDOverflow).Object, udat.Handle(full))
			empty(t, evd)
		}
		rule.Proves(t, "IA-OPEN-08")
		peer.ep = peer.another(nil)
		peer.alarm() // has a dispatcher of its own
		expect(t, peer.ia.AsyncEVD(), udat.EventAsyncEPSoftHighWatermark)
		for _, evd := range told {
			empty(t, evd)
		}
		rule.Proves(t, "IA-OPEN-09")
	})
}

// TestAsyncOwnerCloses: a graceful Close is refused while other adapters use the asynchronous
// dispatcher. After an abrupt Close these adapters have none, and their events go to other
// adapters.
func TestAsyncOwnerCloses(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		owner := open(t, dev)
		users := []*end{}
		for range 2 {
			users = append(users, newEnd(t, dev, setup{opts: []udat.Option{udat.WithAsyncEVD(owner.AsyncEVD())}}))
		}
		for _, u := range users {
			refused(t, owner.Close(udat.CloseGraceful), udat.InvalidState, udat.SubStateIAInUse)
			u.alarm()
			expect(t, owner.AsyncEVD(), udat.EventAsyncEPSoftHighWatermark)
			assert.NilError(t, u.ia.Close(udat.CloseAbrupt))
		}
		assert.NilError(t, owner.Close(udat.CloseGraceful))
		rule.Proves(t, "IA-CLOSE-04", "IA-CLOSE-05")

		owner = open(t, dev)
		user := newEnd(t, dev, setup{opts: []udat.Option{udat.WithAsyncEVD(owner.AsyncEVD())}})
		other := open(t, dev)
		assert.NilError(t, owner.Close(udat.CloseAbrupt))
		evd, _, _, err := user.ia.Query()
		assert.NilError(t, err)
		assert.Assert(t, evd == nil && user.ia.AsyncEVD() == nil)
		user.alarm()
		assert.Equal(t, expect(t, other.AsyncEVD(), udat.EventAsyncEPSoftHighWatermark).Object, udat.Handle(user.ep))
		assert.NilError(t, user.ia.Close(udat.CloseAbrupt))
		assert.NilError(t, other.Close(udat.CloseGraceful))
		rule.Proves(t, "IA-QUERY-03", "IA-OPEN-08")
	})
}

// TestAsyncForAll shows that an event of the device reaches every adapter that is open on the
// device.
func TestAsyncForAll(t *testing.T) {
	onMem(t, func(t *testing.T, dev string) {
		a := open(t, dev)
		b := open(t, dev, udat.WithAsyncEVD(a.AsyncEVD()))
		c := open(t, dev)
		_, err := a.CreateEP(nil, nil, nil, nil, nil) // without a queue pair, as the event
		assert.NilError(t, err)
		nicOf(t, a).Report(fabric.AsyncEvent{Kind: fabric.AsyncPortError})
		of := map[udat.Handle]int{}
		for _, evd := range []*udat.EVD{a.AsyncEVD(), a.AsyncEVD(), c.AsyncEVD()} {
			ev := expect(t, evd, udat.EventAsyncIACatastrophic)
			assert.Equal(t, ev.Reason, uint32(udat.ReasonIAOther))
			of[ev.Object]++
		}
		assert.DeepEqual(t, []int{of[a], of[b], of[c]}, []int{1, 1, 1})
		empty(t, a.AsyncEVD())
		empty(t, c.AsyncEVD())
		rule.Proves(t, "IA-OPEN-09")
	})
}

// early reports events of the device before Open has returned.
type early struct {
	fabric.Fabric
	events int
}

func (e early) Open(name string, opts fabric.Options, async func(fabric.AsyncEvent)) (fabric.Device, error) {
	for range e.events {
		go async(fabric.AsyncEvent{Kind: fabric.AsyncPortError})
	}
	time.Sleep(quiet) // they come before Open has returned
	return e.Fabric.Open(name, opts, async)
}

// TestAsyncWhileOpening: events that the device reports while Open runs reach the dispatcher,
// whoever made it. An Open that fails does not wait.
func TestAsyncWhileOpening(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		const events = 20
		other := open(t, dev)
		tell := udat.Through(func(f fabric.Fabric) fabric.Fabric {
			if f.Name() == other.Device().Attr().Info.Fabric {
				return early{f, events}
			}
			return f
		})
		for _, to := range []udat.Option{udat.WithAsyncQLen(events), udat.WithAsyncEVD(other.AsyncEVD())} {
			ia := open(t, dev, tell, to)
			for range events {
				assert.Equal(t, expect(t, ia.AsyncEVD(), udat.EventAsyncIACatastrophic).Object, udat.Handle(ia))
			}
			empty(t, ia.AsyncEVD())
		}
		for _, bad := range []udat.Option{udat.WithPath(udat.PathOptions{MTU: new(1)}), udat.WithAsyncQLen(1 << 40)} {
			_, err := udat.Open(dev, tell, bad)
			assert.Assert(t, err != nil)
		}
		_, err := udat.Open(dev+"x", tell)
		assert.ErrorIs(t, err, udat.ErrProviderNotFound)
		rule.Proves(t, "IA-OPEN-06", "EVT-03")
	})
}

// TestOpenErrors shows the errors of Open.
func TestOpenErrors(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		for _, name := range []string{dev + "x", "no such adapter", "192.0.2.1", "2001:db8::1"} {
			_, err := udat.Open(name)
			assert.ErrorIs(t, err, udat.WithSubtype(udat.ProviderNotFound, udat.SubNameNotRegistered), name)
			assert.ErrorContains(t, err, dev, "it says what there is")
		}
		rule.Proves(t, "IA-OPEN-10")
		_, err := udat.Open("")
		assert.ErrorIs(t, err, udat.ErrInvalidParameter)
		for _, bad := range []udat.Option{udat.WithAsyncQLen(0), udat.WithAsyncQLen(-5), udat.WithRNRRetry(8),
			udat.WithRNRRetry(-1), udat.WithRetry(8), udat.WithRetry(-1)} {
			_, err := udat.Open(dev, bad)
			assert.ErrorIs(t, err, udat.ErrInvalidParameter)
		}
		open(t, dev, udat.WithAsyncQLen(1))
		_, err = udat.Open(dev, udat.WithAsyncQLen(1<<40))
		assert.ErrorIs(t, err, udat.ErrInsufficientResources)
		rule.Proves(t, "IA-OPEN-12")
	})
}

// TestIAQuery shows the attributes of adapter and provider.
func TestIAQuery(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		ia := open(t, dev)
		async, attr, prov, err := ia.Query()
		assert.NilError(t, err)
		assert.Equal(t, async, ia.AsyncEVD())
		rule.Proves(t, "IA-QUERY-03")
		assert.Equal(t, attr.AdapterName, dev)
		assert.Equal(t, attr.Addr, ia.Addr())
		assert.Equal(t, len(attr.TransportAttr), 3)
		assert.Equal(t, prov.ProviderName, "godat")
		assert.DeepEqual(t, []int{prov.DAPLVersionMajor, prov.DAPLVersionMinor}, []int{1, 2})
		assert.DeepEqual(t, prov.LMRMemTypesSupported, []udat.MemType{udat.MemVirtual, udat.MemLMR, udat.MemSharedVirtual})
		assert.Equal(t, prov.IOVOwnershipOnReturn, udat.IOVConsumer)
		assert.Equal(t, prov.CompletionFlagsSupported,
			udat.CompletionSuppress|udat.CompletionSolicitedWait|udat.CompletionUnsignalled|udat.CompletionBarrierFence)
		assert.Assert(t, prov.MaxPrivateDataSize >= 52)
		assert.Assert(t, prov.OptimalBufferAlignment > 0 && udat.OptimalAlignment%prov.OptimalBufferAlignment == 0)
		assert.Equal(t, prov.EPCreator, udat.EPCreatorIfAsked)
		assert.Assert(t, prov.EPRecvInfoSupported&udat.EPRecvInfoAllocated != 0)
		assert.Equal(t, prov.SRQSupported, attr.MaxSRQs > 0)
		rule.Proves(t, "IA-QUERY-01")
		assert.Assert(t, prov.ThreadSafe)
		rule.Proves(t, "GEN-11")
		for _, name := range []string{udat.AttrFetchAndAdd, udat.AttrCmpAndSwap, udat.AttrImmediateData,
			udat.AttrSendWithInvalidate, udat.AttrRMRExactBounds, udat.AttrRNRRetryFinite} {
			value := prov.Specific(name)
			assert.Assert(t, value == "TRUE" || value == "FALSE", "%s is %q", name, value)
		}
		assert.Equal(t, prov.Specific("no such"), "")
		for i, s := range udat.EVDStreams {
			for j, s2 := range udat.EVDStreams {
				_, err := ia.CreateEVD(1, s|s2, nil)
				assert.Equal(t, err == nil, prov.EVDStreamMerging[i][j], "streams 0x%x: %v", uint32(s|s2), err)
			}
			assert.Assert(t, prov.EVDStreamMerging[i][i])
		}
		other := open(t, dev, udat.WithRNRRetry(3))
		_, attr2, prov2, err := other.Query()
		assert.NilError(t, err)
		assert.DeepEqual(t, attr, attr2, cmpAddrs)
		assert.Equal(t, prov2.Specific(udat.AttrRNRRetryFinite) == "TRUE", udat.DeviceAttr(other).EnforcesRNR)
		rule.Proves(t, "IA-QUERY-02")
	})
}

// TestCloseGracefulEach: while an object of any kind exists, a graceful Close is refused. The error
// names the object, and nothing is destroyed.
func TestCloseGracefulEach(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		type object interface {
			udat.Handle
			Free() error
		}
		second := func(o object, err error) object {
			t.Helper()
			assert.NilError(t, err)
			return o
		}
		var ia *udat.IA
		zone := func() *udat.PZ {
			t.Helper()
			pz, err := ia.CreatePZ()
			assert.NilError(t, err)
			return pz
		}
		dispatcher := func() *udat.EVD {
			t.Helper()
			evd, err := ia.CreateEVD(4, udat.EVDCR, nil)
			assert.NilError(t, err)
			return evd
		}
		all := map[udat.HandleType]func() []object{ // the object, and what it needs
			udat.HandleCNO: func() []object { return []object{second(ia.CreateCNO(nil))} },
			udat.HandleEVD: func() []object { return []object{dispatcher()} },
			udat.HandlePZ:  func() []object { return []object{zone()} },
			udat.HandleEP:  func() []object { return []object{second(ia.CreateEP(nil, nil, nil, nil, nil))} },
			udat.HandleLMR: func() []object { pz := zone(); return []object{second(ia.AllocLMR(pz, 10, udat.PrivAll)), pz} },
			udat.HandleRMR: func() []object {
				if udat.DeviceAttr(ia).MaxMW == 0 {
					return nil
				}
				pz := zone()
				return []object{second(pz.CreateRMR()), pz}
			},
			udat.HandleSRQ: func() []object {
				if udat.DeviceAttr(ia).MaxSRQ == 0 {
					return nil
				}
				pz := zone()
				return []object{second(ia.CreateSRQ(pz, udat.SRQAttr{MaxRecvDTOs: 1, MaxRecvIOV: 1})), pz}
			},
			udat.HandlePSP: func() []object {
				evd := dispatcher()
				_, psp, err := ia.CreatePSPAny(evd, udat.PSPConsumer)
				return []object{second(psp, err), evd}
			},
			udat.HandleRSP: func() []object {
				evd := dispatcher()
				_, rsp := listenReserved(t, &end{t: t, ia: ia, cr: evd}, nil)
				return []object{rsp, evd}
			},
		}
		for kind, create := range all {
			ia = open(t, dev)
			objects := create()
			if objects == nil {
				continue
			}
			for i, o := range objects {
				refused(t, ia.Close(udat.CloseGraceful), udat.InvalidState, udat.SubStateIAInUse)
				if i == 0 {
					assert.ErrorContains(t, ia.Close(udat.CloseGraceful), "1 "+kind.String())
				}
				for _, o := range objects[i:] {
					assert.Assert(t, live(o), "%v: a refused close destroys nothing", kind)
				}
				assert.NilError(t, o.Free(), "%v", kind)
			}
			assert.NilError(t, ia.Close(udat.CloseGraceful), "%v", kind)
		}
		ia = open(t, dev)
		for range 2 {
			_, err := ia.CreatePZ()
			assert.NilError(t, err)
		}
		assert.ErrorContains(t, ia.Close(udat.CloseGraceful), "not freed: 2 "+udat.HandlePZ.String()+"s")
		// A request, without its service point and the dispatcher that it came to.
		a, b := newEnd(t, dev, setup{}), newEnd(t, dev, setup{})
		cr := ask(t, a, b, nil)
		for _, o := range []object{b.ep, b.mem, b.pz, b.recv, b.request, b.conn, b.cr} {
			assert.NilError(t, o.Free())
		}
		refused(t, b.ia.Close(udat.CloseGraceful), udat.InvalidState, udat.SubStateIAInUse)
		assert.ErrorContains(t, b.ia.Close(udat.CloseGraceful), "not freed: 1 "+udat.HandleCR.String())
		assert.NilError(t, cr.Reject(nil))
		expect(t, a.conn, udat.EventConnectionPeerRejected)
		assert.NilError(t, b.ia.Close(udat.CloseGraceful))
		rule.Proves(t, "IA-CLOSE-04")
	})
}

// TestCloseAbrupt closes an adapter under a full load of objects, a connection, waits and posts.
func TestCloseAbrupt(t *testing.T) {
	onEachOutside(t, func(t *testing.T, dev string) {
		z := newZoo(t, dev)
		cnoEVD, err := z.ia.CreateEVD(4, udat.EVDSoftware, z.cno)
		assert.NilError(t, err)
		agent := make(chan *udat.EVD, 1)
		quietCNO, err := z.ia.CreateCNO(func(e *udat.EVD) { agent <- e })
		assert.NilError(t, err)
		peer := newEnd(t, dev, setup{})
		z.end.psp(t, peer)
		// A second one of each kind.
		more := []udat.Handle{cnoEVD, quietCNO, z.another(nil), z.lmr(100, udat.PrivAll), listen(t, &z.end),
			z.end.evd(8, udat.EVDCR)}
		_, rsp := listenReserved(t, &z.end, z.another(nil))
		pz, err := z.ia.CreatePZ()
		assert.NilError(t, err)
		caller := newEnd(t, dev, setup{})
		caller.call(&z.end, z.psp.Qual(), "")
		more = append(more, rsp, pz, expect(t, z.cr, udat.EventConnectionRequest).CR)
		if z.srq != nil {
			srq, err := z.ia.CreateSRQ(pz, udat.SRQAttr{MaxRecvDTOs: 4, MaxRecvIOV: 1})
			assert.NilError(t, err)
			more = append(more, srq)
		}
		if z.rmr != nil {
			rmr, err := pz.CreateRMR()
			assert.NilError(t, err)
			more = append(more, rmr)
		}
		kinds := map[udat.HandleType]int{}
		for _, h := range append(z.handles(), more...) {
			assert.Assert(t, live(h), "%T", h)
			kinds[kindOfHandle[reflect.TypeOf(h)]]++
		}
		for kind, n := range kinds {
			assert.Assert(t, n >= 2, "%v", kind)
		}
		for i := range 4 {
			assert.NilError(t, z.ep.PostRecv(z.iov(i, 1), udat.Cookie(i), 0))
		}
		waits := []*waiting{waitOn(t, z.recv, udat.Infinite, 1), waitOn(t, z.conn, udat.Infinite, 1),
			waitOn(t, z.ia.AsyncEVD(), udat.Infinite, 1)}
		woken := make(chan error, 1)
		go func() {
			evd, err := z.cno.Wait(patience)
			if evd != nil {
				t.Errorf("the waiter is given a dispatcher")
			}
			woken <- err
		}()
		busy := make(chan struct{})
		var posters sync.WaitGroup
		for range 3 {
			posters.Go(func() {
				for i := 0; ; i++ {
					select {
					case <-busy:
						return
					default:
					}
					if acknowledged(peer) {
						z.ep.PostSend(z.iov(0, 64), 1, udat.CompletionSuppress)
					} else { // for which the peer needs no receive
						z.ep.PostRDMAWrite(z.iov(0, 64), 1, peer.mem.RMRTriplet(0, 64), udat.CompletionSuppress)
					}
					z.end.request.Dequeue()
				}
			})
		}
		until(t, "the CNO has a waiter", func() bool { return z.cno.Free() != nil && freeSays(z.cno, "1 calls wait") })
		time.Sleep(10 * time.Millisecond)
		assert.ErrorIs(t, z.ia.Close(2), udat.ErrInvalidParameter)
		rule.Proves(t, "IA-CLOSE-06")
		start := time.Now()
		assert.NilError(t, z.ia.Close(udat.CloseAbrupt))
		assert.Assert(t, time.Since(start) < patience)
		close(busy)
		posters.Wait()
		for _, w := range waits {
			assert.ErrorIs(t, w.result(t).err, udat.ErrAbort)
		}
		rule.Proves(t, "IA-CLOSE-03")
		assert.NilError(t, <-woken)
		select {
		case evd := <-agent:
			assert.Assert(t, evd == nil)
		case <-time.After(patience):
			t.Fatal("the agent has not been called")
		}
		rule.Proves(t, "IA-CLOSE-02")
		for _, h := range append(z.handles(), more...) {
			assert.Assert(t, !live(h), "%T", h)
		}
		assert.ErrorIs(t, z.ia.Close(udat.CloseAbrupt), udat.ErrInvalidHandle)
		// The peer of the connection and the initiator of the request are notified.
		parted(t, peer)
		expect(t, z.caller.conn, udat.EventConnectionNonPeerRejected)
		expect(t, caller.conn, udat.EventConnectionNonPeerRejected)
		rule.Proves(t, "IA-CLOSE-01", "IA-CLOSE-07", "IA-CLOSE-08")
	})
}

func freeSays(c *udat.CNO, text string) bool {
	err := c.Free()
	return err != nil && strings.Contains(err.Error(), text)
}

// psp connects the end's endpoint to a peer.
func (e *end) psp(t *testing.T, peer *end) {
	t.Helper()
	connect(t, e, peer)
}

// TestCloseRemoved closes an adapter whose device has gone.
func TestCloseRemoved(t *testing.T) {
	onMem(t, func(t *testing.T, dev string) {
		a, _ := pair(t, dev, setup{})
		a.faults().Remove()
		expect(t, a.ia.AsyncEVD(), udat.EventAsyncIACatastrophic)
		expect(t, a.conn, udat.EventConnectionBroken)
		assert.NilError(t, a.ia.Close(udat.CloseAbrupt))
		_, _, err := a.conn.WaitContext(context.Background(), 1)
		assert.ErrorIs(t, err, udat.ErrInvalidHandle)
	})
}

// TestOpenByAddress opens an adapter by its address, if it has one of its own.
func TestOpenByAddress(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		for _, p := range udat.Providers() {
			if p.Name != dev || p.Fabric == "mem" || p.Fabric == "tcp" { // opened by name only
				continue
			}
			assert.Equal(t, p.Addrs[0], p.Addr)
			for _, text := range p.Addrs {
				addr, err := netip.ParseAddr(text)
				assert.NilError(t, err)
				assert.Equal(t, open(t, text).Addr(), addr)
			}
		}
	})
}
