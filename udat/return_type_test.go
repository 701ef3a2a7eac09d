package udat_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
	"github.com/godat/godat/udat/internal/rule"
)

// TestStrerror shows the texts of all return codes.
func TestStrerror(t *testing.T) {
	major, _, err := udat.Strerror(0)
	assert.NilError(t, err)
	assert.Equal(t, major, "success")
	rule.Proves(t, "STRERR-03")
	types := []udat.ReturnType{0x10000, 0x20000, 0x30000, 0x40000, 0x50000, 0x60000, 0x70000, 0x80000, 0x90000, 0xA0000,
		0xB0000, 0xC0000, 0xD0000,
		0xE0000, 0xF0000, 0x100000, 0x110000, 0x120000, 0x130000, 0x140000, 0xFFF0000}
	var minor string
	seen := map[string]bool{"success": true}
	for _, typ := range types {
		for s := range udat.Subtype(102) {
			code := 0x80000000 | uint32(typ) | uint32(s)
			major, minor, err = udat.Strerror(code)
			assert.NilError(t, err, "0x%08x", code)
			assert.Equal(t, major, typ.String())
			assert.Equal(t, minor, s.String())
		}
		assert.Assert(t, !seen[major], major)
		seen[major] = true
	}
	for s := range udat.Subtype(102) {
		assert.Assert(t, s.String() != "", "%d", s)
	}
	rule.Proves(t, "STRERR-01")
	for _, bad := range []uint32{1 << 16, 0x80000000, 0x80150000, 0x80FF0000, 0x80010066, 0xFFFFFFFF} {
		_, _, err := udat.Strerror(bad)
		assert.ErrorIs(t, err, udat.ErrInvalidParameter, "0x%08x", bad)
	}
	rule.Proves(t, "STRERR-02")
}

// TestError shows class, type and subtype of errors, and how errors.Is compares them.
func TestError(t *testing.T) {
	assert.Equal(t, udat.WithSubtype(udat.InvalidState, udat.SubStateEVDWaiter).Code(), uint32(0x80070000|77))
	assert.Equal(t, udat.WithSubtype(udat.InvalidHandle, udat.SubHandleSRQ).Code(), uint32(0x80050000|25))
	assert.Equal(t, udat.WithSubtype(udat.InvalidParameter, udat.SubArg10).Code(), uint32(0x80060000|45))
	assert.Equal(t, udat.WithSubtype(udat.InvalidState, udat.SubStateSRQInUse).Code(), uint32(0x80070000|86))
	assert.Equal(t, udat.WithSubtype(udat.ProviderNotFound, udat.SubThreadSafetyNotFound).Code(), uint32(0x800A0000|101))
	_, err := udat.Open("no such adapter")
	wrapped := fmt.Errorf("opening: %w", err)
	assert.ErrorIs(t, wrapped, udat.ErrProviderNotFound)
	assert.ErrorIs(t, wrapped, udat.WithSubtype(udat.ProviderNotFound, udat.SubNameNotRegistered))
	for _, other := range []error{udat.ErrInvalidHandle, udat.WithSubtype(udat.ProviderNotFound, udat.SubMajorNotFound),
		io.EOF} {
		assert.Assert(t, !errors.Is(wrapped, other), "%v", other)
	}
	var e *udat.Error
	assert.Assert(t, errors.As(wrapped, &e))
	assert.Assert(t, e.Op == "ia_open" && e.Type == udat.ProviderNotFound && e.Subtype == udat.SubNameNotRegistered)
	cause := &udat.Error{Op: "x", Type: udat.InternalError, Err: io.EOF}
	assert.ErrorIs(t, cause, io.EOF)
	rule.Proves(t, "RET-01")
}

// TestEventNumbers shows that the bits above the low 12 of an event's number identify its stream.
func TestEventNumbers(t *testing.T) {
	withoutDevice(t)
	var known []udat.EventNumber // all that have a name
	for n := range udat.EventNumber(1 << 18) {
		if !strings.HasPrefix(n.String(), "event ") {
			known = append(known, n)
		}
	}
	var listed []udat.EventNumber
	for _, c := range []struct {
		stream  udat.EventNumber
		numbers []udat.EventNumber
	}{
		{0x00000, []udat.EventNumber{udat.EventDTOCompletion}},
		{0x01000, []udat.EventNumber{udat.EventRMRBindCompletion}},
		{0x02000, []udat.EventNumber{udat.EventConnectionRequest}},
		{0x04000, []udat.EventNumber{udat.EventConnectionEstablished, udat.EventConnectionPeerRejected,
			udat.EventConnectionNonPeerRejected,
			udat.EventConnectionAcceptError, udat.EventConnectionDisconnected, udat.EventConnectionBroken,
			udat.EventConnectionTimedOut,
			udat.EventConnectionUnreachable}},
		{0x08000, []udat.EventNumber{udat.EventAsyncEVDOverflow, udat.EventAsyncIACatastrophic, udat.EventAsyncEPBroken,
			udat.EventAsyncTimedOut,
			udat.EventAsyncProviderInternalError}},
		{0x10000, []udat.EventNumber{udat.EventSoftware}},
	} {
		for i, n := range c.numbers {
			assert.Equal(t, n, c.stream|udat.EventNumber(i+1))
		}
		listed = append(listed, c.numbers...)
		if c.stream == 0x08000 { // the watermarks, which DAT does not number
			for _, n := range []udat.EventNumber{udat.EventAsyncSRQLowWatermark, udat.EventAsyncEPSoftHighWatermark} {
				assert.Equal(t, n&^0xfff, c.stream)
				listed = append(listed, n)
			}
		}
	}
	assert.DeepEqual(t, listed, known)
	rule.Proves(t, "EVT-01")
}

// TestFailureIsAFlush shows that flushed work, and no other work, has the status that DAT also
// calls failure.
func TestFailureIsAFlush(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := pair(t, dev, setup{})
		assert.NilError(t, b.ep.PostRecv(b.iov(0, 1), 1, 0))
		assert.NilError(t, b.ep.PostRecv(b.iov(0, 1), 2, 0))
		assert.NilError(t, a.ep.PostSend(a.iov(0, 2), 3, 0)) // too long
		assert.Assert(t, next(t, a.request).Status > udat.DTOErrFlushed || !acknowledged(a))
		failed(t, b.recv, 1, udat.DTOErrLocalLength)
		flushed(t, b.recv, 2)
		broken(t, a, b)
		if acknowledged(a) {
			again(t, a, b)
			remote := b.mem.RMRTriplet(0, 10)
			remote.RMRContext ^= 0x5a5a5a
			assert.NilError(t, a.ep.PostRDMAWrite(a.iov(0, 10), 4, remote, 0))
			assert.NilError(t, a.ep.PostSend(nil, 5, 0))
			failed(t, a.request, 4, udat.DTOErrRemoteAccess)
			flushed(t, a.request, 5)
		}
		assert.Equal(t, udat.DTOErrFlushed, udat.DTOStatus(1))
		rule.Proves(t, "EVT-05")
	})
}
