package tcpfabric

import (
	"testing"
	"time"

	"github.com/godat/godat/udat/internal/fabric"
	"gotest.tools/v3/assert"
)

// TestForeignBurst: all messages of a burst arrive, also the last one, whatever the pieces in which
// they are read.
func TestForeignBurst(t *testing.T) {
	const messages, size = 100, 4096
	v := newVictim(t)
	for round := range 20 {
		cq, err := v.dev.CreateCQ(2 * messages)
		assert.NilError(t, err)
		mem := make([]byte, size)
		mr, err := v.pd.RegMR(mem, fabric.LocalWrite)
		assert.NilError(t, err)
		qp, err := v.dev.CreateQP(fabric.QPInit{PD: v.pd, SendCQ: cq, RecvCQ: cq, MaxSend: 1, MaxRecv: messages,
			MaxSendSGE: 1, MaxRecvSGE: 1})
		assert.NilError(t, err)
		for range messages {
			sge := fabric.SGE{Addr: addressOf(mem), Length: size, LKey: mr.LKey()}
			_, err := qp.PostRecv([]fabric.RecvWR{{NumSGE: 1}}, []fabric.SGE{sge})
			assert.NilError(t, err)
		}
		events := make(chan fabric.ConnEvent, 4)
		conns := make(chan fabric.Conn, 1)
		l, err := v.dev.Listen(0, nil, func(r fabric.Request) {
			c, err := r.Accept(qp, fabric.AcceptParams{}, func(ev fabric.ConnEvent) { events <- ev })
			if err != nil {
				t.Error(err)
			}
			conns <- c
		})
		assert.NilError(t, err)
		p := dial(t, l.Addr())
		p.connect(setup(withCRC * (round % 2)))
		go func() {
			piece := 1448 + 997*round
			var stream []byte
			for i := range uint32(messages) {
				stream = append(stream, frame(send(i+1, 0, false), make([]byte, 1408), p.crc)...)
				stream = append(stream, frame(send(i+1, 1408, false), make([]byte, 1408), p.crc)...)
				stream = append(stream, frame(send(i+1, 2816, true), make([]byte, size-2816), p.crc)...)
			}
			for len(stream) > 0 {
				n := min(piece, len(stream))
				p.bytes(stream[:n])
				stream = stream[n:]
			}
		}()
		wcs, got := make([]fabric.WC, 32), 0
		for until := time.Now().Add(10 * time.Second); got < messages; {
			n, err := cq.Poll(wcs, 1)
			assert.NilError(t, err)
			for _, wc := range wcs[:n] {
				assert.Equal(t, wc.Status, fabric.StatusSuccess)
			}
			got += n
			if n == 0 && round%3 == 0 {
				assert.NilError(t, cq.Arm(false))
				if n, _ := cq.Poll(wcs, 1); n > 0 {
					got += n
					continue
				}
				cq.Wait(time.Now().Add(2 * time.Second))
			}
			assert.Assert(t, time.Now().Before(until), "round %d: %d of %d", round, got, messages)
		}
		p.Close()
		c := <-conns
		assert.NilError(t, c.Close())
		assert.NilError(t, l.Close())
		assert.NilError(t, qp.Close())
		assert.NilError(t, mr.Close())
		assert.NilError(t, cq.Close())
	}
}
