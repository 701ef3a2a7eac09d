//go:build linux && cgo && !race

package cverbs

import (
	"bytes"
	"testing"

	"gotest.tools/v3/assert"
)

// TestBeyond4GiB: addresses and offsets beyond the first 4 GiB of a region are not truncated to 32
// bits. Devices other than the loop device pin all of the memory.
func TestBeyond4GiB(t *testing.T) {
	ctx := openDevice(t)
	if ctx.Name() != "loop0" {
		t.Skip("needs a device that pins nothing")
	}
	a, b := newPair(t, ctx)
	const beyond = 1<<32 + 8192
	far := make([]byte, beyond+64<<10)
	mr := closing[*MR](t)(b.pd.RegMR(far, allAccess))
	assert.Equal(t, mr.Len(), len(far))
	at := func(off int) uint64 { return mr.Addr() + uint64(off) }
	for _, off := range []int{1<<32 - 100, beyond} { // one crosses 4 GiB
		fill(a.buf[:200], byte(off))
		a.send(SendWR{Opcode: OpRDMAWrite, RemoteAddr: at(off), RKey: mr.RKey()}, a.sge(0, 200))
		a.sent()
		assert.Assert(t, bytes.Equal(far[off:off+200], a.buf[:200]))
		a.send(SendWR{Opcode: OpRDMARead, RemoteAddr: at(off + 1), RKey: mr.RKey()}, a.sge(1000, 199))
		a.sent()
		assert.Assert(t, bytes.Equal(a.buf[1000:1199], a.buf[1:200]))
		b.recv(1, SGE{Addr: at(off + 300), Length: 100, LKey: mr.LKey()},
			SGE{Addr: at(off + 500), Length: 100, LKey: mr.LKey()})
		a.send(SendWR{Opcode: OpSend}, a.sge(0, 200))
		a.sent()
		b.received()
		assert.Assert(t, bytes.Equal(far[off+300:off+400], a.buf[:100]))
		assert.Assert(t, bytes.Equal(far[off+500:off+600], a.buf[100:200]))
		a.recv(1, a.sge(2000, 200))
		b.send(SendWR{Opcode: OpSend}, SGE{Addr: at(off), Length: 200, LKey: mr.LKey()})
		b.sent()
		a.received()
		assert.Assert(t, bytes.Equal(a.buf[2000:2200], a.buf[:200]))
	}
	assert.Equal(t, len(bytes.Trim(far[:16<<10], "\x00")), 0, "where the offsets would be without their upper half")
	a.send(SendWR{Opcode: OpRDMAWrite, RemoteAddr: at(len(far) - 7), RKey: mr.RKey()}, a.sge(0, 8))
	assert.Equal(t, poll(t, a.scq, 1)[0].Status, WCRemAccessErr, "beyond the end")
}

// TestLargeMessage: a message of 128 MiB arrives whole.
func TestLargeMessage(t *testing.T) {
	ctx := openDevice(t)
	if ctx.Name() != "loop0" {
		t.Skip("takes too long in the virtual machine")
	}
	a, b := newPair(t, ctx)
	const size = 128 << 20
	from, to := make([]byte, size), make([]byte, size)
	for i := 0; i < size; i += 4096 {
		fill(from[i:i+64], byte(i>>12)+byte(i>>20))
	}
	src := closing[*MR](t)(a.pd.RegMR(from, allAccess))
	dst := closing[*MR](t)(b.pd.RegMR(to, allAccess))
	b.recv(1, SGE{Addr: dst.Addr(), Length: 12345, LKey: dst.LKey()},
		SGE{Addr: dst.Addr() + 12345, Length: size - 12345, LKey: dst.LKey()})
	a.send(SendWR{Opcode: OpSend}, SGE{Addr: src.Addr(), Length: size, LKey: src.LKey()})
	a.sent()
	assert.Equal(t, b.received().ByteLen, uint32(size))
	assert.Assert(t, bytes.Equal(from, to))
}
