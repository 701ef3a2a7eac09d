package tcpfabric

import (
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/tcpfabric/tshark"
	"gotest.tools/v3/assert"
)

// recorder passes TCP connections on to an address, and captures what both ends write.
type recorder struct {
	t       *testing.T
	capture *tshark.Capture
	tcp     *net.TCPListener
	to      netip.AddrPort
	done    sync.WaitGroup
}

func newRecorder(t *testing.T, to netip.AddrPort) *recorder {
	t.Helper()
	tcp, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	assert.NilError(t, err)
	r := &recorder{t: t, capture: tshark.New(), tcp: tcp, to: to}
	r.done.Go(func() {
		for {
			a, err := tcp.AcceptTCP()
			if err != nil {
				return
			}
			b, err := net.Dial("tcp", r.to.String())
			if err != nil {
				a.Close()
				continue
			}
			n := r.capture.Connect()
			r.done.Go(func() { r.pass(n, tshark.Initiator, a, b.(*net.TCPConn)) })
			r.done.Go(func() { r.pass(n, tshark.Responder, b.(*net.TCPConn), a) })
		}
	})
	return r
}

// pass copies one direction.
func (r *recorder) pass(n *tshark.Conn, from int, src, dst *net.TCPConn) {
	const mss = 1448
	buf := make([]byte, 256<<10)
	for {
		got, err := src.Read(buf)
		n.Send(from, buf[:got], mss)
		if _, failed := dst.Write(buf[:got]); failed != nil || err != nil {
			if err == io.EOF {
				n.Close(from)
			}
			dst.CloseWrite()
			return
		}
	}
}

// verdict waits until all connections have ended, and has tshark judge them.
func (r *recorder) verdict() tshark.Verdict {
	r.t.Helper()
	r.tcp.Close()
	ended := make(chan struct{})
	go func() {
		r.done.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(patience):
		r.t.Fatal("connections do not end")
	}
	v := r.capture.Judge(r.t)
	assert.DeepEqual(r.t, v.Malformed, []string(nil))
	assert.Equal(r.t, v.BadCRC, 0)
	return v
}

// TestTsharkTraffic: Wireshark decodes what two ends of this fabric write, for each operation, with
// checksums and without. It finds neither a malformed frame nor a wrong checksum.
func TestTsharkTraffic(t *testing.T) {
	for _, crc := range []bool{false, true} {
		v := newVictimWith(t, fabric.Options{RNRRetry: 7, Retry: 7, Checksums: &crc})
		r := newRecorder(t, v.listener.Addr())
		i := v.joins(addrOf(r.tcp.Addr()))
		s := v.session()
		s.expect(fabric.EventEstablished)
		key := v.mr.RKey()
		requests := 0
		do := func(wr fabric.SendWR, n int) {
			requests++
			if wr.RemoteAddr == 0 {
				wr.RemoteAddr = v.at(0)
			}
			wr.RKey = key
			i.post(wr, n)
		}
		for _, n := range []int{0, 1, 7, 64} { // all receives of the victim
			do(fabric.SendWR{Opcode: fabric.OpSend, Flags: fabric.Solicited * fabric.SendFlags(n%2)}, n)
		}
		for _, n := range []int{0, 1, 2, 3, 1448, roomSize} {
			do(fabric.SendWR{Opcode: fabric.OpWrite}, n)
			do(fabric.SendWR{Opcode: fabric.OpRead}, n)
		}
		do(fabric.SendWR{Opcode: fabric.OpFetchAdd, CompareAdd: 1}, 8)
		do(fabric.SendWR{Opcode: fabric.OpCmpSwap, CompareAdd: 1, Swap: 2}, 8)
		ok := slices.Repeat([]fabric.Status{fabric.StatusSuccess}, requests)
		assert.DeepEqual(t, i.completes(requests), ok)

		// These wait for receives.
		i.post(fabric.SendWR{Opcode: fabric.OpSendImm, Imm: 77}, 5)
		i.post(fabric.SendWR{Opcode: fabric.OpWriteImm, Imm: 78, RKey: key, RemoteAddr: v.at(8)}, 9)
		time.Sleep(50 * time.Millisecond)
		s.postReceives(t)
		assert.DeepEqual(t, i.completes(2), ok[:2])
		i.post(fabric.SendWR{Opcode: fabric.OpSendInv, RKey: v.foreign.RKey()}, 3) // is refused and ends the connection
		i.completes(1)
		i.close()
		s.leaves(t)

		// An end for a write without the right, and a reject.
		i = v.joins(addrOf(r.tcp.Addr()))
		s = v.session()
		s.expect(fabric.EventEstablished)
		i.post(fabric.SendWR{Opcode: fabric.OpWrite, RKey: v.readOnly.RKey(), RemoteAddr: v.at(0)}, 9)
		assert.DeepEqual(t, i.completes(1), []fabric.Status{fabric.StatusRemoteAccess})
		i.close()
		s.leaves(t)

		got := r.verdict()
		t.Log(crc, got.Opcodes, got.GoodCRC)
		frames := 0
		for _, op := range []string{"0x00", "0x01", "0x02", "0x03", "0x04", "0x05", "0x07", "0x08", "0x0a", "0x0b", "0x0c",
			"0x0f"} {
			assert.Assert(t, got.Opcodes[op] > 0, "opcode %s is not in %v", op, got.Opcodes)
		}
		for _, n := range got.Opcodes {
			frames += n
		}
		if !crc {
			frames = 0
		}
		assert.Equal(t, got.GoodCRC, frames)
	}
}
