//go:build linux && cgo

package cverbs

import (
	"fmt"
	"testing"
)

// BenchmarkTurn measures a loop over many connections of which it has both ends. On each connection
// it posts a receive and a Send, and takes both completions. It compares single calls with turns.
func BenchmarkTurn(b *testing.B) {
	for _, n := range []int{1, 16, 256, 1024} {
		ctx := openDevice(b)
		scq := closing[*CQ](b)(ctx.CreateCQ(4*n, nil, 0))
		rcq := closing[*CQ](b)(ctx.CreateCQ(4*n, nil, 0))
		x, y := make([]*end, n), make([]*end, n)
		sends, recvs := make([][]SendWR, n), make([][]RecvWR, n)
		ss, rs := make([][]SGE, n), make([][]SGE, n)
		for i := range n {
			x[i], y[i] = newPair(b, ctx, func(q *QPInit) { q.SendCQ, q.RecvCQ = scq, rcq })
			sends[i], recvs[i] = []SendWR{{Opcode: OpSend, Flags: SendSignaled, NumSGE: 1}}, []RecvWR{{NumSGE: 1}}
			ss[i], rs[i] = []SGE{x[i].sge(0, 64)}, []SGE{y[i].sge(0, 64)}
		}
		wcs := make([]WC, 32)
		var turn Turn
		take := func(cq *CQ, n int) {
			for n > 0 {
				k, err := cq.Poll(wcs)
				if err != nil {
					b.Fatal(err)
				}
				n -= k
			}
		}
		loop := func(b *testing.B, most int) {
			for range b.N / n {
				got := 0
				for i := range n {
					if most == 0 {
						y[i].qp.PostRecv(recvs[i], rs[i])
						x[i].qp.PostSend(sends[i], ss[i])
						continue
					}
					turn.PostRecv(y[i].qp, recvs[i], rs[i])
					turn.PostSend(x[i].qp, sends[i], ss[i])
					if turn.Len() >= most {
						k, err := turn.Run(scq, wcs, 1)
						if err != nil || turn.Refused() > 0 {
							b.Fatal(err, turn.Refused())
						}
						got += k
					}
				}
				if most > 0 && turn.Len() > 0 {
					k, _ := turn.Run(scq, wcs, 1)
					got += k
				}
				take(scq, n-got)
				take(rcq, n)
			}
		}
		b.Run(fmt.Sprintf("%d/single", n), func(b *testing.B) { loop(b, 0) })
		b.Run(fmt.Sprintf("%d/turn", n), func(b *testing.B) { loop(b, 32) })
	}
}
