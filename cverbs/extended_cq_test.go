//go:build linux && cgo

package cverbs

import (
	"errors"
	"fmt"
	"math"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// extendedCQ creates an extended queue. It skips the test if the error says that the device does
// not support extended queues or these fields.
func extendedCQ(t testing.TB, ctx *Context, init CQInit) *CQ {
	t.Helper()
	cq, err := ctx.CreateCQEx(init)
	if errors.Is(err, ErrNotSupported) {
		assert.ErrorContains(t, err, "no extended completion queues, or not with the fields")
		t.Skip(err)
	}
	return closing[*CQ](t)(cq, err)
}

// extendedPair does what newPair does, with extended completion queues.
func extendedPair(t testing.TB, ctx *Context, init CQInit) (a, b *end) {
	t.Helper()
	init.Depth = 512
	extendedCQ(t, ctx, init)
	was := createCQ
	createCQ = func(ctx *Context) (*CQ, error) { return ctx.CreateCQEx(init) }
	defer func() { createCQ = was }()
	return newPair(t, ctx)
}

// pollEx takes n completions, at most size in each poll, and checks that there are no others.
func pollEx(t testing.TB, cq *CQ, n, size int) []WCEx {
	t.Helper()
	var got []WCEx
	buf := make([]WCEx, size)
	for end := soon(); len(got) < n; {
		k, err := cq.PollEx(buf, 100)
		assert.NilError(t, err)
		got = append(got, buf[:k]...)
		if k == 0 {
			assert.Assert(t, time.Now().Before(end), "%d of %d completions: %+v", len(got), n, got)
			time.Sleep(10 * time.Microsecond)
		}
	}
	assert.Equal(t, len(got), n, "%+v", got)
	return got
}

// Tests of ordinary queues pass with extended queues, because Poll and Run also poll extended
// queues.
func TestExtendedCQAsOrdinary(t *testing.T) {
	extendedCQ(t, openDevice(t), CQInit{Depth: 8})
	was := createCQ
	defer func() { createCQ = was }()
	made := 0
	createCQ = func(ctx *Context) (*CQ, error) {
		made++
		return ctx.CreateCQEx(CQInit{Depth: 512})
	}
	for name, test := range map[string]func(*testing.T){
		"Send": TestSend, "WriteImm": TestWriteImm, "WriteAndRead": TestWriteAndRead, "Atomics": TestAtomics,
		"Batch": TestBatch, "UC": TestUC, "UD": TestUD, "Errors": TestErrorCompletion, "Invalidate": TestSendWithInvalidate,
		"Turn": TestTurn, "TurnRefused": TestTurnRefused, "TurnAllocations": TestTurnAllocatesNothing, "MW": TestMW,
	} {
		t.Run(name, test)
	}
	assert.Assert(t, made > 10)
}

// All completions come once, and in order, whatever the size of a poll.
func TestExtendedCQBatches(t *testing.T) {
	a, b := extendedPair(t, openDevice(t), CQInit{})
	const window, rounds = 60, 5
	sends, recvs := make([]SendWR, window), make([]RecvWR, window)
	id := uint64(0)
	for _, size := range []int{1, 2, 7, window, 2 * window} {
		for range rounds {
			first := id
			for i := range window {
				recvs[i].ID = id
				sends[i] = SendWR{ID: id, Opcode: OpSendWithImm, Imm: uint32(id), Flags: SendSignaled}
				id++
			}
			n, err := b.qp.PostRecv(recvs, nil)
			assert.NilError(t, err)
			assert.Equal(t, n, window)
			n, err = a.qp.PostSend(sends, nil)
			assert.NilError(t, err)
			assert.Equal(t, n, window)
			for i, wc := range pollEx(t, a.scq, window, size) {
				assert.Equal(t, wc, WCEx{WC: WC{ID: first + uint64(i), Opcode: WCSend, QPNum: a.qp.Num()}})
			}
			for i, wc := range pollEx(t, b.rcq, window, size) {
				assert.Equal(t, wc.ID, first+uint64(i))
				assert.Equal(t, wc.Imm, uint32(wc.ID))
				assert.Equal(t, wc.Opcode, WCRecv)
				assert.Equal(t, wc.Flags&^WCGRH, WCWithImm) // soft-RoCE reports GRH without a header
			}
			for _, cq := range []*CQ{a.scq, b.rcq} {
				n, err := cq.PollEx(make([]WCEx, 3), 1)
				assert.NilError(t, err)
				assert.Equal(t, n, 0)
			}
		}
	}
	// A failed completion has only the fields of WC that are valid for failures.
	b.recv(77)
	assert.NilError(t, b.qp.ToError())
	wc := pollEx(t, b.rcq, 1, 1)[0]
	assert.Equal(t, wc, WCEx{WC: WC{ID: 77, Status: WCWRFlushErr, QPNum: b.qp.Num(), VendorErr: wc.VendorErr}})
}

// A queue that was created for one field reads only this field.
func TestExtendedCQFields(t *testing.T) {
	ctx := openDevice(t)
	extendedCQ(t, ctx, CQInit{Depth: 1})
	for f := WCFieldByteLen; f <= WCFieldWallClock; f <<= 1 {
		if f&WCFieldsStandard != 0 {
			t.Run(f.String(), func(t *testing.T) { fieldAlone(t, ctx, f) })
			continue
		}
		cq, err := ctx.CreateCQEx(CQInit{Depth: 1, Fields: f})
		if err == nil {
			assert.NilError(t, cq.Close())
			continue
		}
		assert.ErrorIs(t, err, ErrNotSupported)
		assert.ErrorContains(t, err, "not with the fields "+f.String()+" and the flags 0")
	}
}

// Does the same for fields that few devices support.
func TestExtendedCQMoreFields(t *testing.T) {
	ctx := openDevice(t)
	extendedCQ(t, ctx, CQInit{Depth: 1, Fields: wcFieldsKnown &^ WCFieldsStandard})
	for f := WCFieldTimestamp; f <= WCFieldWallClock; f <<= 1 {
		t.Run(f.String(), func(t *testing.T) { fieldAlone(t, ctx, f) })
	}
}

func fieldAlone(t *testing.T, ctx *Context, f WCFields) {
	const id, imm = 0x1122334455667788, 0xabcdef01
	a, b := extendedPair(t, ctx, CQInit{Fields: f})
	b.recv(id, b.sge(0, 100))
	a.send(SendWR{Opcode: OpSendWithImm, Imm: imm}, a.sge(0, 90))
	wc := pollEx(t, b.rcq, 1, 4)[0]
	want := WCEx{WC: WC{ID: id, Opcode: WCRecv, Flags: WCWithImm | wc.Flags&WCGRH}}
	switch f {
	case WCFieldByteLen:
		want.ByteLen = 90
	case WCFieldImm:
		want.Imm = imm
	case WCFieldQPNum:
		want.QPNum = b.qp.Num()
	case WCFieldSrcQP:
		want.SrcQP = wc.SrcQP // only datagrams have it
	case WCFieldTimestamp:
		assert.Assert(t, wc.Timestamp != 0)
		want.Timestamp = wc.Timestamp
	case WCFieldWallClock:
		assert.Assert(t, wc.WallClock != 0)
		want.WallClock = wc.WallClock
	case WCFieldCVLAN:
		want.CVLAN = 0x7788
	case WCFieldFlowTag:
		want.FlowTag = 0x556677
	case WCFieldTM:
		want.TMTag, want.TMPriv = math.MaxUint64-id, 0x11223344
	}
	if ctx.Name() != "loop0" { // only loop0 invents values for these fields
		want.CVLAN, want.FlowTag, want.TMTag, want.TMPriv = wc.CVLAN, wc.FlowTag, wc.TMTag, wc.TMPriv
	}
	assert.Equal(t, wc, want)
}

// If a send has invalidated a key, the completion of its receive contains the key and no immediate
// data.
func TestExtendedCQInvalidate(t *testing.T) {
	a, b := extendedPair(t, openRoCE(t), CQInit{})
	mw, err := b.pd.AllocMW(MWType2)
	if errors.Is(err, ErrNotSupported) {
		t.Skip(err)
	}
	closing[*MW](t)(mw, err)
	key, err := b.qp.BindMW(mw,
		BindWR{Flags: SendSignaled, MR: b.mr, Addr: b.mr.Addr(), Length: 64, Access: AccessRemoteWrite})
	assert.NilError(t, err)
	pollEx(t, b.scq, 1, 1)
	b.recv(1, b.sge(100, 8))
	a.send(SendWR{Opcode: OpSendWithInv, RKey: key}, a.sge(0, 8))
	wc := pollEx(t, b.rcq, 1, 1)[0]
	assert.Equal(t, wc.Flags&(WCWithInv|WCIPCsumOK), WCWithInv)
	assert.Equal(t, wc.Imm, key)
}

// Timestamps increase, and lie between two readings of the device's clock. Wall-clock times lie
// between two readings of the host's clock.
func TestTimestamps(t *testing.T) {
	ctx := openDevice(t)
	a, b := extendedPair(t, ctx, CQInit{Fields: WCFieldsStandard | WCFieldTimestamp | WCFieldWallClock})
	attr, err := ctx.QueryDevice()
	assert.NilError(t, err)
	assert.Assert(t, attr.HCACoreClock > 0)
	assert.Assert(t, attr.TimestampMask > 0)
	clock := func() uint64 {
		t.Helper()
		ticks, err := ctx.Clock()
		assert.NilError(t, err)
		return ticks
	}
	// The device's clock has the rate that it reports.
	start, from := time.Now(), clock()
	time.Sleep(200 * time.Millisecond)
	passed, by := time.Since(start), attr.Elapsed(from, clock())
	assert.Assert(t, by > passed/2 && by < 2*passed, "%v by the device's clock in %v", by, passed)

	last := uint64(0)
	for i := range 20 {
		before, wall := clock(), time.Now()
		b.recv(uint64(i), b.sge(0, 10))
		a.send(SendWR{Opcode: OpSend}, a.sge(0, 10))
		sent, received := pollEx(t, a.scq, 1, 1)[0], pollEx(t, b.rcq, 1, 1)[0]
		after, wallAfter := clock(), time.Now()
		for _, wc := range []WCEx{sent, received} {
			assert.Equal(t, wc.Status, WCSuccess)
			assert.Assert(t, attr.Elapsed(before, wc.Timestamp) <= attr.Elapsed(before, after), "%+v", wc)
			at := time.Unix(0, int64(wc.WallClock))
			assert.Assert(t, !at.Before(wall.Add(-time.Second)) && !at.After(wallAfter.Add(time.Second)), "%v", at)
		}
		assert.Assert(t, received.Timestamp > last)
		last = received.Timestamp
	}
}

// If the device has no clock, Clock returns ErrNotSupported. Elapsed needs no device.
func TestClock(t *testing.T) {
	ctx := openDevice(t)
	if _, err := ctx.Clock(); err != nil {
		assert.ErrorIs(t, err, ErrNotSupported)
		assert.ErrorContains(t, err, "ibv_query_rt_values_ex")
	}
	for _, c := range []struct {
		mask, kHz, from, to uint64
		want                time.Duration
	}{
		{0, 1000, 5, 5, 0},
		{0, 1000, 5, 1005, time.Millisecond},
		{1<<48 - 1, 156250, 1<<48 - 156250, 156250, 2 * time.Millisecond}, // the clock wrapped around
		{math.MaxUint64, 1_000_000, math.MaxUint64 - 1, 3, 5},
		{math.MaxUint64, 1_000_000, 0, math.MaxInt64, math.MaxInt64},
		{math.MaxUint64, 0, 0, 5, 0}, // the device reports no clock rate
		{math.MaxUint64, 1, 0, math.MaxUint64, 0},
	} {
		a := DeviceAttr{TimestampMask: c.mask, HCACoreClock: c.kHz}
		assert.Equal(t, a.Elapsed(c.from, c.to), c.want, "%+v", c)
	}
}

// A queue that the caller serializes loses nothing.
func TestSingleThreadedCQ(t *testing.T) {
	a, b := extendedPair(t, openDevice(t), CQInit{Flags: CQSingleThreaded})
	assert.Assert(t, a.scq.alone.on, "the race detector sees its uses")
	for i := range 500 {
		b.recv(uint64(i), b.sge(0, 8))
		a.send(SendWR{ID: uint64(i), Opcode: OpSend}, a.sge(0, 8))
		assert.Equal(t, pollEx(t, a.scq, 1, 1)[0].ID, uint64(i))
		assert.Equal(t, poll(t, b.rcq, 1)[0].ID, uint64(i)) // through Poll, too
	}
}

// An extended queue causes events on its channel as an ordinary queue does.
func TestExtendedCQChannel(t *testing.T) {
	ctx := openDevice(t)
	ch := closing[*CompChannel](t)(ctx.CreateCompChannel())
	cq := extendedCQ(t, ctx, CQInit{Depth: 64, Channel: ch})
	a, b := newEnd(t, ctx), newEnd(t, ctx, func(i *QPInit) { i.RecvCQ = cq })
	join(t, a, b)
	assert.NilError(t, cq.Arm(false))
	b.recv(1, b.sge(0, 8))
	a.send(SendWR{Opcode: OpSend}, a.sge(0, 8))
	n, err := ch.Wait(soon())
	assert.NilError(t, err)
	assert.Equal(t, n, 1)
	assert.Assert(t, cq.Fired())
	assert.Equal(t, pollEx(t, cq, 1, 2)[0].ID, uint64(1))
	err = cq.Close()
	assert.ErrorIs(t, err, ErrInUse)
}

func TestExtendedCQBadInput(t *testing.T) {
	ctx, other := openDevice(t), openDevice(t)
	pd := closing[*PD](t)(ctx.AllocPD())
	foreign := closing[*CompChannel](t)(other.CreateCompChannel())
	for want, init := range map[string]CQInit{
		"depth 0 is not in 1..2147483647":   {},
		"depth -1 is not in":                {Depth: -1},
		"depth 1099511627776 is not in":     {Depth: 1 << 40},
		"vector -1 is not in 0..":           {Depth: 8, Vector: -1},
		"another device context":            {Depth: 8, Channel: foreign},
		"Fields 0x1000 are unknown":         {Depth: 8, Fields: 1<<12 | WCFieldImm},
		"Flags 0x4 are unknown":             {Depth: 8, Flags: 4 | CQSingleThreaded},
		"Domain is not a parent domain: PD": {Depth: 8, Domain: pd},
	} {
		_, err := ctx.CreateCQEx(init)
		assert.ErrorIs(t, err, syscall.EINVAL)
		assert.ErrorContains(t, err, want)
	}
	cq := closing[*CQ](t)(ctx.CreateCQ(8, nil, 0))
	_, err := cq.PollEx(make([]WCEx, 1), 1)
	assert.ErrorContains(t, err, "not an extended one: CreateCQEx makes one")
	for _, polls := range []int{0, -1, MaxPolls + 1} {
		_, err := cq.PollEx(make([]WCEx, 1), polls)
		assert.ErrorContains(t, err, fmt.Sprintf("polls %d is not in 1..1024", polls))
	}
	n, err := cq.PollEx(nil, 1)
	assert.NilError(t, err)
	assert.Equal(t, n, 0)
	assert.Equal(t, WCFieldsStandard.String(), "BYTE_LEN|IMM|QP_NUM|SRC_QP|SLID|SL|DLID_PATH_BITS")
	assert.Equal(t, (CQSingleThreaded | CQIgnoreOverrun).String(), "SINGLE_THREADED|IGNORE_OVERRUN")

	cq = extendedCQ(t, ctx, CQInit{Depth: 8})
	assert.ErrorContains(t, cq.Arm(false), "no channel")
	assert.NilError(t, cq.Close())
	_, err = cq.PollEx(make([]WCEx, 1), 1)
	assert.Equal(t, err, ErrClosed)
	_, err = cq.PollEx(nil, 1)
	assert.Equal(t, err, ErrClosed)
}

func TestExtendedCQAllocatesNothing(t *testing.T) {
	a, b := extendedPair(t, openDevice(t), CQInit{})
	wrs := []SendWR{{Opcode: OpRDMAWrite, Flags: SendSignaled, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey(), NumSGE: 1}}
	sges := []SGE{a.sge(0, 8)}
	wcs := make([]WCEx, 2)
	write := func() {
		_, err := a.qp.PostSend(wrs, sges)
		assert.NilError(t, err)
		for n := 0; n == 0; {
			n, err = a.scq.PollEx(wcs, 100)
			assert.NilError(t, err)
		}
	}
	write()
	assert.Equal(t, testing.AllocsPerRun(100, write), 0.0)
}
