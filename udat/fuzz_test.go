package udat_test

import (
	"bytes"
	"errors"
	"math"
	"net/netip"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
)

// FuzzConnect connects to any address and qualifier with any private data. The call is refused with
// an error of DAT, or the attempt has one outcome; a service point reports the data as it was sent.
func FuzzConnect(f *testing.F) {
	f.Add([]byte{127, 0, 0, 1}, uint64(4711), []byte("hello"))
	f.Add([]byte(nil), uint64(0), []byte(nil))
	f.Add([]byte{255, 255, 255, 255}, uint64(1)<<63, make([]byte, 257))
	f.Add(make([]byte, 16), uint64(65536), []byte{0})
	f.Add([]byte("mem0"), uint64(1), make([]byte, 256)) // the service point itself
	f.Fuzz(func(t *testing.T, address []byte, qual uint64, private []byte) {
		noLeaks(t)
		a, b := newEnd(t, "mem0", setup{}), newEnd(t, "mem0", setup{})
		psp := listen(t, b)
		to, ok := netip.AddrFromSlice(address)
		if string(address) == "mem0" {
			to, qual = b.ia.Addr(), uint64(psp.Qual())
		} else if ok && to.Unmap() == b.ia.Addr() && qual == uint64(psp.Qual()) {
			return
		}
		err := a.ep.Connect(to, udat.ConnQual(qual), patience, private, udat.QoSBestEffort, udat.ConnectDefault)
		if err != nil {
			var dat *udat.Error
			assert.Assert(t, errors.As(err, &dat), "%v", err)
			assert.Equal(t, state(t, a.ep), udat.EPUnconnected)
			return
		}
		if string(address) != "mem0" {
			assert.Assert(t, next(t, a.conn).Number != udat.EventConnectionEstablished)
			return
		}
		cr := expect(t, b.cr, udat.EventConnectionRequest).CR
		q, err := cr.Query()
		assert.NilError(t, err)
		assert.Assert(t, bytes.Equal(q.PrivateData, private))
		assert.NilError(t, cr.Reject(private[:min(len(private), 140)]))
		expect(t, a.conn, udat.EventConnectionPeerRejected)
	})
}

// FuzzOpen opens adapters with any name: Open returns an error of DAT, or an adapter.
func FuzzOpen(f *testing.F) {
	for _, name := range []string{"", "mem0", "rxe0", "127.0.0.1", "::1%lo", "../../dev/null", "\x00", "fe80::1%\xff"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		ia, err := udat.Open(name)
		if err != nil {
			var dat *udat.Error
			assert.Assert(t, errors.As(err, &dat), "%v", err)
			return
		}
		assert.NilError(t, ia.Close(udat.CloseGraceful))
	})
}

// FuzzRMRTriplet reads the wire form of a triplet, which a peer sends. The result lies inside the
// address space and has the same wire form; an error changes nothing.
func FuzzRMRTriplet(f *testing.F) {
	for _, grant := range []udat.RMRTriplet{{}, {RMRContext: 1, TargetAddress: 4096, SegmentLength: 64},
		{TargetAddress: math.MaxUint64, SegmentLength: 1}, {TargetAddress: math.MaxUint64, SegmentLength: 2}} {
		b, err := grant.MarshalBinary()
		assert.NilError(f, err)
		f.Add(b)
		f.Add(b[1:])
		f.Add(append(b, 0))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		got := udat.RMRTriplet{RMRContext: 7}
		if err := got.UnmarshalBinary(b); err != nil {
			assert.ErrorIs(t, err, udat.ErrInvalidParameter)
			assert.Equal(t, got, udat.RMRTriplet{RMRContext: 7})
			return
		}
		assert.Assert(t, got.SegmentLength == 0 || got.TargetAddress+(got.SegmentLength-1) >= got.TargetAddress)
		again, err := got.MarshalBinary()
		assert.NilError(t, err)
		assert.Assert(t, bytes.Equal(again, b))
	})
}
