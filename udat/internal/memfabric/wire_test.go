package memfabric

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/softnic/nicfault"
)

// region registers more memory of the end, in the domain dom.
func (e *end) region(dom fabric.PD, n int, access fabric.Access) (fabric.MR, fabric.SGE) {
	e.t.Helper()
	buf := make([]byte, n)
	m, err := dom.RegMR(buf, access)
	assert.NilError(e.t, err)
	closeAfter(e.t, m)
	return m, fabric.SGE{Addr: addrOf(buf), Length: uint32(n), LKey: m.LKey()}
}

func (e *end) domain() fabric.PD {
	e.t.Helper()
	p, err := e.dev.AllocPD()
	assert.NilError(e.t, err)
	closeAfter(e.t, p)
	return p
}

func TestMemoryIsProtected(t *testing.T) {
	type env struct{ a, b *end }
	sub := func(s fabric.SGE, off int) fabric.SGE { s.Addr += uint64(off); return s }
	key := func(s fabric.SGE, k uint32) fabric.SGE { s.LKey = k; return s }
	write := func(at func(env) fabric.SGE) func(env) {
		return func(e env) { e.a.remote(1, fabric.OpWrite, at(e), e.a.at(0, 8)) }
	}
	read := func(at func(env) fabric.SGE) func(env) {
		return func(e env) { e.a.remote(1, fabric.OpRead, at(e), e.a.at(0, 8)) }
	}
	with := func(access fabric.Access) func(env) fabric.SGE {
		return func(e env) fabric.SGE { _, s := e.b.region(e.b.pd, 64, access); return s }
	}
	for _, c := range []struct {
		name string
		do   func(env)
		want fabric.Status
	}{
		{"write", write(func(e env) fabric.SGE { return e.b.at(0, 0) }), fabric.StatusSuccess},
		{"write to the end", write(func(e env) fabric.SGE { return e.b.at(4088, 0) }), fabric.StatusSuccess},
		{"write beyond the end", write(func(e env) fabric.SGE { return e.b.at(4089, 0) }), fabric.StatusRemoteAccess},
		{"write before the start", write(func(e env) fabric.SGE { return sub(e.b.at(0, 0), -1) }), fabric.StatusRemoteAccess},
		{"write at the top of the address space", write(func(e env) fabric.SGE {
			return fabric.SGE{Addr: 1<<64 - 4, LKey: e.b.mr.RKey()}
		}), fabric.StatusRemoteAccess},
		{"write without the right", write(with(fabric.LocalWrite | fabric.RemoteRead)), fabric.StatusRemoteAccess},
		{"read without the right", read(with(fabric.RemoteWrite)), fabric.StatusRemoteAccess},
		{"read with the right", read(with(fabric.RemoteRead)), fabric.StatusSuccess},
		{"remote write implies no remote read", read(with(fabric.RemoteWrite)), fabric.StatusRemoteAccess},
		{"unknown key", write(func(e env) fabric.SGE { return key(e.b.at(0, 0), e.b.mr.RKey()+1) }),
			fabric.StatusRemoteAccess},
		{"deregistered", write(func(e env) fabric.SGE {
			m, s := e.b.region(e.b.pd, 64, allAccess)
			assert.NilError(t, m.Close())
			return s
		}), fabric.StatusRemoteAccess},
		{"foreign domain at the target", write(func(e env) fabric.SGE {
			_, s := e.b.region(e.b.domain(), 64, allAccess)
			return s
		}), fabric.StatusRemoteAccess},
		{"unknown local key", func(e env) {
			e.a.remote(1, fabric.OpWrite, e.b.at(0, 0), key(e.a.at(0, 8), 1))
		}, fabric.StatusLocalProt},
		{"local segment beyond the end", func(e env) {
			e.a.remote(1, fabric.OpWrite, e.b.at(0, 0), e.a.at(4090, 8))
		}, fabric.StatusLocalProt},
		{"foreign local domain", func(e env) {
			_, s := e.a.region(e.a.domain(), 8, allAccess)
			e.a.remote(1, fabric.OpWrite, e.b.at(0, 0), s)
		}, fabric.StatusLocalProt},
		{"sink without local write", func(e env) {
			_, s := e.a.region(e.a.pd, 8, fabric.RemoteRead)
			e.a.remote(1, fabric.OpRead, e.b.at(0, 0), s)
		}, fabric.StatusLocalProt},
		{"remote write implies local write", func(e env) {
			_, s := e.a.region(e.a.pd, 8, fabric.RemoteWrite)
			e.a.remote(1, fabric.OpRead, e.b.at(0, 0), s)
		}, fabric.StatusSuccess},
		{"source without local write", func(e env) {
			_, s := e.a.region(e.a.pd, 8, 0)
			e.a.remote(1, fabric.OpWrite, e.b.at(0, 0), s)
		}, fabric.StatusSuccess},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				a, b := pair(t, endOptions{})
				fill(a.mem, 1)
				a.recv(5)
				b.recv(6)
				c.do(env{a, b})
				a.completion(1, c.want)
				switch c.want {
				case fabric.StatusSuccess:
					a.quiet()
					b.quiet()
				case fabric.StatusLocalProt: // the other end has seen nothing
					a.completion(5, fabric.StatusFlush)
					b.quiet()
				default: // both ends are broken
					a.completion(5, fabric.StatusFlush)
					b.completion(6, fabric.StatusFlush)
					assert.Equal(t, b.wantsAsync(fabric.AsyncQPFatal).QP, b.qp)
					assert.Assert(t, bytes.Equal(b.mem, make([]byte, len(b.mem))), "nothing was written")
				}
			})
		})
	}
}

func TestMessageLongerThanTheReceive(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := pair(t, endOptions{})
		fill(a.mem, 1)
		b.recv(1, b.at(0, 8), b.at(16, 8))
		b.recv(2, b.at(100, 100))
		a.send(3, a.at(0, 17))
		a.send(4, a.at(0, 1))
		b.completion(1, fabric.StatusLocalLength)
		b.completion(2, fabric.StatusFlush)
		a.completion(3, fabric.StatusRemoteInvReq)
		a.completion(4, fabric.StatusFlush)
		a.quiet()
		b.quiet()
	})
}

func TestReceiveIntoForbiddenMemory(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := pair(t, endOptions{})
		_, s := b.region(b.pd, 64, fabric.RemoteRead)
		b.recv(1, s)
		a.send(2, a.at(0, 8))
		b.completion(1, fabric.StatusLocalProt)
		a.completion(2, fabric.StatusRemoteOp)
	})
}

func TestFlushIsInPostingOrderAndGoesOn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := pair(t, endOptions{})
		a.recv(1)
		a.recv(2)
		a.send(11) // waits for a receive
		a.post(fabric.SendWR{ID: 12, Opcode: fabric.OpSend})
		a.send(13)
		assert.NilError(t, a.qp.SetError())
		var recvs, sends []uint64
		take := func(n int) {
			for _, wc := range a.completions(n) {
				assert.Equal(t, wc.Status, fabric.StatusFlush)
				if wc.ID < 10 {
					recvs = append(recvs, wc.ID)
				} else {
					sends = append(sends, wc.ID)
				}
			}
		}
		take(5)
		for i := range uint64(3) {
			a.recv(3 + i)
			a.send(14 + i)
		}
		take(6)
		assert.DeepEqual(t, recvs, []uint64{1, 2, 3, 4, 5})
		assert.DeepEqual(t, sends, []uint64{11, 12, 13, 14, 15, 16})
		b.quiet()
		assert.NilError(t, a.qp.SetError())
	})
}

func TestReceivesAreFlushedBeforeAnyConnection(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newEnd(t, New(), endOptions{})
		a.recv(1)
		assert.NilError(t, a.qp.SetError())
		a.completion(1, fabric.StatusFlush)
		a.recv(2)
		a.completion(2, fabric.StatusFlush)
		a.send(3)
		a.completion(3, fabric.StatusFlush)
	})
}

func TestReceiverNotReady(t *testing.T) {
	for _, retries := range []uint8{0, 3, 6} {
		bubble(t, func(t *testing.T) {
			a, b := pair(t, endOptions{Options: fabric.Options{RNRRetry: retries, Retry: 1}})
			start := time.Now()
			a.send(1, a.at(0, 8))
			a.completion(1, fabric.StatusRNRExceeded)
			assert.Equal(t, time.Since(start), time.Duration(retries)*rnrTimer)
			b.recv(2)
			b.quiet() // only the sender is broken
		})
	}
}

func TestReceivePostedInTime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := pair(t, endOptions{Options: fabric.Options{RNRRetry: 1}})
		a.send(1, a.at(0, 8))
		time.Sleep(rnrTimer / 2)
		a.send(2, a.at(0, 8)) // another post uses no retry
		b.recv(3, b.at(0, 8))
		a.completion(1, fabric.StatusSuccess)
		a.completion(2, fabric.StatusRNRExceeded)
	})
}

// TestRetriesAreOfOneMessage: each message has its own retries, both for a missing receive and for
// a missing answer.
func TestRetriesAreOfOneMessage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := pair(t, endOptions{Options: fabric.Options{RNRRetry: 3, Retry: 3}})
		for id := range uint64(8) {
			a.send(id)
			time.Sleep(2*rnrTimer + rnrTimer/2)
			b.recv(id)
			a.completion(id, fabric.StatusSuccess)
			b.completion(id, fabric.StatusSuccess)
		}
		for id := range uint64(8) {
			nicfault.Of(b.dev).Kill()
			b.recv(id)
			a.send(id)
			time.Sleep(2*ackTimeout + ackTimeout/2)
			nicfault.Of(b.dev).Revive()
			a.completion(id, fabric.StatusSuccess)
			b.completion(id, fabric.StatusSuccess)
		}
		// The retries for the two causes are counted separately too.
		a.send(1)
		time.Sleep(2*rnrTimer + rnrTimer/2)
		nicfault.Of(b.dev).Kill()
		b.recv(1)
		time.Sleep(2*ackTimeout + ackTimeout/2)
		nicfault.Of(b.dev).Revive()
		a.completion(1, fabric.StatusSuccess)
		b.completion(1, fabric.StatusSuccess)
	})
}

func TestReceiverNotReadyForEver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := pair(t, endOptions{Options: fabric.Options{RNRRetry: 7, Retry: 2}})
		a.send(1)
		time.Sleep(time.Hour)
		a.quiet()
		b.recv(2)
		a.completion(1, fabric.StatusSuccess)
		b.completion(2, fabric.StatusSuccess)
		// A receiver that goes away meanwhile ends the wait.
		a.send(3)
		time.Sleep(time.Hour)
		assert.NilError(t, b.qp.SetError())
		start := time.Now()
		a.completion(3, fabric.StatusRetryExceeded)
		assert.Equal(t, time.Since(start), 3*ackTimeout)
	})
}

func TestImmediateAndInvalidateReachTheReceiver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := pair(t, endOptions{})
		fill(a.mem, 1)
		b.recv(1, b.at(0, 16))
		b.recv(2, b.at(16, 16))
		a.post(fabric.SendWR{ID: 3, Opcode: fabric.OpSendImm, Imm: 0x01020304}, a.at(0, 4))
		wc := b.completion(1, fabric.StatusSuccess)
		assert.Equal(t, wc.Flags, fabric.WCWithImm)
		assert.Equal(t, wc.Imm, uint32(0x01020304))
		assert.Equal(t, wc.Opcode, fabric.OpWCRecv)
		// A write with immediate consumes a receive, whose memory it does not touch.
		write := fabric.SendWR{
			ID: 4, Opcode: fabric.OpWriteImm, Flags: fabric.Signaled, Imm: 9,
			RemoteAddr: b.at(1000, 0).Addr, RKey: b.mr.RKey(),
		}
		a.post(write, a.at(0, 100))
		wc = b.completion(2, fabric.StatusSuccess)
		assert.Equal(t, wc.Opcode, fabric.OpWCRecvWithImm)
		assert.Equal(t, wc.Flags, fabric.WCWithImm)
		assert.Equal(t, [2]uint32{wc.Imm, wc.ByteLen}, [2]uint32{9, 100})
		assert.Assert(t, bytes.Equal(b.mem[1000:1100], a.mem[:100]))
		assert.Assert(t, bytes.Equal(b.mem[16:32], make([]byte, 16)))
		a.completion(4, fabric.StatusSuccess)
		// Without a receive it waits, and has written nothing yet.
		write.RemoteAddr += 1000
		a.post(write, a.at(0, 100))
		a.quiet()
		assert.Assert(t, bytes.Equal(b.mem[2000:2100], make([]byte, 100)))
		b.recv(5)
		a.completion(4, fabric.StatusSuccess)
		b.completion(5, fabric.StatusSuccess)
	})
}

func TestInlineIsTakenAtThePost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := pair(t, endOptions{})
		buf := []byte("unregistered memory")
		sges := []fabric.SGE{
			{Addr: addrOf(buf), Length: 12}, {Addr: addrOf(buf) + 12, Length: 7},
		}
		a.post(fabric.SendWR{ID: 1, Opcode: fabric.OpSend, Flags: fabric.Inline}, sges...)
		a.post(fabric.SendWR{
			ID: 2, Opcode: fabric.OpWrite, Flags: fabric.Inline, RemoteAddr: b.at(100, 0).Addr, RKey: b.mr.RKey(),
		}, sges...)
		clear(buf)
		b.recv(3, b.at(0, 64))
		b.completion(3, fabric.StatusSuccess)
		b.quiet()
		assert.Equal(t, string(b.mem[:19]), "unregistered memory")
		assert.Equal(t, string(b.mem[100:119]), "unregistered memory")
	})
}

func TestAtomics(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := pair(t, endOptions{})
		word := func() uint64 { return binary.NativeEndian.Uint64(b.mem[16:]) }
		found := func() uint64 { return binary.NativeEndian.Uint64(a.mem) }
		do := func(op fabric.Opcode, compareAdd, swap uint64) fabric.WC {
			a.post(fabric.SendWR{
				ID: 1, Opcode: op, Flags: fabric.Signaled, RemoteAddr: b.at(16, 0).Addr, RKey: b.mr.RKey(),
				CompareAdd: compareAdd, Swap: swap,
			}, a.at(0, 3), a.at(3, 5))
			return a.completion(1, fabric.StatusSuccess)
		}
		binary.NativeEndian.PutUint64(b.mem[16:], 40)
		assert.Equal(t, do(fabric.OpFetchAdd, 2, 0).Opcode, fabric.OpWCFetchAdd)
		assert.Equal(t, [2]uint64{found(), word()}, [2]uint64{40, 42})
		assert.Equal(t, do(fabric.OpCmpSwap, 41, 7).Opcode, fabric.OpWCCmpSwap)
		assert.Equal(t, [2]uint64{found(), word()}, [2]uint64{42, 42}, "not equal: not swapped")
		do(fabric.OpCmpSwap, 42, 7)
		assert.Equal(t, [2]uint64{found(), word()}, [2]uint64{42, 7})
		do(fabric.OpFetchAdd, 1<<64-8, 0)
		assert.Equal(t, word(), uint64(1<<64-1), "wraps")
	})
}

// TestAtomicIsOneStep: an atomic of one device reads the result of an atomic of another device,
// even if both come at the same time.
func TestAtomicIsOneStep(t *testing.T) {
	f := New()
	a, b := newEnd(t, f, endOptions{}), newEnd(t, f, endOptions{})
	join(t, a, b)
	for _, op := range []fabric.Opcode{fabric.OpFetchAdd, fabric.OpCmpSwap} {
		store(b.mem, 1)
		f.Atomics.Lock() // by an atomic under way
		a.post(fabric.SendWR{ID: 1, Opcode: op, Flags: fabric.Signaled, RemoteAddr: b.at(0, 0).Addr, RKey: b.mr.RKey(),
			CompareAdd: 2, Swap: 4}, a.at(0, 8))
		time.Sleep(20 * time.Millisecond)
		store(b.mem, 2)
		f.Atomics.Unlock()
		a.completion(1, fabric.StatusSuccess)
		assert.Equal(t, load(a.mem), uint64(2))
		assert.Equal(t, load(b.mem), uint64(4))
	}
}

func TestAtomicsRefused(t *testing.T) {
	for _, c := range []struct {
		name  string
		off   int
		local int
		want  fabric.Status
	}{
		{"unaligned", 4, 8, fabric.StatusRemoteInvReq},
		{"half at the end", 4096, 8, fabric.StatusRemoteAccess},
		{"short sink", 0, 4, fabric.StatusRemoteInvReq},
	} {
		bubble(t, func(t *testing.T) {
			a, b := pair(t, endOptions{})
			_, s := b.region(b.pd, 4100, fabric.RemoteAtomic)
			s.Addr += uint64(c.off)
			a.remote(1, fabric.OpFetchAdd, s, a.at(0, c.local))
			a.completion(1, c.want)
			b.wantsAsync(fabric.AsyncQPFatal)
		})
	}
	bubble(t, func(t *testing.T) {
		a, b := pair(t, endOptions{})
		_, s := b.region(b.pd, 8, fabric.RemoteWrite|fabric.RemoteRead)
		a.remote(1, fabric.OpFetchAdd, s, a.at(0, 8))
		a.completion(1, fabric.StatusRemoteAccess)
		b.wantsAsync(fabric.AsyncQPFatal)
	})
}

func TestReadsNeedDepth(t *testing.T) {
	for _, c := range []struct {
		in, out uint8
		want    fabric.Status
	}{{0, 4, fabric.StatusLocalQPOp}, {4, 0, fabric.StatusLocalQPOp}, {1, 4, fabric.StatusSuccess}, {4, 1,
		fabric.StatusSuccess}} {
		bubble(t, func(t *testing.T) {
			f := New()
			a, b := newEnd(t, f, endOptions{}), newEnd(t, f, endOptions{})
			addr, requests, _ := b.listen()
			a.connect(fabric.ConnectParams{Remote: addr, ReadOut: c.out, ReadIn: 4})
			b.accept(next(t, requests), fabric.AcceptParams{ReadIn: c.in, ReadOut: 4})
			a.wants(fabric.EventEstablished)
			a.remote(1, fabric.OpRead, b.at(0, 8), a.at(0, 8))
			a.completion(1, c.want)
		})
	}
}

// TestKeysAreNotReusedSoon: a new key is hardly ever that of freed memory. Of 10,000 random numbers
// of 32 bits one is a repeat in a hundred runs, three are in four million.
func TestKeysAreNotReusedSoon(t *testing.T) {
	bubble(t, func(t *testing.T) {
		e := newEnd(t, New(), endOptions{})
		seen := map[uint32]bool{}
		const keys = 10000
		for range keys {
			m, err := e.pd.RegMR(e.mem, 0)
			assert.NilError(t, err)
			assert.Assert(t, m.RKey() != 0)
			seen[m.RKey()] = true
			assert.NilError(t, m.Close())
		}
		assert.Assert(t, len(seen) > keys-3, "%d repeats", keys-len(seen))
	})
}
