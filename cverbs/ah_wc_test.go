package cverbs

import (
	"net/netip"
	"syscall"
	"testing"

	"gotest.tools/v3/assert"
)

// newUD creates a datagram queue pair that can send and receive.
func newUD(t *testing.T, ctx *Context) *end {
	t.Helper()
	e := newEnd(t, ctx, func(i *QPInit) { i.Type = QPTypeUD })
	assert.NilError(t, e.qp.ToRTR(QPAttr{}))
	assert.NilError(t, e.qp.ToRTS(QPAttr{}))
	return e
}

// TestAHFromWC: an answer reaches the sender of a datagram, over IPv4 and IPv6, both with the
// address handle that is created from the completion and with the path that is returned for it.
func TestAHFromWC(t *testing.T) {
	ctx := openRoCE(t)
	notOnLoop(t, ctx)
	table, err := ctx.GIDTable()
	assert.NilError(t, err)
	tried := map[bool]int{}
	for _, entry := range table {
		if entry.Type != GIDTypeRoCEv2 || entry.Port != 1 {
			continue
		}
		tried[entry.Addr().Is4()]++
		a, b := newUD(t, ctx), newUD(t, ctx)
		there := closing[*AH](t)(a.pd.CreateAH(AHAttr{Port: 1, IsGlobal: true, DGID: entry.GID, SGIDIndex: uint8(entry.Index),
			HopLimit: 7, TrafficClass: 0x20}))
		b.recv(1, b.sge(0, 48))
		a.recv(2, a.sge(0, 48))
		a.recv(3, a.sge(100, 48))
		a.send(SendWR{Opcode: OpSend, AH: there.Handle(), RemoteQPN: b.qp.Num(), RemoteQKey: 0x11111111}, a.sge(200, 8))
		a.sent()
		wc := b.received()
		attr, err := ctx.AHAttrFromWC(1, &wc, b.buf[:wc.ByteLen])
		assert.NilError(t, err)
		assert.Equal(t, attr.DGID, entry.GID, "the sender's")
		assert.Equal(t, attr.SGIDIndex, uint8(entry.Index))
		assert.Equal(t, attr.IsGlobal, true)
		assert.Equal(t, attr.Port, uint8(1))
		assert.Equal(t, attr.TrafficClass, uint8(0x20))

		back := closing[*AH](t)(b.pd.CreateAHFromWC(1, &wc, b.buf[:GRHSize]))
		again := closing[*AH](t)(b.pd.CreateAH(attr))
		for i, ah := range []*AH{back, again} {
			answer := b.sge(1000, 8)
			copy(b.buf[1000:], []string{"answer 1", "answer 2"}[i])
			b.send(SendWR{Opcode: OpSend, AH: ah.Handle(), RemoteQPN: wc.SrcQP, RemoteQKey: 0x11111111}, answer)
			b.sent()
			got := a.received()
			assert.Equal(t, got.SrcQP, b.qp.Num())
			assert.Equal(t, string(a.buf[100*i+GRHSize:][:8]), string(b.buf[1000:1008]))
		}
		isErr(t, b.pd.Close(), ErrInUse)
	}
	assert.Assert(t, tried[true] > 0 && tried[false] > 0, "%v", tried)
}

// TestAHFromWCBadInput: completions of other requests are refused, and so are headers whose
// destination is not an address of the port.
func TestAHFromWCBadInput(t *testing.T) {
	ctx := openRoCE(t)
	notOnLoop(t, ctx)
	pd := closing[*PD](t)(ctx.AllocPD())
	gid, _, err := ctx.BestGID(1)
	assert.NilError(t, err)
	good := make([]byte, GRHSize) // as RoCE v2 writes it with IPv4: the last bytes are the IP header
	ip := gid.GID.Addr().As4()
	good[20] = 0x45
	copy(good[32:], ip[:])
	copy(good[36:], ip[:])
	group := append([]byte(nil), good...)
	copy(group[36:], netip.MustParseAddr("239.1.2.3").AsSlice())
	wc := func(change func(*WC)) *WC {
		w := WC{Opcode: WCRecv, Flags: WCGRH, SrcQP: 17}
		change(&w)
		return &w
	}
	for want, c := range map[string]struct {
		wc   *WC
		grh  []byte
		port uint8
	}{
		"":                               {wc(func(*WC) {}), good, 1},
		"wc is nil":                      {nil, good, 1},
		"a completion with WR_FLUSH_ERR": {wc(func(w *WC) { w.Status = WCWRFlushErr }), good, 1},
		"a completion of SEND, not":      {wc(func(w *WC) { w.Opcode = WCSend }), good, 1},
		"grh has 39 bytes":               {wc(func(*WC) {}), good[:39], 1},
		"grh has 0 bytes":                {wc(func(*WC) {}), nil, 1},
		"address of port 1, not a":       {wc(func(*WC) {}), group, 1},
		"address of port 1":              {wc(func(*WC) {}), make([]byte, GRHSize), 1},
		"address of port 2":              {wc(func(*WC) {}), good, 2},
		"address of port 0":              {wc(func(*WC) {}), good, 0},
	} {
		_, err := ctx.AHAttrFromWC(c.port, c.wc, c.grh)
		ah, err2 := pd.CreateAHFromWC(c.port, c.wc, c.grh)
		for _, err := range []error{err, err2} {
			if want == "" {
				assert.NilError(t, err)
				continue
			}
			assert.ErrorContains(t, err, want)
			isErr(t, err, syscall.EINVAL)
		}
		if want == "" {
			assert.NilError(t, ah.Close())
		}
	}
}
