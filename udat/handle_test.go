package udat_test

import (
	"errors"
	"reflect"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
	"github.com/godat/godat/udat/internal/rule"
)

// zoo is one live object of every kind.
type zoo struct {
	end
	psp     *udat.PSP
	rsp     *udat.RSP
	request *udat.CR
	cno     *udat.CNO
	srq     *udat.SRQ // nil where the device has none
	rmr     *udat.RMR // nil where the device has none
	caller  *end      // whose connect made the request
}

func newZoo(t *testing.T, dev string) *zoo {
	t.Helper()
	z := &zoo{end: *newEnd(t, dev, setup{}), caller: newEnd(t, dev, setup{})}
	var err error
	z.psp = listen(t, &z.end)
	_, z.rsp = listenReserved(t, &z.end, nil)
	assert.NilError(t, z.caller.ep.Connect(z.ia.Addr(), z.psp.Qual(), patience, nil, udat.QoSBestEffort, 0))
	z.request = expect(t, z.cr, udat.EventConnectionRequest).CR
	z.cno, err = z.ia.CreateCNO(nil)
	assert.NilError(t, err)
	z.srq, err = z.ia.CreateSRQ(z.pz, udat.SRQAttr{MaxRecvDTOs: 4, MaxRecvIOV: 1})
	unlessUnsupported(t, err)
	z.rmr, err = z.pz.CreateRMR()
	unlessUnsupported(t, err)
	return z
}

// listenReserved makes a reserved service point on a free qualifier.
func listenReserved(t *testing.T, e *end, ep *udat.EP, opts ...udat.ListenOption) (udat.ConnQual, *udat.RSP) {
	t.Helper()
	for {
		psp := listen(t, e)
		qual := psp.Qual()
		assert.NilError(t, psp.Free())
		rsp, err := e.ia.CreateRSP(qual, ep, e.cr, opts...)
		if errors.Is(err, udat.ErrConnQualInUse) {
			continue // somebody else was faster
		}
		assert.NilError(t, err)
		return qual, rsp
	}
}

// unlessUnsupported fails the test on any error other than ModelNotSupported.
func unlessUnsupported(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		assert.ErrorIs(t, err, udat.ErrModelNotSupported)
	}
}

// handles returns the objects in an order in which they can be freed.
func (z *zoo) handles() []udat.Handle {
	list := []udat.Handle{z.request, z.psp, z.rsp, z.ep}
	if z.rmr != nil {
		list = append(list, z.rmr)
	}
	if z.srq != nil {
		list = append(list, z.srq)
	}
	return append(list, z.mem, z.pz, z.recv, z.end.request, z.conn, z.cr, z.cno)
}

var kindOfHandle = map[reflect.Type]udat.HandleType{
	reflect.TypeFor[*udat.CR]():  udat.HandleCR,
	reflect.TypeFor[*udat.EP]():  udat.HandleEP,
	reflect.TypeFor[*udat.EVD](): udat.HandleEVD,
	reflect.TypeFor[*udat.IA]():  udat.HandleIA,
	reflect.TypeFor[*udat.LMR](): udat.HandleLMR,
	reflect.TypeFor[*udat.PSP](): udat.HandlePSP,
	reflect.TypeFor[*udat.PZ]():  udat.HandlePZ,
	reflect.TypeFor[*udat.RMR](): udat.HandleRMR,
	reflect.TypeFor[*udat.RSP](): udat.HandleRSP,
	reflect.TypeFor[*udat.CNO](): udat.HandleCNO,
	reflect.TypeFor[*udat.SRQ](): udat.HandleSRQ,
}

// TestHandleTypesAndContexts shows what every kind of handle can do.
func TestHandleTypesAndContexts(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		z := newZoo(t, dev)
		for i, h := range append(z.handles(), z.ia) {
			kind, err := udat.GetHandleType(h)
			assert.NilError(t, err)
			assert.Equal(t, kind, kindOfHandle[reflect.TypeOf(h)])
			got, err := udat.GetConsumerContext(h)
			assert.NilError(t, err)
			assert.Equal(t, got, uint64(0), "%v", kind)
			assert.NilError(t, udat.SetConsumerContext(h, 1<<63|uint64(i)))
			assert.NilError(t, udat.SetConsumerContext(h, ^uint64(i)))
		}
		for i, h := range append(z.handles(), z.ia) {
			got, err := udat.GetConsumerContext(h)
			assert.NilError(t, err)
			assert.Equal(t, got, ^uint64(i))
		}
		assert.Equal(t, [11]udat.HandleType{udat.HandleCR, udat.HandleEP, udat.HandleEVD, udat.HandleIA, udat.HandleLMR,
			udat.HandlePSP,
			udat.HandlePZ, udat.HandleRMR, udat.HandleRSP, udat.HandleCNO, udat.HandleSRQ},
			[11]udat.HandleType{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10})
		rule.Proves(t, "HTYPE-01", "HTYPE-02", "CTX-01", "CTX-02", "CTX-03", "CTX-04", "OBJ-11")
		var none udat.Handle
		for _, h := range []udat.Handle{none, (*udat.EP)(nil), (*udat.IA)(nil)} {
			_, err := udat.GetHandleType(h)
			assert.ErrorIs(t, err, udat.ErrInvalidHandle)
			_, err = udat.GetConsumerContext(h)
			assert.ErrorIs(t, err, udat.ErrInvalidHandle)
			assert.ErrorIs(t, udat.SetConsumerContext(h, 1), udat.ErrInvalidHandle)
		}
		assert.NilError(t, udat.SetConsumerContext(z.request, 25))
		assert.NilError(t, z.request.Reject(nil))
		assert.ErrorIs(t, udat.SetConsumerContext(z.request, 1), udat.ErrInvalidHandle)
		context, err := udat.GetConsumerContext(z.request)
		assert.ErrorIs(t, err, udat.ErrInvalidHandle)
		assert.Equal(t, context, uint64(25), "events of a freed object still name it")
		rule.Proves(t, "CTX-05")
	})
}

// TestTeardown frees one object of every kind in the recommended order and closes gracefully, then
// calls every method of every dead object.
func TestTeardown(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		z := newZoo(t, dev)
		assert.ErrorIs(t, z.ia.Close(udat.CloseGraceful), udat.WithSubtype(udat.InvalidState, udat.SubStateIAInUse))
		_, err := z.ia.CreatePZ()
		assert.NilError(t, err, "a refused close changes nothing")
		dead := z.handles()
		for _, h := range dead[1:] {
			assert.Assert(t, live(h))
		}
		assert.NilError(t, z.request.Reject(nil))
		for _, h := range dead[1:] {
			assert.NilError(t, h.(interface{ Free() error }).Free(), "%T", h)
			assert.Assert(t, !live(h))
		}
		assert.ErrorIs(t, z.ia.Close(udat.CloseGraceful), udat.ErrInvalidState)
		rule.Proves(t, "IA-CLOSE-04")
		everyCallFails(t, dead, plausible(newZoo(t, dev)))
		rule.Proves(t, "GEN-02", "GEN-03", "OBJ-06", "PSP-FREE-05", "RSP-FREE-03")
		z2 := newZoo(t, dev)
		assert.NilError(t, z2.request.Reject(nil))
		for _, h := range z2.handles()[1:] {
			assert.NilError(t, h.(interface{ Free() error }).Free(), "%T", h)
		}
		assert.NilError(t, z2.ia.Close(udat.CloseGraceful))
		rule.Proves(t, "OBJ-12")
		everyCallFails(t, []udat.Handle{z2.ia}, reflect.Zero)
	})
}

func live(h udat.Handle) bool {
	_, err := udat.GetHandleType(h)
	return err == nil
}

// TestQueries tests queries that the tests of the objects leave out.
func TestQueries(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		z := newZoo(t, dev)
		_, _, _, err := (*udat.IA)(nil).Query()
		assert.ErrorIs(t, err, udat.ErrInvalidHandle)
		_, err = (*udat.EP)(nil).Query()
		assert.ErrorIs(t, err, udat.ErrInvalidHandle)
		rule.Proves(t, "IA-QUERY-04", "EP-QUERY-04")
		pz, err := z.pz.Query()
		assert.NilError(t, err)
		assert.Equal(t, pz.IA, z.ia)
		other, err := z.ia.CreatePZ()
		assert.NilError(t, err)
		pz, err = other.Query()
		assert.NilError(t, err)
		assert.Equal(t, pz.IA, z.ia)
		assert.NilError(t, other.Free())
		for _, dead := range []*udat.PZ{nil, other, {}} {
			_, err = dead.Query()
			refused(t, err, udat.InvalidHandle, udat.SubHandlePZ)
		}
		rule.Proves(t, "PZ-QUERY-01")
		psp, err := z.psp.Query()
		assert.NilError(t, err)
		assert.Equal(t, psp, udat.PSPParam{IA: z.ia, ConnQual: z.psp.Qual(), EVD: z.cr, Flags: udat.PSPConsumer})
		rule.Proves(t, "PSP-QUERY-01")
		rsp, err := z.rsp.Query()
		assert.NilError(t, err)
		assert.Equal(t, rsp, udat.RSPParam{IA: z.ia, ConnQual: z.rsp.Qual(), EVD: z.cr})
		rule.Proves(t, "GEN-07")
	})
}
