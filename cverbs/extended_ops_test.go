//go:build linux && cgo

package cverbs

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"gotest.tools/v3/assert"
)

// An extended queue pair binds a window, which gives the peer access to part of the region. The
// peer's send and the owner itself can invalidate the window.
func TestExtendedWindow(t *testing.T) {
	const all = WithBindMW | WithLocalInv | WithSendWithInv | WithRDMAWrite
	ctx, init := openExtended(t), func(i *QPInit) { i.SendOps = all }
	skipWithout(t, ctx, init)
	a, b := newPair(t, ctx, init)
	mw := closing[*MW](t)(orSkip[*MW](t, "ibv_alloc_mw")(b.pd.AllocMW(MWType2)), nil)
	bind := func(seed byte) uint32 {
		t.Helper()
		key, err := b.qp.BindMW(mw, BindWR{ID: 7, Flags: SendSignaled, MR: b.mr, Addr: b.mr.Addr() + 64, Length: 64,
			Access: AccessRemoteWrite})
		assert.NilError(t, err)
		assert.Equal(t, key, mw.RKey())
		wc := b.sent()
		assert.Equal(t, wc.Opcode, WCBindMW)
		assert.Equal(t, wc.ID, uint64(7))
		fill(a.buf[:64], seed)
		a.send(SendWR{Opcode: OpRDMAWrite, RemoteAddr: b.mr.Addr() + 64, RKey: key}, a.sge(0, 64))
		a.sent()
		assert.Assert(t, bytes.Equal(b.buf[64:128], a.buf[:64]))
		return key
	}
	first := bind(1)
	b.recv(1, b.sge(1000, 8))
	a.send(SendWR{Opcode: OpSendWithInv, RKey: first}, a.sge(0, 8))
	a.sent()
	wc := b.received()
	assert.Equal(t, wc.Flags&WCWithInv, WCWithInv)
	assert.Equal(t, wc.Imm, first)
	second := bind(2)
	assert.Assert(t, second != first)
	b.send(SendWR{Opcode: OpLocalInv, RKey: second})
	assert.Equal(t, b.sent().Opcode, WCLocalInv)
	a.send(SendWR{Opcode: OpRDMAWrite, RemoteAddr: b.mr.Addr() + 64, RKey: second}, a.sge(0, 8))
	assert.Equal(t, poll(t, a.scq, 1)[0].Status, WCRemAccessErr)
}

// A queue pair that was created without WithBindMW refuses binds.
func TestExtendedWindowRefused(t *testing.T) {
	a, _ := newPair(t, openExtended(t), func(i *QPInit) { i.SendOps = WithSend })
	mw := closing[*MW](t)(orSkip[*MW](t, "ibv_alloc_mw")(a.pd.AllocMW(MWType2)), nil)
	_, err := a.qp.BindMW(mw, BindWR{MR: a.mr, Addr: a.mr.Addr(), Length: 8})
	assert.ErrorContains(t, err, "BIND_MW is not among the SendOps of the queue pair")
}

// An atomic write replaces 8 bytes.
func TestAtomicWrite(t *testing.T) {
	ctx := openExtended(t)
	init := func(i *QPInit) { i.SendOps = WithAtomicWrite }
	skipWithout(t, ctx, init)
	a, b := newPair(t, ctx, init)
	fill(b.buf[:24], 1)
	want := bytes.Clone(b.buf[:24])
	binary.NativeEndian.PutUint64(want[8:], 0x0102030405060708)
	a.send(SendWR{Opcode: OpAtomicWrite, RemoteAddr: b.mr.Addr() + 8, RKey: b.mr.RKey(), Swap: 0x0102030405060708})
	wc := poll(t, a.scq, 1)[0]
	if wc.Status == WCRemInvReqErr || wc.Status == WCLocQPOpErr {
		t.Skipf("the driver takes atomic writes, the device does not: %v", wc.Status)
	}
	assert.Equal(t, wc.Status, WCSuccess)
	assert.Assert(t, bytes.Equal(b.buf[:24], want))
}

// Some fields of QPInit need an extended queue pair. If the device does not support such a field,
// the error names ibv_create_qp_ex. Bad values are refused without asking the device.
func TestExtendedInit(t *testing.T) {
	e := newEnd(t, openExtended(t))
	assert.Assert(t, (&QPInit{}).more() == nil)
	for name, change := range map[string]func(*QPInit){
		"TSO":   func(i *QPInit) { i.SendOps, i.MaxTSOHeader = WithTSO, 64 },
		"flags": func(i *QPInit) { i.CreateFlags, i.SourceQPN = QPCreateSourceQPN, 1 },
		"raw":   func(i *QPInit) { i.Type, i.CreateFlags = QPTypeRawPacket, QPCreateScatterFCS },
		"XRC":   func(i *QPInit) { i.Type, i.SendOps, i.RecvCQ = QPTypeXRCSend, WithSend, nil },
	} {
		init := QPInit{SendCQ: e.scq, RecvCQ: e.rcq, Cap: defaultCap}
		change(&init)
		q, err := e.pd.CreateQP(init)
		if err == nil {
			assert.NilError(t, q.Close())
			continue
		}
		var v *Error
		assert.Assert(t, errors.As(err, &v), "%s: %v", name, err)
		assert.Equal(t, v.Verb, "ibv_create_qp_ex")
		t.Logf("%s: %v", name, err)
	}
	table := &IndTable{}
	for _, c := range []struct {
		init QPInit
		want string
	}{
		{QPInit{Type: QPTypeXRCRecv}, "XRCD.CreateQP makes it"},
		{QPInit{Type: QPTypeXRCSend}, "SendCQ is nil"},
		{QPInit{SendCQ: e.scq}, "RecvCQ is nil"},
		{QPInit{SendCQ: e.scq, RecvCQ: e.rcq, RSS: &RSS{}}, "Table is nil"},
		{QPInit{RSS: &RSS{Table: table, Key: make([]byte, 256)}}, "Key has 256 bytes, more than 255"},
		{QPInit{RSS: &RSS{Table: table}}, "use of closed object"},
		{QPInit{SendCQ: e.scq, RecvCQ: e.rcq, SRQ: &SRQ{}}, "use of closed object"},
	} {
		_, err := e.pd.CreateQP(c.init)
		assert.ErrorContains(t, err, c.want)
	}
}
