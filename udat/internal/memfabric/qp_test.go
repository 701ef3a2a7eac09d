package memfabric

import (
	"bytes"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/softnic"
)

func TestSendIsMatchedToReceivesInOrder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := pair(t, endOptions{})
		fill(a.mem, 1)
		b.recv(1, b.at(0, 100))
		b.recv(2, b.at(100, 10), b.at(300, 50), b.at(400, 50))
		b.recv(3)
		a.send(11, a.at(0, 60), a.at(60, 40))
		a.send(12, a.at(100, 30))
		a.send(13)
		for i, want := range []fabric.WC{
			{ID: 1, ByteLen: 100}, {ID: 2, ByteLen: 30}, {ID: 3, ByteLen: 0},
		} {
			want.Opcode, want.QPNum, want.SrcQP = fabric.OpWCRecv, b.qp.Num(), a.qp.Num()
			assert.Equal(t, b.completion(uint64(i+1), fabric.StatusSuccess), want)
		}
		for id := uint64(11); id <= 13; id++ {
			assert.Equal(t, a.completion(id, fabric.StatusSuccess).Opcode, fabric.OpWCSend)
		}
		assert.Assert(t, bytes.Equal(b.mem[:110], a.mem[:110]))
		assert.Assert(t, bytes.Equal(b.mem[300:320], a.mem[110:130]), "the second segment continues the first")
		assert.Assert(t, bytes.Equal(b.mem[320:], make([]byte, len(b.mem)-320)), "the rest is untouched")
	})
}

func TestRDMAWriteAndRead(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := pair(t, endOptions{})
		fill(a.mem[:1000], 7)
		a.remote(1, fabric.OpWrite, b.at(500, 0), a.at(0, 400), a.at(400, 600))
		assert.Equal(t, a.completion(1, fabric.StatusSuccess).Opcode, fabric.OpWCWrite)
		assert.Assert(t, bytes.Equal(b.mem[500:1500], a.mem[:1000]))
		a.remote(2, fabric.OpRead, b.at(600, 0), a.at(2000, 50), a.at(3000, 50))
		wc := a.completion(2, fabric.StatusSuccess)
		assert.Equal(t, wc.Opcode, fabric.OpWCRead)
		assert.Equal(t, wc.ByteLen, uint32(100))
		assert.Assert(t, bytes.Equal(a.mem[2000:2050], b.mem[600:650]))
		assert.Assert(t, bytes.Equal(a.mem[3000:3050], b.mem[650:700]))
		// An operation without data needs no key.
		a.remote(3, fabric.OpWrite, fabric.SGE{})
		a.remote(4, fabric.OpRead, fabric.SGE{})
		a.completion(3, fabric.StatusSuccess)
		a.completion(4, fabric.StatusSuccess)
		b.quiet()
	})
}

func TestReceivesBeforeConnecting(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := New()
		a, b := newEnd(t, f, endOptions{}), newEnd(t, f, endOptions{})
		b.recv(1, b.at(0, 8))
		_, err := a.qp.PostSend([]fabric.SendWR{{Opcode: fabric.OpSend}}, nil)
		assert.ErrorIs(t, err, fabric.ErrQPState)
		join(t, a, b)
		a.send(2, a.at(0, 8))
		b.completion(1, fabric.StatusSuccess)
	})
}

func TestUnsignaledSuccessIsSilentAndErrorIsNot(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := pair(t, endOptions{})
		a.post(fabric.SendWR{ID: 1, Opcode: fabric.OpWrite, RKey: b.mr.RKey(), RemoteAddr: b.at(0, 0).Addr}, a.at(0, 8))
		a.quiet()
		a.post(fabric.SendWR{ID: 2, Opcode: fabric.OpWrite, RKey: 1, RemoteAddr: b.at(0, 0).Addr}, a.at(0, 8))
		a.completion(2, fabric.StatusRemoteAccess)
	})
}

func TestQueuesAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := pair(t, endOptions{qp: fabric.QPInit{MaxSend: 3, MaxRecv: 2}})
		n, err := b.qp.PostRecv(make([]fabric.RecvWR, 5), nil)
		assert.Equal(t, n, 2)
		assert.ErrorIs(t, err, fabric.ErrQueueFull)
		// The third send waits for a receive, so three are outstanding.
		wrs := make([]fabric.SendWR, 9)
		for i := range wrs {
			wrs[i] = fabric.SendWR{ID: uint64(i), Opcode: fabric.OpSend, Flags: fabric.Signaled}
		}
		n, err = a.qp.PostSend(wrs[:5], nil)
		assert.Equal(t, n, 3)
		assert.ErrorIs(t, err, fabric.ErrQueueFull)
		a.completions(2)
		n, err = a.qp.PostSend(wrs[3:], nil)
		assert.Equal(t, n, 2)
		assert.ErrorIs(t, err, fabric.ErrQueueFull)
	})
}

func TestBadPostsNameTheArgument(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, _ := pair(t, endOptions{})
		big := fabric.SGE{Length: 1 << 31}
		for _, c := range []struct {
			wr   fabric.SendWR
			sges []fabric.SGE
			want string
		}{
			{fabric.SendWR{Opcode: 99}, nil, "unknown opcode 99"},
			{fabric.SendWR{Opcode: 8}, nil, "unknown opcode 8"},
			{fabric.SendWR{NumSGE: 5}, make([]fabric.SGE, 5), "5 segments are above the limit 4"},
			{fabric.SendWR{NumSGE: 2}, make([]fabric.SGE, 1), "segments 0 to 2 are not in the 1 given"},
			{fabric.SendWR{NumSGE: 1, FirstSGE: 1<<32 - 1}, make([]fabric.SGE, 1), "are not in the 1 given"},
			{fabric.SendWR{NumSGE: 2}, []fabric.SGE{big, big}, "length 4294967296 is above the limit"},
			{fabric.SendWR{NumSGE: 1, Flags: fabric.Inline}, []fabric.SGE{{Length: 65}},
				"inline length 65 is above the limit 64"},
		} {
			_, err := a.qp.PostSend([]fabric.SendWR{c.wr}, c.sges)
			assert.ErrorIs(t, err, fabric.ErrInvalid)
			assert.ErrorContains(t, err, c.want)
		}
	})
}

// TestLengthBeyond32Bits: the length of a message, the sum of its segments, may need more than 32
// bits.
func TestLengthBeyond32Bits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := pair(t, endOptions{})
		half := fabric.SGE{Addr: a.at(0, 0).Addr, Length: 1 << 31, LKey: a.mr.LKey()}
		rest := fabric.SGE{Addr: half.Addr, Length: 8, LKey: half.LKey}
		for _, sges := range [][]fabric.SGE{{half, half}, {half, half, rest}, {half, rest}} {
			_, err := a.qp.PostSend([]fabric.SendWR{{Opcode: fabric.OpSend, NumSGE: uint32(len(sges))}}, sges)
			assert.ErrorContains(t, err, "above the limit 2147483648")
		}
		// The same segments as receives, where only the length of the message counts.
		far := fabric.SGE{Addr: b.at(0, 0).Addr, Length: 1 << 31, LKey: b.mr.LKey()}
		b.recv(1, b.at(0, 8), far, far, b.at(8, 8))
		a.send(2, a.at(0, 8))
		b.completion(1, fabric.StatusSuccess)
		a.completion(2, fabric.StatusSuccess)
	})
}

// TestNumbersComeRound: queue pair numbers and ports start again after the last one, and skip
// those in use.
func TestNumbersComeRound(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := New()
		e := newEnd(t, f, endOptions{})
		for range 3 {
			f.NextQPN = softnic.MaxQPN - 1
			var old []fabric.QP
			// e has the first.
			for _, want := range []uint32{softnic.MaxQPN - 1, softnic.MaxQPN, softnic.FirstQPN + 1, softnic.FirstQPN + 2} {
				e.renew()
				old = append(old, e.qp)
				assert.Equal(t, e.qp.Num(), want)
			}
			for _, q := range old {
				assert.NilError(t, q.Close())
			}
		}
		f.nextPort = 1<<16 - 1
		for _, want := range []uint16{1<<16 - 1, firstFreePort, firstFreePort + 1} {
			addr, _, _ := e.listen()
			assert.Equal(t, addr.Port(), want)
		}
		f.nextPort = 1<<16 - 1 // all three are in use
		addr, _, _ := e.listen()
		assert.Equal(t, addr.Port(), uint16(firstFreePort+2))
	})
}
