package cverbs

import "testing"

// BenchmarkPollEmpty measures a poll of an empty queue, which is mostly the crossing into C.
func BenchmarkPollEmpty(b *testing.B) {
	ctx := openDevice(b)
	cq := closing[*CQ](b)(ctx.CreateCQ(16, nil, 0))
	wc := make([]WC, 16)
	b.ReportAllocs()
	for b.Loop() {
		cq.Poll(wc)
	}
}

// BenchmarkWriteBatch measures a batch of 32 writes of 8 bytes, one of them signalled, and the poll
// for its completion.
func BenchmarkWriteBatch(b *testing.B) {
	x, y := newPair(b, openDevice(b))
	const n = 32
	wrs, sges, wc := make([]SendWR, n), []SGE{x.sge(0, 8)}, make([]WC, 4)
	for i := range wrs {
		wrs[i] = SendWR{Opcode: OpRDMAWrite, RemoteAddr: y.mr.Addr(), RKey: y.mr.RKey(), NumSGE: 1}
	}
	wrs[n-1].Flags = SendSignaled
	b.ReportAllocs()
	for b.Loop() {
		if k, err := x.qp.PostSend(wrs, sges); err != nil {
			b.Fatal(k, err)
		}
		for k := 0; k == 0; k, _ = x.scq.Poll(wc) {
		}
	}
}
