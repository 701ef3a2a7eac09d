package udat_test

import (
	"bytes"
	"testing"
	"unsafe"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
	"github.com/godat/godat/udat/internal/rule"
	"github.com/godat/godat/udat/internal/softnic"
)

// broken waits until each end has learnt that its connection is broken. On iWARP a fault closes the
// TCP connection, and the library may notice the end of the connection before the fault.
func broken(t *testing.T, ends ...*end) {
	t.Helper()
	for _, e := range ends {
		ev := next(t, e.conn)
		closed := ev.Number == udat.EventConnectionDisconnected && !acknowledged(e)
		assert.Assert(t, ev.Number == udat.EventConnectionBroken || closed, "%s", describe(ev))
		assert.Equal(t, state(t, e.ep), udat.EPDisconnected)
	}
}

// parted waits until each end has learnt that one of them has disconnected.
func parted(t *testing.T, ends ...*end) {
	t.Helper()
	for _, e := range ends {
		expect(t, e.conn, udat.EventConnectionDisconnected)
		assert.Equal(t, state(t, e.ep), udat.EPDisconnected)
	}
}

// again connects two ends again after their connection has ended, with nothing left of that
// connection.
func again(t *testing.T, a, b *end) {
	t.Helper()
	for _, e := range []*end{a, b} {
		if state(t, e.ep) == udat.EPConnected {
			assert.NilError(t, e.ep.Disconnect(udat.CloseAbrupt))
		}
	}
	for _, e := range []*end{a, b} {
		become(t, e.ep, udat.EPDisconnected)
		assert.NilError(t, e.ep.Reset())
		for _, evd := range []*udat.EVD{e.recv, e.request, e.conn} {
			for err := error(nil); err == nil; {
				_, err = evd.Dequeue()
			}
		}
	}
	connect(t, a, b)
}

// failed waits for the next completion, which must have the cookie and the status.
func failed(t *testing.T, evd *udat.EVD, cookie udat.Cookie, status udat.DTOStatus) udat.Event {
	t.Helper()
	ev := next(t, evd)
	assert.Equal(t, ev.Status, status, "%s", describe(ev))
	assert.Equal(t, ev.Cookie, cookie, "%s", describe(ev))
	return ev
}

// TestLMR tests a region of the caller's memory.
func TestLMR(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := pair(t, dev, setup{})
		buf := make([]byte, 5000)
		l, err := a.ia.CreateLMR(a.pz, buf, udat.PrivAll)
		assert.NilError(t, err)
		addr := uint64(uintptr(unsafe.Pointer(&buf[0])))
		p, err := l.Query()
		assert.NilError(t, err)
		assert.Assert(t, p.IA == a.ia && p.PZ == a.pz && p.MemType == udat.MemVirtual && p.Privileges == udat.PrivAll)
		assert.Assert(t, &p.Region.Memory[0] == &buf[0] && p.Region.LMR == nil)
		assert.Equal(t, p.Length, uint64(5000))
		assert.Equal(t, p.LMRContext, l.Context())
		assert.Equal(t, p.RMRContext, l.RMRContext())
		assert.Assert(t, p.RegisteredAddress <= addr && p.RegisteredAddress+p.RegisteredSize >= addr+5000)
		rule.Proves(t, "LMR-QUERY-01", "LMR-CREATE-07")
		tr := l.Triplet(8, 16)
		assert.Equal(t, tr, udat.LMRTriplet{LMR: l, VirtualAddress: addr + 8, SegmentLength: 16})
		assert.Equal(t, l.RMRTriplet(8, 16), udat.RMRTriplet{RMRContext: l.RMRContext(),
			TargetAddress: l.RMRTriplet(0, 1).TargetAddress + 8, SegmentLength: 16})
		assert.Assert(t, addr > 1<<32, "an address that needs 64 bits")
		copy(buf, "from the heap")
		assert.NilError(t, a.ep.PostRDMAWrite([]udat.LMRTriplet{l.Triplet(0, 13)}, 1, b.mem.RMRTriplet(0, 13), 0))
		completion(t, a.request, 1)
		assert.Equal(t, string(b.get(0, 13)), "from the heap")
		rule.Proves(t, "LMR-CREATE-01", "LMR-CREATE-03")
		// A segment of length 0 may name anything.
		assert.NilError(t, a.ep.PostRDMAWrite([]udat.LMRTriplet{{VirtualAddress: 0xdead}, l.Triplet(5, 3),
			{LMR: l, VirtualAddress: 1}}, 2, b.mem.RMRTriplet(100, 3), 0))
		completion(t, a.request, 2)
		assert.Equal(t, string(b.get(100, 3)), "the")
		rule.Proves(t, "GEN-13")
		assert.NilError(t, l.Free())
		assert.Assert(t, bytes.HasPrefix(buf, []byte("from the heap")))
		assert.Assert(t, l.Bytes() == nil)
	})
}

// TestLMRPrivileges tries operations with and without every privilege.
func TestLMRPrivileges(t *testing.T) {
	assert.DeepEqual(t, []udat.MemPriv{udat.PrivNone, udat.PrivLocalRead, udat.PrivRemoteRead, udat.PrivLocalWrite,
		udat.PrivRemoteWrite, udat.PrivAll},
		[]udat.MemPriv{0, 0x01, 0x02, 0x10, 0x20, 0x33})
	onEach(t, func(t *testing.T, dev string) {
		a, b := pair(t, dev, setup{})
		for _, priv := range []udat.MemPriv{udat.PrivNone, udat.PrivLocalRead, udat.PrivLocalWrite,
			udat.PrivRemoteRead | udat.PrivLocalRead,
			udat.PrivRemoteWrite | udat.PrivLocalWrite, udat.PrivAll} {
			l := b.lmr(100, priv)
			seg := []udat.LMRTriplet{l.Triplet(0, 10)}
			checkPriv(t, b.ep.PostSend(seg, 1, 0), priv&udat.PrivLocalRead != 0)
			checkPriv(t, b.ep.PostRDMAWrite(seg, 2, a.mem.RMRTriplet(0, 10), 0), priv&udat.PrivLocalRead != 0)
			checkPriv(t, b.ep.PostRecv(seg, 3, 0), priv&udat.PrivLocalWrite != 0)
			checkPriv(t, b.ep.PostRDMARead(seg, 4, a.mem.RMRTriplet(0, 10), 0), priv&udat.PrivLocalWrite != 0)
			remote := priv&(udat.PrivRemoteRead|udat.PrivRemoteWrite) != 0
			assert.Equal(t, l.RMRContext() != 0, remote)
			again(t, a, b)
		}
		rule.Proves(t, "LMR-CREATE-04", "LMR-CREATE-06")
		if udat.DeviceAttr(a.ia).ReadSinkRemote {
			return // there a region with local write also allows remote write
		}
		// A peer that guesses the key gets no access.
		for _, op := range []struct {
			priv udat.MemPriv
			post func(remote udat.RMRTriplet) error
		}{
			{udat.PrivLocalRead | udat.PrivLocalWrite, func(r udat.RMRTriplet) error {
				return a.ep.PostRDMAWrite(a.iov(0, 10),
					7, r, 0)
			}},
			{udat.PrivLocalRead | udat.PrivLocalWrite | udat.PrivRemoteRead,
				func(r udat.RMRTriplet) error { return a.ep.PostRDMAWrite(a.iov(0, 10), 7, r, 0) }},
			{udat.PrivLocalRead | udat.PrivLocalWrite | udat.PrivRemoteWrite,
				func(r udat.RMRTriplet) error { return a.ep.PostRDMARead(a.iov(0, 10), 7, r, 0) }},
		} {
			l := b.lmr(100, op.priv)
			r := l.RMRTriplet(0, 10)
			r.RMRContext = udat.RKey(l)
			want := a.put(0, 10, 77)
			assert.NilError(t, op.post(r))
			noAccess(t, a, b, 7)
			assert.DeepEqual(t, l.Bytes()[:10], make([]byte, 10))
			if op.priv&udat.PrivRemoteWrite != 0 { // of the read
				assert.DeepEqual(t, a.get(0, 10), want)
			}
			again(t, a, b)
		}
		rule.Proves(t, "LMR-CREATE-05")
	})
}

// noAccess waits until the last request of a, which b refuses, has ended the connection. On iWARP
// the request's completion does not say why.
func noAccess(t *testing.T, a, b *end, cookie udat.Cookie) {
	t.Helper()
	if !acknowledged(a) {
		next(t, a.request)
		broken(t, a, b)
		return
	}
	failed(t, a.request, cookie, udat.DTOErrRemoteAccess)
	broken(t, a)
	targetOfFault(t, b)
}

func checkPriv(t *testing.T, err error, allowed bool) {
	t.Helper()
	if allowed {
		assert.NilError(t, err)
	} else {
		assert.ErrorIs(t, err, udat.ErrPrivilegesViolation)
	}
}

// TestLMRErrors shows the errors of the calls.
func TestLMRErrors(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		e := newEnd(t, dev, setup{})
		freed, err := e.ia.CreatePZ()
		assert.NilError(t, err)
		assert.NilError(t, freed.Free())
		for _, c := range []struct {
			pz   *udat.PZ
			buf  []byte
			priv udat.MemPriv
			want *udat.Error
		}{
			{e.pz, nil, udat.PrivAll, udat.ErrInvalidParameter},
			{e.pz, []byte{}, udat.PrivAll, udat.ErrInvalidParameter},
			{e.pz, []byte{1}, 0x80, udat.ErrInvalidParameter},
			{nil, []byte{1}, udat.PrivAll, udat.WithSubtype(udat.InvalidHandle, udat.SubHandlePZ)},
			{freed, []byte{1}, udat.PrivAll, udat.WithSubtype(udat.InvalidHandle, udat.SubHandlePZ)},
		} {
			_, err := e.ia.CreateLMR(c.pz, c.buf, c.priv)
			assert.ErrorIs(t, err, c.want, "%+v", c)
			_, err = e.ia.AllocLMR(c.pz, len(c.buf), c.priv)
			assert.ErrorIs(t, err, c.want, "%+v", c)
			_, err = e.ia.CreateLMRShared(c.pz, c.buf, udat.SharedMemoryID{}, c.priv)
			assert.ErrorIs(t, err, c.want, "%+v", c)
		}
		_, err = e.ia.AllocLMR(e.pz, -1, udat.PrivAll)
		assert.ErrorIs(t, err, udat.ErrInvalidParameter)
		assert.ErrorContains(t, err, "length is -1 bytes")
		_, err = e.ia.CreateLMRFromLMR(e.pz, nil, udat.PrivAll)
		assert.ErrorIs(t, err, udat.WithSubtype(udat.InvalidHandle, udat.SubHandleLMR))
		_, _, prov, err := e.ia.Query()
		assert.NilError(t, err)
		assert.DeepEqual(t, prov.LMRMemTypesSupported, []udat.MemType{udat.MemVirtual, udat.MemLMR, udat.MemSharedVirtual})
		rule.Proves(t, "LMR-CREATE-08")
		// A zone is in use as long as an object is in it.
		refused(t, e.pz.Free(), udat.InvalidState, udat.SubStatePZInUse)
		pz, err := e.ia.CreatePZ()
		assert.NilError(t, err)
		l, err := e.ia.AllocLMR(pz, 1, 0)
		assert.NilError(t, err)
		refused(t, pz.Free(), udat.InvalidState, udat.SubStatePZInUse)
		assert.NilError(t, l.Free())
		ep, err := e.ia.CreateEP(pz, nil, nil, nil, nil)
		assert.NilError(t, err)
		refused(t, pz.Free(), udat.InvalidState, udat.SubStatePZInUse)
		assert.NilError(t, ep.Free())
		if r, err := pz.CreateRMR(); err == nil {
			refused(t, pz.Free(), udat.InvalidState, udat.SubStatePZInUse)
			assert.NilError(t, r.Free())
		}
		if s, err := e.ia.CreateSRQ(pz, udat.SRQAttr{MaxRecvDTOs: 1}); err == nil {
			refused(t, pz.Free(), udat.InvalidState, udat.SubStatePZInUse)
			assert.NilError(t, s.Free())
		}
		assert.NilError(t, pz.Free())
		rule.Proves(t, "PZ-CREATE-01", "PZ-FREE-01")
	})
}

// TestTripletsBeyond4GiB: offsets, addresses and lengths of triplets have 64 bits, and a post
// checks all 64 bits.
func TestTripletsBeyond4GiB(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := pair(t, dev, setup{})
		for _, off := range []int{1<<32 + 24, 1 << 40, 3<<32 + 8} {
			local, remote := a.mem.Triplet(off, off+8), a.mem.RMRTriplet(off, off+8)
			assert.Equal(t, local.VirtualAddress-a.mem.Triplet(0, 8).VirtualAddress, uint64(off))
			assert.Equal(t, remote.TargetAddress-a.mem.RMRTriplet(0, 8).TargetAddress, uint64(off))
			assert.Equal(t, local.SegmentLength, uint64(off+8))
			assert.Equal(t, remote.SegmentLength, uint64(off+8))
			for _, bad := range []udat.LMRTriplet{a.mem.Triplet(off, 8), a.mem.Triplet(0, off+8), a.mem.Triplet(off, off)} {
				for range 2 { // the low halves would be valid
					iov := []udat.LMRTriplet{bad}
					refused(t, a.ep.PostSend(iov, 1, 0), udat.InvalidParameter, udat.SubArg3)
					refused(t, a.ep.PostRecv(iov, 1, 0), udat.InvalidParameter, udat.SubArg3)
					refused(t, a.ep.PostRDMAWrite(iov, 1, b.mem.RMRTriplet(0, 8), 0), udat.InvalidParameter, udat.SubArg3)
				}
			}
		}
		want := a.put(0, 8, 3)
		assert.NilError(t, a.ep.PostRDMAWrite(a.iov(0, 8), 1, b.mem.RMRTriplet(0, 8), 0))
		completion(t, a.request, 1)
		assert.Equal(t, a.mem.Triplet(0, 8).VirtualAddress>>32 > 0, true, "an address that needs 64 bits")
		sameBytes(t, b.get(0, 8), want)
		assert.NilError(t, a.ep.PostRDMAWrite(a.iov(0, 8), 2, b.mem.RMRTriplet(1<<32, 8), 0))
		ev := next(t, a.request)
		if acknowledged(a) {
			assert.Equal(t, ev.Status, udat.DTOErrRemoteAccess, describe(ev))
		}
		rule.Proves(t, "GEN-12", "POST-07")
	})
}

// TestLMRFromLMR shows two regions over the same memory with different zones and privileges,
// independent of each other.
func TestLMRFromLMR(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := pair(t, dev, setup{})
		pz, err := b.ia.CreatePZ()
		assert.NilError(t, err)
		base, err := b.ia.AllocLMR(pz, 4096, udat.PrivNone)
		assert.NilError(t, err)
		l, err := b.ia.CreateLMRFromLMR(b.pz, base, udat.PrivAll)
		assert.NilError(t, err)
		p, err := l.Query()
		assert.NilError(t, err)
		assert.Assert(t, p.MemType == udat.MemLMR && p.Region.LMR == base && p.PZ == b.pz && p.Length == 4096 &&
			p.Privileges == udat.PrivAll)
		assert.Equal(t, &l.Bytes()[0], &base.Bytes()[0])
		assert.NilError(t, base.Free())
		want := a.put(0, 4096, 5)
		assert.NilError(t, a.ep.PostRDMAWrite(a.iov(0, 4096), 1, l.RMRTriplet(0, 4096), 0))
		completion(t, a.request, 1)
		assert.DeepEqual(t, l.Bytes(), want)
		assert.NilError(t, pz.Free())
		rule.Proves(t, "OBJ-13")
		_, err = b.ia.CreateLMRFromLMR(b.pz, base, udat.PrivAll)
		assert.ErrorIs(t, err, udat.ErrInvalidHandle)
		assert.NilError(t, l.Free())
	})
}

// TestLMRExhausted: if the device can hold no more regions, each kind of call fails.
func TestLMRExhausted(t *testing.T) {
	onSoftware(t, func(t *testing.T, dev string) {
		e := newEnd(t, dev, setup{})
		for name, make := range map[string]func() (*udat.LMR, error){
			"CreateLMR":        func() (*udat.LMR, error) { return e.ia.CreateLMR(e.pz, make([]byte, 10), udat.PrivAll) },
			"CreateLMRFromLMR": func() (*udat.LMR, error) { return e.ia.CreateLMRFromLMR(e.pz, e.mem, udat.PrivAll) },
			"AllocLMR":         func() (*udat.LMR, error) { return e.ia.AllocLMR(e.pz, 10, udat.PrivAll) },
		} {
			e.nic().Exhaust(softnic.MRs, 1)
			l, err := make()
			assert.ErrorIs(t, err, udat.ErrInsufficientResources, name)
			assert.Assert(t, l == nil, name)
			l, err = make()
			assert.NilError(t, err, name)
			assert.NilError(t, l.Free(), name)
		}
	})
}

// TestLMRFree shows the effect of Free on operations that use the region.
func TestLMRFree(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := pair(t, dev, setup{})
		// A context stays valid as long as the region exists.
		l := b.lmr(4096, udat.PrivAll)
		remote := l.RMRTriplet(0, 100)
		for i := range 3 {
			assert.NilError(t, a.ep.PostRDMAWrite(a.iov(0, 100), udat.Cookie(i), remote, 0))
			completion(t, a.request, udat.Cookie(i))
		}
		assert.NilError(t, l.Free())
		assert.NilError(t, a.ep.PostRDMAWrite(a.iov(0, 100), 4, remote, 0))
		noAccess(t, a, b, 4)
		rule.Proves(t, "LMR-CREATE-10")
		if acknowledged(a) {
			rule.Proves(t, "LMR-FREE-03")
		}
		again(t, a, b)
		assert.ErrorIs(t, b.ep.PostSend([]udat.LMRTriplet{l.Triplet(0, 1)}, 1, 0), udat.ErrPrivilegesViolation)
		assert.ErrorIs(t, b.ep.PostRecv([]udat.LMRTriplet{l.Triplet(0, 1)}, 1, 0), udat.ErrPrivilegesViolation)
		gone := b.lmr(100, udat.PrivAll)
		assert.NilError(t, b.ep.PostRecv([]udat.LMRTriplet{gone.Triplet(0, 100)}, 2, 0))
		assert.NilError(t, gone.Free())
		assert.NilError(t, a.ep.PostSend(a.iov(0, 100), 3, 0))
		failed(t, b.recv, 2, udat.DTOErrLocalProtection)
		broken(t, a, b)
		rule.Proves(t, "LMR-FREE-02")
	})
}

// TestLMRZones shows that an endpoint reaches only memory of its own zone, from either end.
func TestLMRZones(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := pair(t, dev, setup{})
		pz, err := b.ia.CreatePZ()
		assert.NilError(t, err)
		l, err := b.ia.AllocLMR(pz, 100, udat.PrivAll)
		assert.NilError(t, err)
		seg := []udat.LMRTriplet{b.mem.Triplet(0, 1), l.Triplet(0, 10)}
		assert.ErrorIs(t, b.ep.PostSend(seg, 1, 0), udat.WithSubtype(udat.ProtectionViolation, udat.SubProtectionRead))
		assert.ErrorIs(t, b.ep.PostRecv(seg, 1, 0), udat.WithSubtype(udat.ProtectionViolation, udat.SubProtectionWrite))
		assert.ErrorIs(t, b.ep.PostRDMAWrite(seg, 1, a.mem.RMRTriplet(0, 100), 0), udat.ErrProtectionViolation)
		assert.ErrorIs(t, b.ep.PostRDMARead(seg[1:], 1, a.mem.RMRTriplet(0, 10), 0), udat.ErrProtectionViolation)
		a.put(0, 10, 66)
		assert.NilError(t, a.ep.PostRDMAWrite(a.iov(0, 10), 2, l.RMRTriplet(0, 10), 0))
		noAccess(t, a, b, 2)
		assert.DeepEqual(t, l.Bytes()[:10], make([]byte, 10))
		rule.Proves(t, "OBJ-03")
	})
}

// TestLMRSync shows that the synchronizing calls check their arguments although nothing needs
// synchronizing.
func TestLMRSync(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		e := newEnd(t, dev, setup{})
		_, _, p, err := e.ia.Query()
		assert.NilError(t, err)
		assert.Assert(t, !p.LMRSyncReq)
		pz, err := e.ia.CreatePZ()
		assert.NilError(t, err)
		other, err := e.ia.AllocLMR(pz, 100, 0)
		assert.NilError(t, err)
		freed := e.lmr(10, 0)
		assert.NilError(t, freed.Free())
		foreign := newEnd(t, dev, setup{})
		for _, sync := range []func([]udat.LMRTriplet) error{e.ia.LMRSyncRDMARead, e.ia.LMRSyncRDMAWrite} {
			assert.NilError(t, sync(nil))
			assert.NilError(t, sync([]udat.LMRTriplet{e.mem.Triplet(0, 10), other.Triplet(50, 50), e.mem.Triplet(endMemory, 0),
				{}}))
			for _, bad := range []udat.LMRTriplet{e.mem.Triplet(1, endMemory), e.mem.Triplet(-1, 1), freed.Triplet(0, 1),
				foreign.mem.Triplet(0, 1), {SegmentLength: 1}} {
				assert.ErrorIs(t, sync([]udat.LMRTriplet{e.mem.Triplet(0, 1), bad}), udat.ErrInvalidParameter)
			}
		}
		rule.Proves(t, "LMR-SYNC-01", "LMR-SYNC-04", "LMR-SYNC-05")
	})
}

// TestTargetAddresses: on a device in software no triplet for a peer has an address of memory, nor
// the distance between two regions, unless the program asks for it. Words stay aligned.
func TestTargetAddresses(t *testing.T) {
	onSoftware(t, func(t *testing.T, dev string) {
		for _, virtual := range []bool{false, true} {
			s := setup{}
			if virtual {
				s.opts = []udat.Option{udat.WithVirtualAddresses()}
			}
			e := newEnd(t, dev, s)
			var shifts [2]uint64
			for i := range shifts {
				l := e.lmr(4096, udat.PrivAll)
				shifts[i] = l.RMRTriplet(0, 1).TargetAddress - l.Triplet(0, 1).VirtualAddress
				assert.Equal(t, shifts[i]%8, uint64(0))
			}
			assert.Equal(t, shifts[0] == 0 && shifts[1] == 0, virtual)
			assert.Equal(t, shifts[0] == shifts[1], virtual)
		}
	})
}
