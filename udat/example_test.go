package udat_test

import (
	"fmt"
	"time"

	"github.com/godat/godat/udat"
)

// Four blocks go into the memory of a peer by RDMA write. Only the last asks for a completion: work is done in order, so that
// its completion says that all of it is done.
func ExampleEP_PostRDMAWrite() {
	ia := must(udat.Open("mem0")) // "rxe0", "mlx5_0" or a local IP address on a machine with RDMA
	defer ia.Close(udat.CloseAbrupt)
	pz := must(ia.CreatePZ())
	events := must(ia.CreateEVD(64, udat.EVDDTO|udat.EVDConnection|udat.EVDCR, nil))
	expect := func(number udat.EventNumber) udat.Event {
		ev, _, err := events.Wait(10*time.Second, 1)
		if err != nil || ev.Number != number {
			panic(fmt.Sprint(ev.Number, err))
		}
		return ev
	}

	// Both ends are in this process here; the peer would be in another.
	mine, peer := must(ia.CreateEP(pz, events, events, events, nil)), must(ia.CreateEP(pz, events, events, events, nil))
	qual, _, err := ia.CreatePSPAny(events, udat.PSPConsumer)
	check(err)
	check(mine.Connect(ia.Addr(), qual, 10*time.Second, nil, udat.QoSBestEffort, udat.ConnectDefault))
	check(expect(udat.EventConnectionRequest).CR.Accept(peer, nil))
	expect(udat.EventConnectionEstablished)
	expect(udat.EventConnectionEstablished)

	const block, blocks = 1024, 4
	from, to := must(ia.AllocLMR(pz, block*blocks, udat.PrivLocalRead)), must(ia.AllocLMR(pz, block*blocks, udat.PrivRemoteWrite|udat.PrivLocalWrite))
	for i := range from.Bytes() {
		from.Bytes()[i] = byte(i / block)
	}
	for i := range blocks {
		flags := udat.CompletionSuppress
		if i == blocks-1 {
			flags = udat.CompletionDefault
		}
		local, remote := []udat.LMRTriplet{from.Triplet(i*block, block)}, to.RMRTriplet(i*block, block)
		check(mine.PostRDMAWrite(local, udat.Cookie(i), remote, flags))
	}
	done := expect(udat.EventDTOCompletion)
	fmt.Println(done.Status, "of block", done.Cookie)
	fmt.Println(to.Bytes()[block-1], to.Bytes()[block], to.Bytes()[blocks*block-1])
	// Output:
	// DAT_DTO_SUCCESS of block 3
	// 0 1 3
}

func must[T any](v T, err error) T {
	check(err)
	return v
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
