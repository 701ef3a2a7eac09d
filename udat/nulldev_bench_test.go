//go:build linux && cgo && nulldev

package udat_test

import (
	"fmt"
	"net/netip"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/cverbs"
	"github.com/godat/godat/udat"
)

// The cost of the binding alone: posting and reaping 64-byte sends on a device that does nothing. One iteration is
// one send and its completion.
//
//	go test -tags nulldev -bench Null -count 10 ./udat

func BenchmarkNullCall(b *testing.B) {
	for b.Loop() {
		cverbs.NullCall()
	}
}

var batches = []int{1, 32}

func BenchmarkNullC(b *testing.B) {
	for _, batch := range batches {
		b.Run(fmt.Sprint(batch), func(b *testing.B) {
			cq := cverbs.NullCQ()
			qp := cverbs.NullQP(cq, cq)
			b.ResetTimer()
			cverbs.NullLoop(qp, cq, (b.N+batch-1)/batch, batch)
			b.StopTimer()
			cverbs.NullCloseQP(qp)
			cverbs.NullCloseCQ(cq)
		})
	}
}

func BenchmarkNullCverbs(b *testing.B) {
	for _, batch := range batches {
		b.Run(fmt.Sprint(batch), func(b *testing.B) {
			cq := cverbs.NullCQ()
			qp := cverbs.NullQP(cq, cq)
			payload := make([]byte, 64)
			_ = payload
			sges := []cverbs.SGE{{Addr: 4096, Length: 64, LKey: 1}}
			wrs := make([]cverbs.SendWR, batch)
			wcs := make([]cverbs.WC, batch)
			id := uint64(0)
			b.ReportAllocs()
			b.ResetTimer()
			for n := 0; n < b.N; n += batch {
				for i := range wrs {
					wrs[i] = cverbs.SendWR{ID: id, Opcode: cverbs.OpSend, Flags: cverbs.SendSignaled, NumSGE: 1}
					id++
				}
				if _, err := qp.PostSend(wrs, sges); err != nil {
					b.Fatal(err)
				}
				for got := 0; got < batch; {
					k, err := cq.Poll(wcs)
					if err != nil {
						b.Fatal(err)
					}
					for _, wc := range wcs[:k] {
						if wc.Status != cverbs.WCSuccess || wc.ID > id {
							b.Fatal(wc)
						}
					}
					got += k
				}
			}
			b.StopTimer()
			cverbs.NullCloseQP(qp)
			cverbs.NullCloseCQ(cq)
		})
	}
}

func BenchmarkNullUdat(b *testing.B) {
	for _, batch := range batches {
		b.Run(fmt.Sprint(batch), func(b *testing.B) {
			ia, err := udat.Open("null0")
			assert.NilError(b, err)
			defer ia.Close(udat.CloseAbrupt)
			pz, err := ia.CreatePZ()
			assert.NilError(b, err)
			dto, err := ia.CreateEVD(256, udat.EVDDTO, nil)
			assert.NilError(b, err)
			conn, err := ia.CreateEVD(8, udat.EVDConnection, nil)
			assert.NilError(b, err)
			ep, err := ia.CreateEP(pz, dto, dto, conn, &udat.EPAttr{MaxRequestDTOs: 64})
			assert.NilError(b, err)
			mem, err := ia.AllocLMR(pz, 4096, udat.PrivAll)
			assert.NilError(b, err)
			assert.NilError(b, ep.Connect(netip.MustParseAddr("127.0.0.1"), 1, udat.Infinite, nil, 0, 0))
			_, _, err = conn.Wait(udat.Infinite, 1)
			assert.NilError(b, err)
			iov := []udat.LMRTriplet{mem.Triplet(0, 64)}
			ops := make([]udat.Op, batch)
			events := make([]udat.Event, batch)
			cookie := udat.Cookie(0)
			b.ReportAllocs()
			b.ResetTimer()
			for n := 0; n < b.N; n += batch {
				if batch == 1 {
					if err := ep.PostSend(iov, cookie, 0); err != nil {
						b.Fatal(err)
					}
					ev, err := dto.Dequeue()
					if err != nil || ev.Status != udat.DTOSuccess || ev.Cookie > cookie {
						b.Fatal(ev, err)
					}
					cookie++
					continue
				}
				for i := range ops {
					ops[i] = udat.Op{Kind: udat.OpSend, IOV: iov, Cookie: cookie}
					cookie++
				}
				if _, err := ep.PostBatch(ops); err != nil {
					b.Fatal(err)
				}
				for got := 0; got < batch; {
					k, err := dto.DequeueBatch(events)
					if err != nil {
						b.Fatal(err)
					}
					for i := range events[:k] {
						if events[i].Status != udat.DTOSuccess || events[i].Cookie > cookie {
							b.Fatal(events[i])
						}
					}
					got += k
				}
			}
		})
	}
}
