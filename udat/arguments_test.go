package udat_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
	"github.com/godat/godat/udat/internal/rule"
)

// TestArgumentsAreCounted makes one argument of many calls wrong. The text of the error names the
// argument by its number in the Go call, the subtype by its number in the C call, where the handle
// is the first argument.
func TestArgumentsAreCounted(t *testing.T) {
	z := newZoo(t, "mem0")
	a, b := pair(t, "mem0", setup{})
	mem, remote := a.iov(0, 8), b.mem.RMRTriplet(0, 8)
	outside, many := []udat.LMRTriplet{a.mem.Triplet(endMemory, 8)}, make([]udat.LMRTriplet, 1000)
	const flags = udat.CompletionFlags(1 << 20)
	noReads, _ := pair(t, "mem0", setup{attr: &udat.EPAttr{MaxRDMAReadOut: udat.None}})
	window := a.window(t)
	a.bind(t, window, a.mem, 0, 64, bothRights)
	one := func(_ any, err error) error { return err }
	var addr, qual = z.ia.Addr(), z.psp.Qual()
	for i, c := range []struct {
		err error
		arg int // of the Go call, 0 for the receiver
		sub udat.Subtype
	}{
		{one(udat.Open("")), 1, udat.SubArg1},
		{one(udat.Open("mem0", udat.WithAsyncQLen(0))), 2, udat.SubArg2},
		{one(udat.Open("mem0", udat.WithRNRRetry(8))), 2, udat.SubArg2},
		{one(udat.Open("mem0", udat.WithRNRRetry(7), nil)), 2, udat.SubArg2},
		{one(udat.Open("mem0", udat.WithRetry(-1))), 2, udat.SubArg2},
		{one(udat.Open("mem0", udat.WithSpin(-1))), 2, udat.SubArg2},
		{one(udat.Open("mem0", udat.WithPath(udat.PathOptions{TOS: new(256)}))), 2, udat.SubArg2},
		{one(udat.Open("mem0", udat.WithPath(udat.PathOptions{ServiceLevel: new(16)}))), 2, udat.SubArg2},
		{one(udat.Open("mem0", udat.WithPath(udat.PathOptions{GIDIndex: new(-1)}))), 2, udat.SubArg2},
		{one(udat.Open("mem0", udat.WithPath(udat.PathOptions{AckTimeout: new(32)}))), 2, udat.SubArg2},
		{one(udat.Open("mem0", udat.WithPath(udat.PathOptions{MTU: new(1500)}))), 2, udat.SubArg2},
		{udat.RegisterProvider("", "mem0"), 1, udat.SubArg1},
		{udat.RegisterProvider("x", ""), 2, udat.SubArg2},
		{udat.RemoveProvider("x"), 1, udat.SubArg1},
		{func() error { _, _, err := udat.Strerror(1 << 31); return err }(), 1, udat.SubArg1},
		{z.ia.Close(9), 1, udat.SubArg2},
		{one(z.ia.CreateEVD(0, udat.EVDDTO, nil)), 1, udat.SubArg2},
		{one(z.ia.CreateEVD(4, 0, nil)), 2, udat.SubArg4},
		{one(z.ia.CreateEP(z.pz, nil, nil, nil, &udat.EPAttr{ServiceType: 9})), 5, udat.SubArg6},
		{one(z.ia.CreateEPWithSRQ(z.pz, nil, nil, nil, z.srq, nil)), 6, udat.SubArg7},
		{one(z.ia.CreateEPWithSRQ(z.pz, nil, nil, nil, z.srq, &udat.EPAttr{ServiceType: 9})), 6, udat.SubArg7},
		{one(z.ia.CreateLMR(z.pz, nil, 0)), 2, udat.SubArg4},
		{one(z.ia.CreateLMR(z.pz, make([]byte, 8), 1<<20)), 3, udat.SubArg6},
		{one(z.ia.AllocLMR(z.pz, -1, 0)), 2, udat.SubArg4},
		{one(z.ia.CreateLMRFromLMR(z.pz, z.mem, 1<<20)), 3, udat.SubArg6},
		{one(z.ia.CreateLMRShared(z.pz, nil, udat.SharedMemoryID{}, 0)), 2, udat.SubArg4},
		{one(z.ia.CreateLMRShared(z.pz, make([]byte, 8), udat.SharedMemoryID{}, 1<<20)), 4, udat.SubArg6},
		{one(z.ia.LMRByContext(1 << 31)), 1, udat.SubArg2},
		{one(z.mem.LoadUint64(-1)), 1, udat.SubArg2},
		{z.ia.LMRSyncRDMARead(outside), 1, udat.SubArg2},
		{one(z.ia.CreatePSP(0, z.cr, 0)), 1, udat.SubArg2},
		{one(z.ia.CreatePSP(9, z.cr, 9)), 3, udat.SubArg4},
		{func() error { _, _, err := z.ia.CreatePSPAny(z.cr, 9); return err }(), 2, udat.SubArg4},
		{one(z.ia.CreateRSP(0, z.ep, z.cr)), 1, udat.SubArg2},
		{one(z.ia.CreateSRQ(z.pz, udat.SRQAttr{MaxRecvDTOs: -1})), 2, udat.SubArg3},
		{z.srq.Resize(-1), 1, udat.SubArg2},
		{z.srq.SetLW(-1), 1, udat.SubArg2},
		{z.srq.PostRecv(many, 0), 1, udat.SubArg2},
		{z.srq.PostRecv([]udat.LMRTriplet{z.mem.Triplet(endMemory, 8)}, 0), 1, udat.SubArg3},
		{z.conn.PostSE(udat.Event{Number: udat.EventSoftware}), 0, udat.SubArg1},
		{z.conn.PostSE(udat.Event{}), 1, udat.SubArg2},
		{z.conn.Resize(0), 1, udat.SubArg2},
		{one(z.conn.DequeueBatch(nil)), 1, udat.SubArg2},
		{one(z.conn.DequeueSpin(make([]udat.Event, 1), 0)), 2, udat.SubArg3},
		{func() error { _, _, err := z.conn.Wait(-1, 1); return err }(), 1, udat.SubArg2},
		{func() error { _, _, err := z.conn.Wait(0, -1); return err }(), 2, udat.SubArg3},
		{one(z.cno.Wait(-1)), 1, udat.SubArg2},
		{z.request.Handoff(0), 1, udat.SubArg2},
		{z.request.Accept(z.ep, make([]byte, 10_000)), 2, udat.SubArg3},
		{z.ep.Modify(1<<31, udat.EPParam{}), 1, udat.SubArg2},
		{z.ep.Modify(udat.EPFieldServiceType, udat.EPParam{Attr: udat.EPAttr{ServiceType: 9}}), 2, udat.SubArg3},
		{z.ep.Connect(addr, 0, time.Second, nil, 0, 0), 2, udat.SubArg3},
		{z.ep.Connect(addr, qual, 0, nil, 0, 0), 3, udat.SubArg4},
		{z.ep.Connect(addr, qual, time.Second, make([]byte, 10_000), 0, 0), 4, udat.SubArg5},
		{z.ep.Connect(addr, qual, time.Second, nil, 0, 9<<10), 6, udat.SubArg8},
		{z.ep.DupConnect(z.ep, 0, nil, 0), 2, udat.SubArg3},
		{z.ep.SetWatermark(-9, 0), 1, udat.SubArg2},
		{a.ep.Disconnect(9), 1, udat.SubArg2},
		{a.ep.PostSend(many, 0, 0), 1, udat.SubArg2},
		{a.ep.PostSend(outside, 0, 0), 1, udat.SubArg3},
		{a.ep.PostSend(mem, 0, flags), 3, udat.SubArg5},
		{a.ep.PostSendImmediate(outside, 0, 0, 0), 1, udat.SubArg3},
		{a.ep.PostSendWithInvalidate(outside, 0, 0, 0), 1, udat.SubArg3},
		{a.ep.PostSendImmediate(mem, 0, 0, flags), 4, udat.SubArg5},
		{a.ep.PostSendWithInvalidate(mem, 0, 0, flags), 4, udat.SubArg5},
		{a.ep.PostRecv(outside, 0, 0), 1, udat.SubArg3},
		{a.ep.PostRecv(mem, 0, flags), 3, udat.SubArg5},
		{a.ep.PostRDMARead(nil, 0, remote, 0), 1, udat.SubArg2},
		{a.ep.PostRDMARead(outside, 0, remote, 0), 1, udat.SubArg3},
		{noReads.ep.PostRDMARead(mem, 0, remote, 0), 3, udat.SubArg5},
		{a.ep.PostRDMARead(mem, 0, remote, flags), 4, udat.SubArg6},
		{a.ep.PostRDMAReadToRMR(window, udat.RMRTriplet{}, 0, remote, 0), 2, udat.SubArg2},
		{a.ep.PostRDMAWrite(outside, 0, remote, 0), 1, udat.SubArg3},
		{a.ep.PostRDMAWrite(mem, 0, remote, flags), 4, udat.SubArg6},
		{a.ep.PostRDMAWriteImmediate(outside, 0, remote, 0, 0), 1, udat.SubArg3},
		{a.ep.PostRDMAWriteImmediate(mem, 0, remote, 0, flags), 5, udat.SubArg6},
		{a.ep.PostFetchAdd(1, a.mem.Triplet(0, 4), 0, remote, 0), 2, udat.SubArg2},
		{a.ep.PostFetchAdd(1, a.mem.Triplet(0, 8), 0, b.mem.RMRTriplet(1, 8), 0), 4, udat.SubArg4},
		{a.ep.PostFetchAdd(1, outside[0], 0, remote, 0), 2, udat.SubArg3},
		{noReads.ep.PostFetchAdd(1, a.mem.Triplet(0, 8), 0, remote, 0), 4, udat.SubArg5},
		{a.ep.PostFetchAdd(1, a.mem.Triplet(0, 8), 0, remote, flags), 5, udat.SubArg6},
		{a.ep.PostCmpSwap(1, 2, a.mem.Triplet(0, 4), 0, remote, 0), 3, udat.SubArg2},
		{a.ep.PostCmpSwap(1, 2, a.mem.Triplet(0, 8), 0, b.mem.RMRTriplet(1, 8), 0), 5, udat.SubArg4},
		{a.ep.PostCmpSwap(1, 2, outside[0], 0, remote, 0), 3, udat.SubArg3},
		{noReads.ep.PostCmpSwap(1, 2, a.mem.Triplet(0, 8), 0, remote, 0), 5, udat.SubArg5},
		{a.ep.PostCmpSwap(1, 2, a.mem.Triplet(0, 8), 0, remote, flags), 6, udat.SubArg6},
		{one(a.ep.PostBatch([]udat.Op{{Kind: 200}})), 1, udat.SubArg2},
	} {
		want := "argument " + fmt.Sprint(c.arg)
		if c.arg == 0 {
			want = "receiver"
		}
		var e *udat.Error
		if !errors.As(c.err, &e) || e.Subtype != c.sub || e.Type != udat.InvalidParameter ||
			!strings.Contains(e.Error(), " ("+want+"): ") {
			t.Errorf("call %d: %v, want (%s) and %v", i, c.err, want, reflect.ValueOf(c.sub))
		}
	}
	rule.Proves(t, "EVD-CREATE-03", "EVD-CREATE-04")
}

// TestFlagsByName shows that errors name privileges, streams and flags, and print a number only for
// bits that have no name.
func TestFlagsByName(t *testing.T) {
	a, _ := pair(t, "mem0", setup{})
	reader, err := a.ia.CreateLMRFromLMR(a.pz, a.mem, udat.PrivRemoteRead|udat.PrivLocalWrite)
	assert.NilError(t, err)
	err = a.ep.PostSend([]udat.LMRTriplet{reader.Triplet(0, 8)}, 0, 0)
	assert.ErrorContains(t, err, "has privileges REMOTE_READ|LOCAL_WRITE and lacks LOCAL_READ")
	_, err = a.ia.CreateEP(a.pz, a.conn, nil, nil, nil)
	assert.ErrorContains(t, err, "streams EVD_CONNECTION_FLAG")
	err = a.ep.PostRecv(a.iov(0, 8), 0, udat.CompletionSuppress|1<<20)
	assert.ErrorContains(t, err, "flags COMPLETION_SUPPRESS_FLAG|0x100000:")
	assert.Equal(t, udat.PrivAll.String(), "LOCAL_READ|REMOTE_READ|LOCAL_WRITE|REMOTE_WRITE")
	assert.Equal(t, udat.PrivNone.String(), "NONE")
	assert.Equal(t, (udat.EVDEnabled | udat.EVDWaitable | udat.EVDConfigThreshold).String(),
		"EVD_STATE_ENABLED|EVD_STATE_WAITABLE|EVD_STATE_CONFIG_THRESHOLD")
	assert.Equal(t, udat.EventConnectionEstablished.String(), "DAT_CONNECTION_EVENT_ESTABLISHED")
	assert.Equal(t, udat.DTOErrFlushed.String(), "DAT_DTO_ERR_FLUSHED")
	assert.Equal(t, udat.EPConnected.String(), "DAT_EP_STATE_CONNECTED")
}
