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

// The cost of the binding alone: posting and reaping 64-byte sends on a device that does next to nothing (cverbs/nulldev.c: a spin
// lock, and a completion written and read). One iteration is one send and its completion, in batches of 1 or 32.
//
//	go test -tags nulldev -run xxx -bench Null -count 5 ./udat
//
// The three loops do the same job, that of a program that knows what it has posted: for each request they fill a context (cookie,
// length), a segment of its own and the work request, post the batch, poll, look at each status, go back from the completion to
// the context, check the cookie, and count the bytes. In udat the context is the library's: the event has cookie and length.

func BenchmarkNullCall(b *testing.B) {
	for b.Loop() {
		cverbs.NullCall()
	}
}

var batches = []int{1, 32}

const nullSize = 64

func BenchmarkNullC(b *testing.B) {
	for _, batch := range batches {
		b.Run(fmt.Sprint(batch), func(b *testing.B) {
			cq := cverbs.NullCQ()
			qp := cverbs.NullQP(cq, cq)
			rounds := (b.N + batch - 1) / batch
			b.ResetTimer()
			bytes := cverbs.NullLoop(qp, cq, rounds, batch)
			b.StopTimer()
			assert.Equal(b, bytes, uint64(rounds*batch*nullSize))
			cverbs.NullCloseQP(qp)
			cverbs.NullCloseCQ(cq)
		})
	}
}

func BenchmarkNullCverbs(b *testing.B) {
	type request struct {
		cookie         uint64
		length, opcode uint32
	}
	for _, batch := range batches {
		b.Run(fmt.Sprint(batch), func(b *testing.B) {
			cq := cverbs.NullCQ()
			qp := cverbs.NullQP(cq, cq)
			requests := make([]request, batch)
			sges := make([]cverbs.SGE, batch)
			wrs := make([]cverbs.SendWR, batch)
			wcs := make([]cverbs.WC, batch)
			cookie, expected, bytes := uint64(0), uint64(0), uint64(0)
			b.ReportAllocs()
			b.ResetTimer()
			for n := 0; n < b.N; n += batch {
				for i := range wrs {
					requests[i] = request{cookie: cookie, length: nullSize, opcode: uint32(cverbs.OpSend)}
					cookie++
					sges[i] = cverbs.SGE{Addr: 4096 + uint64(i)*nullSize, Length: nullSize, LKey: 1}
					w := &wrs[i]
					w.ID, w.Opcode, w.Flags, w.FirstSGE, w.NumSGE = uint64(i), cverbs.OpSend, cverbs.SendSignaled, uint32(i), 1
				}
				if _, err := qp.PostSend(wrs, sges); err != nil {
					b.Fatal(err)
				}
				for got := 0; got < batch; {
					k, err := cq.Poll(wcs)
					if err != nil {
						b.Fatal(err)
					}
					for i := range wcs[:k] {
						r := &requests[wcs[i].ID]
						if wcs[i].Status != cverbs.WCSuccess || r.cookie != expected {
							b.Fatal(wcs[i])
						}
						expected++
						bytes += uint64(r.length)
					}
					got += k
				}
			}
			b.StopTimer()
			assert.Equal(b, bytes, cookie*nullSize)
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
			iovs := make([]udat.LMRTriplet, batch)
			ops := make([]udat.Op, batch)
			events := make([]udat.Event, batch)
			base := mem.Triplet(0, nullSize)
			cookie, expected, bytes := udat.Cookie(0), udat.Cookie(0), uint64(0)
			b.ReportAllocs()
			b.ResetTimer()
			for n := 0; n < b.N; n += batch {
				for i := range ops {
					iovs[i] = udat.LMRTriplet{LMR: mem, VirtualAddress: base.VirtualAddress + uint64(i)*nullSize, SegmentLength: nullSize}
				}
				if batch == 1 {
					if err := ep.PostSend(iovs, cookie, 0); err != nil {
						b.Fatal(err)
					}
					cookie++
					ev, err := dto.Dequeue()
					if err != nil || ev.Status != udat.DTOSuccess || ev.Cookie != expected {
						b.Fatal(ev, err)
					}
					expected++
					bytes += ev.Length
					continue
				}
				for i := range ops {
					o := &ops[i]
					o.Kind, o.IOV, o.Cookie = udat.OpSend, iovs[i:i+1], cookie
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
						if events[i].Status != udat.DTOSuccess || events[i].Cookie != expected {
							b.Fatal(events[i])
						}
						expected++
						bytes += events[i].Length
					}
					got += k
				}
			}
			b.StopTimer()
			assert.Equal(b, bytes, uint64(cookie)*nullSize)
		})
	}
}

// A look at an empty queue: what a loop that spins does all the time, with one look in each call and with 32.

func BenchmarkNullPollCverbs(b *testing.B) {
	cq := cverbs.NullCQ()
	defer cverbs.NullCloseCQ(cq)
	wcs := make([]cverbs.WC, 32)
	benchmarkPolls(b, func(polls int) bool {
		n, err := cq.PollSpin(wcs, polls)
		return n == 0 && err == nil
	})
}

func BenchmarkNullPollUdat(b *testing.B) {
	ia, err := udat.Open("null0")
	assert.NilError(b, err)
	defer ia.Close(udat.CloseAbrupt)
	dto, err := ia.CreateEVD(256, udat.EVDDTO, nil)
	assert.NilError(b, err)
	events := make([]udat.Event, 32)
	benchmarkPolls(b, func(polls int) bool {
		n, err := dto.DequeueSpin(events, polls)
		return n == 0 && errorsIs(err, udat.ErrQueueEmpty)
	})
}

func benchmarkPolls(b *testing.B, empty func(polls int) bool) {
	for _, polls := range batches {
		b.Run(fmt.Sprint(polls), func(b *testing.B) {
			for n := 0; n < b.N; n += polls {
				if !empty(polls) {
					b.Fatal("it is not empty")
				}
			}
		})
	}
}
