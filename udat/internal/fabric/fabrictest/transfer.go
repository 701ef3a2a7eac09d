package fabrictest

import (
	"bytes"
	"encoding/binary"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat/internal/fabric"
)

// A batch of messages arrives in order. The messages differ in size and in the number of segments.
func testMessages(t *testing.T, cfg Config) {
	n := newNode(t, cfg, fabric.Options{})
	a, b := n.pair(settings{depth: 16, sges: 3})
	copy(a.mem, bytes.Repeat(pattern(251), memSize/251))
	sizes := []int{0, 1, 8, 100, 1023, 1024, 1025, 4096, 10000, 20000}
	var recvs []fabric.RecvWR
	var rsegs, ssegs []fabric.SGE
	var sends []fabric.SendWR
	at := 0
	for i, size := range sizes {
		into, from := b.split(at, max(size, 1), 2), a.split(0, size, 3)
		recvs = append(recvs, fabric.RecvWR{ID: uint64(i), FirstSGE: uint32(len(rsegs)), NumSGE: uint32(len(into))})
		sends = append(sends,
			fabric.SendWR{ID: uint64(i), Opcode: fabric.OpSend, Flags: fabric.Signaled, FirstSGE: uint32(len(ssegs)),
				NumSGE: uint32(len(from))})
		rsegs, ssegs = append(rsegs, into...), append(ssegs, from...)
		at += size
	}
	k, err := b.qp.PostRecv(recvs, rsegs)
	assert.NilError(t, err)
	assert.Equal(t, k, len(sizes))
	k, err = a.qp.PostSend(sends, ssegs)
	assert.NilError(t, err)
	assert.Equal(t, k, len(sizes))
	clear(ssegs) // the fabric has a copy
	for i, wc := range complete(t, a.scq, len(sizes)) {
		assert.Equal(t, wc.ID, uint64(i))
		assert.Equal(t, wc.Status, fabric.StatusSuccess)
		assert.Equal(t, wc.Opcode, fabric.OpWCSend)
	}
	at = 0
	for i, wc := range complete(t, b.rcq, len(sizes)) {
		assert.Equal(t, wc.ID, uint64(i))
		assert.Equal(t, wc.Status, fabric.StatusSuccess)
		assert.Equal(t, wc.Opcode, fabric.OpWCRecv)
		assert.Equal(t, wc.ByteLen, uint32(sizes[i]))
		assert.Assert(t, bytes.Equal(b.mem[at:at+sizes[i]], a.mem[:sizes[i]]), "message of %d bytes", sizes[i])
		at += sizes[i]
	}
}

// Receives that were posted before the connection existed receive the first messages, in order.
func testEarlyReceives(t *testing.T, cfg Config) {
	n := newNode(t, cfg, fabric.Options{})
	a, b := n.newEnd(settings{}), n.newEnd(settings{})
	for i := range 4 {
		b.recv(uint64(i), i, 1)
	}
	n.join(a, b)
	for i := range 4 {
		a.mem[i] = byte(i + 1)
		a.send(fabric.SendWR{ID: uint64(i), Opcode: fabric.OpSend, Flags: fabric.Signaled}, i, 1)
	}
	for i, wc := range complete(t, b.rcq, 4) {
		assert.Equal(t, wc.ID, uint64(i))
		assert.Equal(t, b.mem[i], byte(i+1))
	}
}

// If a batch has more requests than the queue has room for, those that fit are accepted, and the
// post returns ErrQueueFull.
func testQueueFull(t *testing.T, cfg Config) {
	n := newNode(t, cfg, fabric.Options{})
	e := n.newEnd(settings{depth: 8})
	wrs := make([]fabric.RecvWR, 4096)
	for i := range wrs {
		wrs[i] = fabric.RecvWR{ID: uint64(i), NumSGE: 1}
	}
	k, err := e.qp.PostRecv(wrs, []fabric.SGE{e.seg(0, 8)})
	assert.ErrorIs(t, err, fabric.ErrQueueFull)
	assert.Assert(t, k >= 8 && k < len(wrs), "took %d", k)
}

func testNotConnected(t *testing.T, cfg Config) {
	n := newNode(t, cfg, fabric.Options{})
	e := n.newEnd(settings{})
	k, err := e.qp.PostSend([]fabric.SendWR{{Opcode: fabric.OpSend}}, nil)
	assert.ErrorIs(t, err, fabric.ErrQPState)
	assert.Equal(t, k, 0)
}

func testWrite(t *testing.T, cfg Config) {
	n := newNode(t, cfg, fabric.Options{})
	a, b := n.pair(settings{})
	for _, size := range []int{0, 1, 1500, 30000} {
		copy(a.mem, pattern(size))
		a.send(fabric.SendWR{ID: 1, Opcode: fabric.OpWrite, Flags: fabric.Signaled, RemoteAddr: b.addr(5),
			RKey: b.mr.RKey()}, 0, size)
		assert.Equal(t, awaitOne(t, a.scq, 1, fabric.StatusSuccess).Opcode, fabric.OpWCWrite)
		assert.Assert(t, bytes.Equal(b.mem[5:5+size], pattern(size)))
		assert.Equal(t, b.mem[5+size], byte(0))
		clear(b.mem)
	}
	awaitNone(t, b.rcq)
}

func testRead(t *testing.T, cfg Config) {
	n := newNode(t, cfg, fabric.Options{})
	a, b := n.pair(settings{depth: 32})
	copy(b.mem, pattern(30000))
	// These are more reads than the read depth allows, so some reads wait for others.
	for i := range 20 {
		a.send(fabric.SendWR{ID: uint64(i), Opcode: fabric.OpRead, Flags: fabric.Signaled, RemoteAddr: b.addr(0),
			RKey: b.mr.RKey()}, 1000*i, 30000-1000*i)
	}
	for i, wc := range complete(t, a.scq, 20) {
		assert.Equal(t, wc.ID, uint64(i))
		assert.Equal(t, wc.Status, fabric.StatusSuccess)
		assert.Equal(t, wc.Opcode, fabric.OpWCRead)
	}
	for i := range 20 {
		assert.Equal(t, a.mem[1000*i+500], b.mem[500])
	}
	// A fenced write begins after the read whose data it sends.
	a.send(fabric.SendWR{ID: 1, Opcode: fabric.OpRead, RemoteAddr: b.addr(100), RKey: b.mr.RKey()}, 0, 8)
	a.send(fabric.SendWR{ID: 2, Opcode: fabric.OpWrite, Flags: fabric.Signaled | fabric.Fence, RemoteAddr: b.addr(40000),
		RKey: b.mr.RKey()}, 0, 8)
	awaitOne(t, a.scq, 2, fabric.StatusSuccess)
	assert.Assert(t, bytes.Equal(b.mem[40000:40008], b.mem[100:108]))
}

func testAtomics(t *testing.T, cfg Config) {
	n := newNode(t, cfg, fabric.Options{})
	if !n.dev.Attr().Atomics {
		t.Skip("no atomics")
	}
	a, b := n.pair(settings{})
	word := func(e *end, off int) uint64 { return binary.NativeEndian.Uint64(e.mem[off:]) }
	binary.NativeEndian.PutUint64(b.mem[64:], 5)
	a.send(fabric.SendWR{ID: 1, Opcode: fabric.OpFetchAdd, Flags: fabric.Signaled, RemoteAddr: b.addr(64),
		RKey: b.mr.RKey(), CompareAdd: 7}, 0, 8)
	assert.Equal(t, awaitOne(t, a.scq, 1, fabric.StatusSuccess).Opcode, fabric.OpWCFetchAdd)
	assert.Equal(t, word(a, 0), uint64(5))
	assert.Equal(t, word(b, 64), uint64(12))
	for _, c := range []struct{ compare, after uint64 }{{11, 12}, {12, 99}} {
		a.send(fabric.SendWR{ID: 2, Opcode: fabric.OpCmpSwap, Flags: fabric.Signaled, RemoteAddr: b.addr(64),
			RKey: b.mr.RKey(), CompareAdd: c.compare, Swap: 99}, 0, 8)
		assert.Equal(t, awaitOne(t, a.scq, 2, fabric.StatusSuccess).Opcode, fabric.OpWCCmpSwap)
		assert.Equal(t, word(a, 0), uint64(12))
		assert.Equal(t, word(b, 64), c.after)
	}
}

// Immediate data is the same integer at both ends. A write with immediate data consumes a receive
// of the target.
func testImmediate(t *testing.T, cfg Config) {
	n := newNode(t, cfg, fabric.Options{})
	if !n.dev.Attr().WriteImmediate {
		t.Skip("no immediate data")
	}
	a, b := n.pair(settings{})
	b.recv(1, 0, 100)
	a.send(fabric.SendWR{ID: 1, Opcode: fabric.OpSendImm, Flags: fabric.Signaled, Imm: 0x01020304}, 0, 10)
	wc := awaitOne(t, b.rcq, 1, fabric.StatusSuccess)
	assert.Equal(t, wc.Imm, uint32(0x01020304))
	assert.Equal(t, wc.Opcode, fabric.OpWCRecv)
	assert.Assert(t, wc.Flags&fabric.WCWithImm != 0)
	awaitOne(t, a.scq, 1, fabric.StatusSuccess)

	copy(a.mem, pattern(10))
	b.recv(2, 0, 0)
	a.send(fabric.SendWR{ID: 2, Opcode: fabric.OpWriteImm, Flags: fabric.Signaled, Imm: 77, RemoteAddr: b.addr(500),
		RKey: b.mr.RKey()}, 0, 10)
	wc = awaitOne(t, b.rcq, 2, fabric.StatusSuccess)
	assert.Equal(t, wc.Imm, uint32(77))
	assert.Equal(t, wc.Opcode, fabric.OpWCRecvWithImm)
	assert.Assert(t, bytes.Equal(b.mem[500:510], pattern(10)))
	assert.Equal(t, awaitOne(t, a.scq, 2, fabric.StatusSuccess).Opcode, fabric.OpWCWrite)
}

// An inline send copies its data at once and ignores the key.
func testInline(t *testing.T, cfg Config) {
	n := newNode(t, cfg, fabric.Options{})
	a, b := n.pair(settings{inline: 16})
	if a.qp.MaxInline() < 16 {
		t.Skipf("inline up to %d", a.qp.MaxInline())
	}
	copy(a.mem, pattern(16))
	b.recv(1, 0, 16)
	seg := a.seg(0, 16)
	seg.LKey = 0
	_, err := a.qp.PostSend([]fabric.SendWR{{ID: 1, Opcode: fabric.OpSend, Flags: fabric.Inline | fabric.Signaled,
		NumSGE: 1}}, []fabric.SGE{seg})
	assert.NilError(t, err)
	clear(a.mem)
	awaitOne(t, a.scq, 1, fabric.StatusSuccess)
	awaitOne(t, b.rcq, 1, fabric.StatusSuccess)
	assert.Assert(t, bytes.Equal(b.mem[:16], pattern(16)))
}

// An operation that the target's region does not allow fails, and moves the queue pair to the error
// state.
func testRemoteAccess(t *testing.T, cfg Config) {
	n := newNode(t, cfg, fabric.Options{})
	if n.iwarp() {
		t.Skip("iWARP tells the initiator nothing")
	}
	for _, c := range []struct {
		name   string
		access fabric.Access
		op     fabric.Opcode
		off, n int
	}{
		{"write without right", fabric.LocalWrite | fabric.RemoteRead, fabric.OpWrite, 0, 8},
		{"read without right", fabric.RemoteWrite, fabric.OpRead, 0, 8},
		{"write over the end", fabric.RemoteWrite, fabric.OpWrite, 4090, 8},
		{"read over the end", fabric.RemoteRead, fabric.OpRead, 4090, 8},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := &node{t: t, dev: n.dev, pd: n.pd, async: n.async}
			a, b := n.pair(settings{})
			mem := make([]byte, 4096)
			mr := n.register(mem, c.access)
			addr := (&end{mem: mem}).addr(0) + uint64(c.off)
			a.send(fabric.SendWR{ID: 1, Opcode: c.op, Flags: fabric.Signaled, RemoteAddr: addr, RKey: mr.RKey()}, 0, c.n)
			awaitOne(t, a.scq, 1, fabric.StatusRemoteAccess)
			assert.NilError(t, a.qp.SetError())
			a.recv(0, 0, 8)
			flushed(t, a.rcq, 1)
			assert.Assert(t, bytes.Equal(mem, make([]byte, len(mem))))
			_ = b
		})
	}
}

// A message that is longer than its receive fails at both ends.
func testTooLong(t *testing.T, cfg Config) {
	n := newNode(t, cfg, fabric.Options{})
	if n.iwarp() {
		t.Skip("iWARP tells the sender nothing")
	}
	a, b := n.pair(settings{})
	b.recv(1, 0, 8)
	a.send(fabric.SendWR{ID: 1, Opcode: fabric.OpSend, Flags: fabric.Signaled}, 0, 9)
	for _, wc := range []fabric.WC{complete(t, b.rcq, 1)[0], complete(t, a.scq, 1)[0]} {
		assert.Equal(t, wc.ID, uint64(1))
		assert.Assert(t, wc.Status != fabric.StatusSuccess && wc.Status != fabric.StatusFlush, "status %v", wc.Status)
	}
}

// A send waits if there is no receive for it. It waits for ever, or for as many retries as the
// device's options say.
func testReceiverNotReady(t *testing.T, cfg Config) {
	t.Run("for ever", func(t *testing.T) {
		n := newNode(t, cfg, fabric.Options{})
		if !n.dev.Attr().PeerToPeer {
			t.Skip("iWARP ends the connection")
		}
		a, b := n.pair(settings{})
		a.send(fabric.SendWR{ID: 1, Opcode: fabric.OpSend, Flags: fabric.Signaled}, 0, 8)
		awaitNone(t, a.scq)
		b.recv(1, 0, 8)
		awaitOne(t, a.scq, 1, fabric.StatusSuccess)
	})
	t.Run("with a limit", func(t *testing.T) {
		n := newNode(t, cfg, fabric.Options{RNRRetry: 3, Retry: fabric.DefaultRetry})
		if !n.dev.Attr().EnforcesRNR {
			t.Skip("the device does not enforce it")
		}
		for _, swap := range []bool{false, true} {
			a, b := n.pair(settings{})
			if swap {
				a, b = b, a
			}
			a.send(fabric.SendWR{ID: 1, Opcode: fabric.OpSend, Flags: fabric.Signaled}, 0, 8)
			awaitOne(t, a.scq, 1, fabric.StatusRNRExceeded)
			_ = b
		}
	})
}

// A window gives access to part of a region, until the window is bound again or unbound.
func testWindow(t *testing.T, cfg Config) {
	n := newNode(t, cfg, fabric.Options{})
	if n.dev.Attr().MaxMW == 0 {
		_, err := n.pd.AllocMW()
		assert.ErrorIs(t, err, fabric.ErrNotSupported)
		t.Skip("no memory windows")
	}
	attempt := func(name string, want fabric.Status, try func(a, b *end, mw fabric.MW) (key uint32, off int)) {
		t.Run(name, func(t *testing.T) {
			n := &node{t: t, dev: n.dev, pd: n.pd, async: n.async}
			a, b := n.pair(settings{})
			mw, err := n.pd.AllocMW()
			assert.NilError(t, err)
			n.cleanup(mw)
			assert.Equal(t, mw.RKey(), uint32(0))
			key, off := try(a, b, mw)
			a.send(fabric.SendWR{ID: 1, Opcode: fabric.OpWrite, Flags: fabric.Signaled, RemoteAddr: b.addr(off), RKey: key}, 0,
				8)
			awaitOne(t, a.scq, 1, want)
			b.qp.Close() // must be closed before the window
		})
	}
	bind := func(b *end, mw fabric.MW, access fabric.Access, length int) uint32 {
		b.t.Helper()
		key, err := b.qp.Bind(mw,
			fabric.BindWR{ID: 9, Flags: fabric.Signaled, MR: b.mr, Addr: b.addr(1000), Length: uint64(length), Access: access})
		assert.NilError(b.t, err)
		assert.Equal(b.t, mw.RKey(), key)
		assert.Equal(b.t, awaitOne(b.t, b.scq, 9, fabric.StatusSuccess).Opcode, fabric.OpWCBind)
		return key
	}
	attempt("inside", fabric.StatusSuccess, func(a, b *end, mw fabric.MW) (uint32, int) {
		return bind(b, mw, fabric.RemoteWrite, 100), 1000
	})
	attempt("without right", fabric.StatusRemoteAccess, func(a, b *end, mw fabric.MW) (uint32, int) {
		return bind(b, mw, fabric.RemoteRead, 100), 1000
	})
	attempt("old key", fabric.StatusRemoteAccess, func(a, b *end, mw fabric.MW) (uint32, int) {
		old := bind(b, mw, fabric.RemoteWrite, 100)
		assert.Assert(t, bind(b, mw, fabric.RemoteWrite, 100) != old)
		return old, 1000
	})
	attempt("unbound", fabric.StatusRemoteAccess, func(a, b *end, mw fabric.MW) (uint32, int) {
		key := bind(b, mw, fabric.RemoteWrite, 100)
		bind(b, mw, 0, 0)
		return key, 1000
	})
	attempt("unbound without region", fabric.StatusRemoteAccess, func(a, b *end, mw fabric.MW) (uint32, int) {
		unbind := func() {
			t.Helper()
			_, err := b.qp.Bind(mw, fabric.BindWR{ID: 9, Flags: fabric.Signaled})
			assert.NilError(t, err)
			awaitOne(t, b.scq, 9, fabric.StatusSuccess)
		}
		unbind() // the window was never bound
		region, err := n.pd.RegMR(b.mem, fabric.LocalWrite|fabric.WindowBind)
		assert.NilError(t, err)
		key, err := b.qp.Bind(mw,
			fabric.BindWR{ID: 8, Flags: fabric.Signaled, MR: region, Addr: b.addr(1000), Length: 100,
				Access: fabric.RemoteWrite})
		assert.NilError(t, err)
		awaitOne(t, b.scq, 8, fabric.StatusSuccess)
		unbind()
		assert.NilError(t, region.Close())
		unbind() // the region of the window is closed
		return key, 1000
	})
	if n.dev.Attr().ExactBounds {
		attempt("outside", fabric.StatusRemoteAccess, func(a, b *end, mw fabric.MW) (uint32, int) {
			return bind(b, mw, fabric.RemoteWrite, 100), 1093
		})
	}
}

// A peer that uses a window can invalidate it with a send.
func testWindowInvalidate(t *testing.T, cfg Config) {
	n := newNode(t, cfg, fabric.Options{})
	if at := n.dev.Attr(); at.MaxMW == 0 || !at.MWType2 || !at.SendInvalidate {
		t.Skip("no windows of type 2 with send and invalidate")
	}
	a, b := n.pair(settings{})
	mw, err := n.pd.AllocMW()
	assert.NilError(t, err)
	defer mw.Close()
	key, err := b.qp.Bind(mw,
		fabric.BindWR{ID: 1, Flags: fabric.Signaled, MR: b.mr, Addr: b.addr(0), Length: 100, Access: fabric.RemoteWrite})
	assert.NilError(t, err)
	awaitOne(t, b.scq, 1, fabric.StatusSuccess)
	b.recv(2, 0, 8)
	a.send(fabric.SendWR{ID: 3, Opcode: fabric.OpSendInv, Flags: fabric.Signaled, RKey: key}, 0, 8)
	awaitOne(t, a.scq, 3, fabric.StatusSuccess)
	wc := awaitOne(t, b.rcq, 2, fabric.StatusSuccess)
	assert.Assert(t, wc.Flags&fabric.WCWithInv != 0)
	assert.Equal(t, wc.Imm, key)
	a.send(fabric.SendWR{ID: 4, Opcode: fabric.OpWrite, Flags: fabric.Signaled, RemoteAddr: b.addr(0), RKey: key}, 0, 8)
	awaitOne(t, a.scq, 4, fabric.StatusRemoteAccess)
	b.qp.Close()
}

func (n *node) newSRQ(depth int) fabric.SRQ {
	n.t.Helper()
	if n.dev.Attr().MaxSRQ == 0 {
		n.t.Skip("no shared receive queues")
	}
	s, err := n.pd.CreateSRQ(depth, 1)
	assert.NilError(n.t, err)
	n.cleanup(s)
	return s
}

func (e *end) shared(s fabric.SRQ, id uint64, off, n int) {
	e.t.Helper()
	k, err := s.PostRecv([]fabric.RecvWR{{ID: id, NumSGE: 1}}, []fabric.SGE{e.seg(off, n)})
	assert.NilError(e.t, err)
	assert.Equal(e.t, k, 1)
}

// Two queue pairs take their receives from one shared receive queue.
func testSharedReceive(t *testing.T, cfg Config) {
	n := newNode(t, cfg, fabric.Options{})
	s := n.newSRQ(8)
	assert.Assert(t, s.Depth() >= 8)
	a1, b1 := n.newEnd(settings{}), n.newEnd(settings{srq: s})
	a2, b2 := n.newEnd(settings{}), n.newEnd(settings{srq: s})
	n.join(a1, b1)
	n.join(a2, b2)
	for i := range 4 {
		b1.shared(s, uint64(i), 100*i, 100)
	}
	if n.dev.Attr().SRQExactCounts {
		assert.Equal(t, s.Available(), 4)
	} else {
		assert.Equal(t, s.Available(), -1)
	}
	for i, p := range [][2]*end{{a1, b1}, {a2, b2}, {a1, b1}, {a2, b2}} {
		p[0].mem[0] = byte(i + 1)
		p[0].send(fabric.SendWR{ID: 1, Opcode: fabric.OpSend, Flags: fabric.Signaled}, 0, 1)
		awaitOne(t, p[0].scq, 1, fabric.StatusSuccess)
		wc := awaitOne(t, p[1].rcq, uint64(i), fabric.StatusSuccess)
		assert.Equal(t, wc.QPNum, p[1].qp.Num())
		assert.Equal(t, b1.mem[100*i], byte(i+1))
	}
	assert.ErrorIs(t, s.Close(), fabric.ErrInUse)
	wrs := make([]fabric.RecvWR, 4096)
	for i := range wrs {
		wrs[i].NumSGE = 1
	}
	k, err := s.PostRecv(wrs, []fabric.SGE{b1.seg(0, 8)})
	assert.ErrorIs(t, err, fabric.ErrQueueFull)
	assert.Assert(t, k >= 8 && k < len(wrs), "took %d", k)
}

// The event AsyncSRQLimit is raised once, when too few receives are left. The queue keeps its
// receives when it grows.
func testSharedReceiveLimit(t *testing.T, cfg Config) {
	n := newNode(t, cfg, fabric.Options{})
	s := n.newSRQ(8)
	a, b := n.newEnd(settings{}), n.newEnd(settings{srq: s})
	n.join(a, b)
	for i := range 5 {
		b.shared(s, uint64(i), 100*i, 100)
	}
	if n.dev.Attr().SRQResize {
		assert.NilError(t, s.Resize(100))
		assert.Assert(t, s.Depth() >= 100)
	}
	assert.NilError(t, s.SetLimit(4))
	for i := range 4 {
		a.send(fabric.SendWR{ID: 1, Opcode: fabric.OpSend, Flags: fabric.Signaled}, 0, 1)
		awaitOne(t, a.scq, 1, fabric.StatusSuccess)
		awaitOne(t, b.rcq, uint64(i), fabric.StatusSuccess)
		if i == 0 && len(n.async) > 0 {
			t.Fatal("the limit fired with as many receives as it says")
		}
	}
	ev := n.asyncEvent(fabric.AsyncSRQLimit)
	assert.Equal(t, ev.SRQ, s)
	assert.Equal(t, len(n.async), 0)
	assert.NilError(t, s.SetLimit(0))
	assert.ErrorIs(t, s.SetLimit(-1), fabric.ErrInvalid)
}
