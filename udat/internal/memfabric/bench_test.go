package memfabric

import (
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat/internal/fabric"
)

// benchPair makes two connected ends. The test harness needs a *testing.T, so benchmarks make their
// ends without it.
func benchPair(b *testing.B, bytes int) (x, y *end) {
	b.Helper()
	f := New()
	mk := func() *end {
		d, err := f.Open("mem0", options, nil)
		assert.NilError(b, err)
		e := &end{dev: d.(*Device), mem: make([]byte, bytes), events: make(chan fabric.ConnEvent, 4)}
		e.pd, err = d.AllocPD()
		assert.NilError(b, err)
		e.cq, err = d.CreateCQ(256)
		assert.NilError(b, err)
		e.mr, err = e.pd.RegMR(e.mem, allAccess)
		assert.NilError(b, err)
		e.qp, err = d.CreateQP(fabric.QPInit{
			PD: e.pd, SendCQ: e.cq, RecvCQ: e.cq, MaxSend: 64, MaxRecv: 64, MaxSendSGE: 1, MaxRecvSGE: 1,
		})
		assert.NilError(b, err)
		return e
	}
	x, y = mk(), mk()
	l, err := y.dev.Listen(0, nil, func(r fabric.Request) {
		y.conn, _ = r.Accept(y.qp, fabric.AcceptParams{ReadIn: 4, ReadOut: 4}, y.on)
	})
	assert.NilError(b, err)
	x.conn, err = x.dev.Connect(x.qp, fabric.ConnectParams{Remote: l.Addr(), ReadIn: 4, ReadOut: 4}, x.on)
	assert.NilError(b, err)
	<-x.events
	<-y.events
	b.Cleanup(func() {
		for _, c := range []closer{
			l, x.conn, y.conn, x.qp, y.qp, x.mr, y.mr, x.cq, y.cq, x.pd, y.pd, x.dev, y.dev,
		} {
			assert.NilError(b, c.Close())
		}
	})
	return x, y
}

// reap polls until want completions have come.
func (e *end) reap(wcs []fabric.WC, want int, park bool) {
	for want > 0 {
		if park {
			e.cq.Arm(false)
		}
		n, _ := e.cq.Poll(wcs, 1)
		for _, wc := range wcs[:n] {
			if wc.Status != fabric.StatusSuccess {
				panic(wc.Status)
			}
		}
		if want -= n; n == 0 && park {
			e.cq.Wait(time.Time{})
		}
	}
}

// echo sends a message of size bytes back and forth n times, with one receive completion per
// message at each end.
func (e *end) echo(size, n int, first, park bool) {
	recv, send := []fabric.RecvWR{{NumSGE: 1}}, []fabric.SendWR{{Opcode: fabric.OpSend, NumSGE: 1}}
	sges := []fabric.SGE{e.at(0, size)}
	wcs := make([]fabric.WC, 8)
	for i := range n {
		if i > 0 || !first {
			e.reap(wcs, 1, park)
		}
		e.qp.PostRecv(recv, sges)
		e.qp.PostSend(send, sges)
	}
	if first {
		e.reap(wcs, 1, park)
	}
}

func BenchmarkPingPong(b *testing.B) {
	for _, mode := range []struct {
		name string
		park bool
	}{{"event", true}, {"busy", false}} {
		b.Run(mode.name, func(b *testing.B) {
			x, y := benchPair(b, 64)
			y.qp.PostRecv([]fabric.RecvWR{{NumSGE: 1}}, []fabric.SGE{y.at(0, 64)})
			done := make(chan struct{})
			b.ReportAllocs()
			b.ResetTimer()
			go func() { y.echo(64, b.N, false, mode.park); close(done) }()
			x.echo(64, b.N, true, mode.park)
			<-done
		})
	}
}

func BenchmarkWriteStream(b *testing.B) {
	for _, c := range []struct {
		name string
		size int
	}{{"64B", 64}, {"4KiB", 4 << 10}, {"1MiB", 1 << 20}} {
		b.Run(c.name, func(b *testing.B) {
			x, y := benchPair(b, c.size)
			wr := []fabric.SendWR{{
				Opcode: fabric.OpWrite, NumSGE: 1, Flags: fabric.Signaled, RKey: y.mr.RKey(), RemoteAddr: y.at(0, 0).Addr,
			}}
			sges := []fabric.SGE{x.at(0, c.size)}
			wcs := make([]fabric.WC, 32)
			b.SetBytes(int64(c.size))
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				if i >= 32 {
					x.reap(wcs[:1], 1, true)
				}
				x.qp.PostSend(wr, sges)
			}
			x.reap(wcs[:1], min(b.N, 32), true)
		})
	}
}
