package udat_test

import (
	"encoding/binary"
	"slices"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/fabric/faultfabric"
	"github.com/godat/godat/udat/internal/rule"
)

// has reports whether the adapter's device has the feature of a provider-specific attribute. If
// not, it checks that err is ModelNotSupported.
func has(t *testing.T, ia *udat.IA, name string, err error) bool {
	t.Helper()
	_, _, p, qerr := ia.Query()
	assert.NilError(t, qerr)
	if p.Specific(name) == "TRUE" {
		assert.NilError(t, err)
		return true
	}
	assert.ErrorIs(t, err, udat.ErrModelNotSupported)
	return false
}

// TestImmediate sends immediate data with a Send and with an RDMA write.
func TestImmediate(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := pair(t, dev, setup{})
		want := a.put(0, 100, 1)
		before := b.put(500, 50, 99)
		assert.NilError(t, b.ep.PostRecv(b.iov(500, 50), 5, 0))
		err := a.ep.PostRDMAWriteImmediate(a.iov(0, 100), 1, b.mem.RMRTriplet(0, 100), 0x01020304, 0)
		if !has(t, a.ia, udat.AttrImmediateData, err) {
			assert.ErrorIs(t, a.ep.PostSendImmediate(nil, 1, 1, 0), udat.ErrModelNotSupported)
			rule.Proves(t, "EXT-05")
			return
		}
		ev := completion(t, b.recv, 5)
		assert.Assert(t, ev.Operation == udat.DTOReceiveWriteImm && ev.HasImmediate, "%s", describe(ev))
		assert.Equal(t, ev.Immediate, uint32(0x01020304))
		assert.DeepEqual(t, b.get(0, 100), want)
		assert.DeepEqual(t, b.get(500, 50), before)
		assert.Equal(t, completion(t, a.request, 1).Operation, udat.DTORDMAWriteImm)
		rule.Proves(t, "EXT-03", "EXT-04")
		assert.NilError(t, b.ep.PostRecv(b.iov(500, 50), 6, 0))
		assert.NilError(t, a.ep.PostSendImmediate(a.iov(0, 20), 2, 0xfffefdfc, udat.CompletionSuppress))
		ev = completion(t, b.recv, 6)
		assert.Assert(t, ev.Operation == udat.DTOReceiveImm && ev.HasImmediate && ev.Immediate == 0xfffefdfc &&
			ev.Length == 20, "%s", describe(ev))
		assert.DeepEqual(t, b.get(500, 20), want[:20])
		empty(t, a.request)
		assert.NilError(t, b.ep.PostRecv(b.iov(500, 50), 7, 0))
		assert.NilError(t, a.ep.PostSend(nil, 3, 0))
		ev = completion(t, b.recv, 7)
		assert.Assert(t, ev.Operation == udat.DTOReceive && !ev.HasImmediate && ev.Immediate == 0, "%s", describe(ev))
		assert.ErrorIs(t, a.ep.PostRDMAWriteImmediate(a.iov(0, 100), 1, b.mem.RMRTriplet(0, 99), 1, 0), udat.ErrLengthError)
	})
}

// TestAtomics tests fetch-and-add and compare-and-swap.
func TestAtomics(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := pair(t, dev, setup{})
		l, err := b.ia.AllocLMR(b.pz, 4096, udat.PrivAll|udat.PrivRemoteAtomic)
		if err != nil {
			assert.ErrorIs(t, a.ep.PostFetchAdd(1, a.mem.Triplet(0, 8), 1, b.mem.RMRTriplet(0, 8), 0), udat.ErrModelNotSupported)
			t.Skip("the device has no atomics")
		}
		word := l.Bytes()[16:24]
		binary.NativeEndian.PutUint64(word, 40)
		result := func() uint64 { return binary.NativeEndian.Uint64(a.get(8, 8)) }
		if !has(t, a.ia, udat.AttrFetchAndAdd, a.ep.PostFetchAdd(2, a.mem.Triplet(8, 8), 1, l.RMRTriplet(16, 8), 0)) {
			t.Skip("the device has no atomics")
		}
		ev := completion(t, a.request, 1)
		assert.Equal(t, ev.Operation, udat.DTOFetchAdd)
		assert.DeepEqual(t, []uint64{result(), binary.NativeEndian.Uint64(word)}, []uint64{40, 42})
		for _, c := range []struct{ compare, swap, old, now uint64 }{{41, 7, 42, 42}, {42, 1 << 63, 42, 1 << 63}} {
			assert.NilError(t, a.ep.PostCmpSwap(c.compare, c.swap, a.mem.Triplet(8, 8), 2, l.RMRTriplet(16, 8), 0))
			assert.Equal(t, completion(t, a.request, 2).Operation, udat.DTOCmpSwap)
			assert.DeepEqual(t, []uint64{result(), binary.NativeEndian.Uint64(word)}, []uint64{c.old, c.now})
		}
		for _, c := range []struct {
			local  udat.LMRTriplet
			remote udat.RMRTriplet
		}{
			{a.mem.Triplet(0, 4), l.RMRTriplet(0, 8)},
			{a.mem.Triplet(0, 16), l.RMRTriplet(0, 8)},
			{a.mem.Triplet(0, 8), l.RMRTriplet(4, 8)},
			{a.mem.Triplet(0, 8), l.RMRTriplet(0, 7)},
		} {
			assert.ErrorIs(t, a.ep.PostFetchAdd(1, c.local, 3, c.remote, 0), udat.ErrInvalidParameter)
			assert.ErrorIs(t, a.ep.PostCmpSwap(1, 2, c.local, 3, c.remote, 0), udat.ErrInvalidParameter)
		}
		_, err = a.ep.PostBatch([]udat.Op{{Kind: udat.OpFetchAdd, Remote: l.RMRTriplet(0, 8),
			IOV: []udat.LMRTriplet{a.mem.Triplet(0, 4), a.mem.Triplet(4, 4)}}})
		assert.ErrorIs(t, err, udat.ErrInvalidParameter)
		assert.ErrorIs(t, a.ep.PostFetchAdd(1, a.lmr(8, udat.PrivLocalRead).Triplet(0, 8), 3, l.RMRTriplet(0, 8), 0),
			udat.ErrPrivilegesViolation)
		// The read depth limits atomics too: it is the number in flight at once, and a depth of 0
		// allows none.
		one, far := *a, *b
		one.ep, far.ep = a.another(&udat.EPAttr{MaxRDMAReadOut: 1}), b.another(&udat.EPAttr{MaxRDMAReadIn: 1})
		connect(t, &one, &far)
		clear(word)
		for i := range 8 {
			assert.NilError(t, one.ep.PostFetchAdd(1, a.mem.Triplet(8*i, 8), udat.Cookie(i), l.RMRTriplet(16, 8), 0))
		}
		for i := range 8 {
			completion(t, a.request, udat.Cookie(i))
			assert.Equal(t, binary.NativeEndian.Uint64(a.get(8*i, 8)), uint64(i))
		}
		one.ep, far.ep = a.another(&udat.EPAttr{MaxRDMAReadOut: udat.None}), b.another(nil)
		connect(t, &one, &far)
		for _, err := range []error{one.ep.PostFetchAdd(1, a.mem.Triplet(0, 8), 3, l.RMRTriplet(16, 8), 0),
			one.ep.PostCmpSwap(1, 2, a.mem.Triplet(0, 8), 3, l.RMRTriplet(16, 8), 0)} {
			refused(t, err, udat.InvalidParameter, udat.SubArg5)
		}
		// remote read and write are not enough
		assert.NilError(t, a.ep.PostFetchAdd(1, a.mem.Triplet(0, 8), 4, b.mem.RMRTriplet(0, 8), 0))
		failed(t, a.request, 4, udat.DTOErrRemoteAccess)
		broken(t, a)
		targetOfFault(t, b)
		rule.Proves(t, "EXT-02", "EXT-05")
	})
}

// TestExtendedCompletions: the completion of each extended operation that the device supports has
// the right Operation, cookie and length. So has the completion of the receive that the operation
// uses at the other end, with the immediate data. The completion of a failed operation has the
// Operation too.
func TestExtendedCompletions(t *testing.T) {
	onEachOutside(t, func(t *testing.T, dev string) {
		cases := []struct {
			name   string
			kind   udat.OpKind
			local  udat.DTOOperation
			remote udat.DTOOperation // of the receive, where uses is set
			uses   bool
			length int
		}{
			{"send with immediate", udat.OpSendImmediate, udat.DTOSend, udat.DTOReceiveImm, true, 24},
			{"write with immediate", udat.OpRDMAWriteImmediate, udat.DTORDMAWriteImm, udat.DTOReceiveWriteImm, true, 24},
			{"send with invalidate", udat.OpSendInvalidate, udat.DTOSend, udat.DTOReceiveInv, true, 24},
			{"fetch and add", udat.OpFetchAdd, udat.DTOFetchAdd, 0, false, 8},
			{"compare and swap", udat.OpCmpSwap, udat.DTOCmpSwap, 0, false, 8},
		}
		had := 0
		for _, c := range cases {
			t.Run(c.name, func(t *testing.T) {
				a, b := pair(t, dev, setup{})
				remote := b.mem.RMRTriplet(0, c.length)
				imm := uint32(0xa1b2c3d4)
				switch c.kind {
				case udat.OpSendInvalidate:
					if d := udat.DeviceAttr(b.ia); !d.SendInvalidate || !d.MWType2 {
						t.Log("the device cannot invalidate windows")
						return
					}
					remote = b.bind(t, b.window(t), b.mem, 0, 100, bothRights)
					imm = 0
				case udat.OpFetchAdd, udat.OpCmpSwap:
					l, err := b.ia.AllocLMR(b.pz, 8, udat.PrivAll|udat.PrivRemoteAtomic)
					if err != nil {
						t.Log("the device has no atomics")
						return
					}
					remote, imm = l.RMRTriplet(0, 8), 0
				}
				if c.uses {
					assert.NilError(t, b.ep.PostRecv(b.iov(500, 50), 5, 0))
					assert.NilError(t, b.ep.PostRecv(b.iov(600, 50), 6, 0))
				}
				o := udat.Op{Kind: c.kind, Cookie: 77, IOV: a.iov(0, c.length), Remote: remote, Immediate: imm}
				if c.kind == udat.OpSendInvalidate {
					o.InvalidateContext = remote.RMRContext
				}
				if _, err := a.ep.PostBatch([]udat.Op{o}); err != nil {
					assert.ErrorIs(t, err, udat.ErrModelNotSupported)
					t.Log("the device lacks the operation")
					return
				}
				had++
				ev := completion(t, a.request, 77)
				assert.Equal(t, ev.Operation, c.local)
				assert.Equal(t, ev.EP, a.ep)
				assert.Equal(t, ev.Length, uint64(c.length))
				assert.Assert(t, !ev.HasImmediate && ev.Immediate == 0 && ev.RMRContext == 0, "%+v", ev)
				if c.uses {
					ev = completion(t, b.recv, 5)
					assert.Equal(t, ev.Operation, c.remote)
					assert.Equal(t, ev.EP, b.ep)
					assert.Equal(t, ev.Length, uint64(c.length))
					assert.Equal(t, ev.HasImmediate, imm != 0)
					assert.Equal(t, ev.Immediate, imm)
					if c.kind == udat.OpSendInvalidate {
						assert.Equal(t, ev.RMRContext, remote.RMRContext)
					} else {
						assert.Equal(t, ev.RMRContext, uint32(0))
					}
				}
				assert.NilError(t, b.ep.Disconnect(udat.CloseAbrupt))
				expect(t, a.conn, udat.EventConnectionDisconnected)
				o.Cookie = 78
				_, err := a.ep.PostBatch([]udat.Op{o})
				assert.NilError(t, err)
				assert.Equal(t, flushed(t, a.request, 78).Operation, c.local, "of a flush")
			})
		}
		if had == 0 {
			t.Skip("the device has no extended operations")
		}
		rule.Proves(t, "EXT-01")
	})
}

// TestExtensionsThatDeviceLacks: a post of an operation that the device does not support is
// refused, and no other post is.
func TestExtensionsThatDeviceLacks(t *testing.T) {
	onMem(t, func(t *testing.T, dev string) {
		for _, c := range []struct {
			lack  func(*fabric.Attr)
			kinds []udat.OpKind
		}{
			{func(d *fabric.Attr) { d.Atomics = false }, []udat.OpKind{udat.OpFetchAdd, udat.OpCmpSwap}},
			{func(d *fabric.Attr) { d.SendInvalidate = false }, []udat.OpKind{udat.OpSendInvalidate}},
			{func(d *fabric.Attr) { d.MWType2 = false }, []udat.OpKind{udat.OpSendInvalidate}},
			{func(d *fabric.Attr) { d.WriteImmediate = false }, []udat.OpKind{udat.OpSendImmediate, udat.OpRDMAWriteImmediate}},
		} {
			a, b := newEnd(t, dev, setup{script: &faultfabric.Script{Attr: c.lack}}), newEnd(t, dev, setup{})
			connect(t, a, b)
			// With a region that lacks the privilege, only supported operations get as far as the
			// privilege check, and nothing is posted.
			for kind := udat.OpSend; kind <= udat.OpCmpSwap; kind++ {
				priv := udat.PrivLocalWrite
				if kind == udat.OpRDMARead || kind == udat.OpFetchAdd || kind == udat.OpCmpSwap {
					priv = udat.PrivLocalRead
				}
				o := udat.Op{Kind: kind, IOV: []udat.LMRTriplet{a.lmr(8, priv).Triplet(0, 8)}, Remote: b.mem.RMRTriplet(0, 8)}
				_, err := a.ep.PostBatch([]udat.Op{o})
				if slices.Contains(c.kinds, kind) {
					refused(t, err, udat.ModelNotSupported)
				} else {
					refused(t, err, udat.PrivilegesViolation)
				}
			}
		}
	})
}

// TestSendInvalidate unbinds the peer's window with a Send.
func TestSendInvalidate(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := pair(t, dev, setup{})
		r := b.window(t)
		tr := b.bind(t, r, b.mem, 0, 100, bothRights)
		assert.NilError(t, b.ep.PostRecv(b.iov(500, 10), 5, 0))
		refused(t, b.mem.Free(), udat.InvalidState, udat.SubStateLMRInUse)
		if !has(t, a.ia, udat.AttrSendWithInvalidate, a.ep.PostSendWithInvalidate(a.iov(0, 10), 1, tr.RMRContext, 0)) {
			t.Skip("the device cannot invalidate windows")
		}
		completion(t, a.request, 1)
		ev := completion(t, b.recv, 5)
		assert.Equal(t, ev.Operation, udat.DTOReceiveInv)
		assert.Equal(t, ev.RMRContext, tr.RMRContext)
		p, err := r.Query()
		assert.NilError(t, err)
		assert.Equal(t, p, udat.RMRParam{IA: b.ia, PZ: b.pz})
		assert.NilError(t, a.ep.PostRDMAWrite(a.iov(0, 10), 2, tr, 0))
		failed(t, a.request, 2, udat.DTOErrRemoteAccess)
		broken(t, a)
		targetOfFault(t, b)
		assert.NilError(t, b.mem.Free()) // the window is no longer bound to it
	})
}

// TestReadToRMR reads into a window.
func TestReadToRMR(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := pair(t, dev, setup{})
		r := a.window(t)
		read := func(local udat.RMRTriplet, n int) error {
			return a.ep.PostRDMAReadToRMR(r, local, 1, b.mem.RMRTriplet(0, n), 0)
		}
		assert.ErrorIs(t, read(udat.RMRTriplet{}, 10), udat.ErrInvalidState)
		tr := a.bind(t, r, a.mem, 1000, 100, udat.PrivRemoteRead)
		assert.ErrorIs(t, read(sub(tr, 0, 10), 10), udat.ErrPrivilegesViolation)
		tr = a.bind(t, r, a.mem, 1000, 100, udat.PrivRemoteWrite)
		for _, bad := range []udat.RMRTriplet{sub(tr, -1, 10), sub(tr, 91, 10),
			{RMRContext: tr.RMRContext + 1, TargetAddress: tr.TargetAddress, SegmentLength: 10}} {
			assert.ErrorIs(t, read(bad, 10), udat.ErrInvalidParameter)
		}
		assert.ErrorIs(t, read(sub(tr, 0, 9), 10), udat.ErrLengthError)
		want := b.put(0, 50, 4)
		assert.NilError(t, read(sub(tr, 50, 50), 50))
		assert.Equal(t, completion(t, a.request, 1).Operation, udat.DTORDMARead)
		assert.DeepEqual(t, a.get(1050, 50), want)
		assert.NilError(t, a.ep.PostRDMARead(a.iov(0, 50), 2, b.mem.RMRTriplet(0, 50), 0))
		completion(t, a.request, 2)
	})
}

// TestExtensionPrivileges: the operations beyond DAT 1.2 need the same privileges as those of DAT
// 1.2.
func TestExtensionPrivileges(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := pair(t, dev, setup{})
		readable, writable := a.lmr(64, udat.PrivLocalRead), a.lmr(64, udat.PrivLocalWrite)
		remote := b.mem.RMRTriplet(0, 8)
		for kind, source := range map[udat.OpKind]bool{
			udat.OpSendImmediate: true, udat.OpSendInvalidate: true, udat.OpRDMAWriteImmediate: true, udat.OpFetchAdd: false,
			udat.OpCmpSwap: false,
		} {
			wrong := writable
			if !source {
				wrong = readable
			}
			o := udat.Op{Kind: kind, IOV: []udat.LMRTriplet{wrong.Triplet(0, 8)}, Remote: remote}
			_, err := a.ep.PostBatch([]udat.Op{o})
			if errorsIs(err, udat.ErrModelNotSupported) {
				continue
			}
			refused(t, err, udat.PrivilegesViolation)
			o.Flags = udat.CompletionSolicitedWait // allowed for operations that consume a receive
			_, err = a.ep.PostBatch([]udat.Op{o})
			if source {
				refused(t, err, udat.PrivilegesViolation)
			} else {
				refused(t, err, udat.InvalidParameter, udat.SubArg6)
			}
		}
	})
}
