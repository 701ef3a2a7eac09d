package udat_test

import (
	"fmt"
	"time"

	"github.com/godat/godat/udat"
)

// Four blocks go into the memory of a peer by RDMA write. Only the last asks for a completion: work
// is done in order, so that its completion says that all of it is done.
func ExampleEP_PostRDMAWrite() {
	ia := must(udat.Open("mem0")) // "rxe0", "mlx5_0" or a local IP address on a machine with RDMA
	defer ia.Close(udat.CloseAbrupt)
	pz := must(ia.CreatePZ())
	events := must(ia.CreateEVD(64, udat.EVDDTO|udat.EVDConnection|udat.EVDCR, nil))
	mine := connectInside(ia, pz, events)

	const block, blocks = 1024, 4
	from, to := must(ia.AllocLMR(pz, block*blocks, udat.PrivLocalRead)),
		must(ia.AllocLMR(pz, block*blocks, udat.PrivRemoteWrite|udat.PrivLocalWrite))
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
	done := nextEvent(events, udat.EventDTOCompletion)
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

// A peer writes a payload into this end's memory, and then a flag with a second RDMA write on the
// same endpoint. This end polls the flag with an atomic load.
func ExampleLMR_LoadUint64() {
	ia := must(udat.Open("mem0"))
	defer ia.Close(udat.CloseAbrupt)
	pz := must(ia.CreatePZ())
	events := must(ia.CreateEVD(64, udat.EVDDTO|udat.EVDConnection|udat.EVDCR, nil))
	peer := connectInside(ia, pz, events)

	const flag = 1024 // where it is, a multiple of 8; the payload lies before it
	from, to := must(ia.AllocLMR(pz, flag+8, udat.PrivLocalRead)),
		must(ia.AllocLMR(pz, flag+8, udat.PrivRemoteWrite|udat.PrivLocalWrite))
	copy(from.Bytes(), "the payload")
	from.Bytes()[flag] = 1
	check(peer.PostRDMAWrite([]udat.LMRTriplet{from.Triplet(0, flag)}, 1, to.RMRTriplet(0, flag), udat.CompletionSuppress))
	check(peer.PostRDMAWrite([]udat.LMRTriplet{from.Triplet(flag, 8)}, 2, to.RMRTriplet(flag, 8), udat.CompletionDefault))

	for until := time.Now().Add(10 * time.Second); must(to.LoadUint64(flag)) == 0; {
		if time.Now().After(until) {
			panic("the flag does not come")
		}
	}
	fmt.Printf("%s\n", to.Bytes()[:11])
	// Output: the payload
}

// connectInside makes two endpoints whose events all come to one dispatcher, connects them, and
// returns the one that has asked for it. Both ends are in this process here; the other would be in
// another.
func connectInside(ia *udat.IA, pz *udat.PZ, events *udat.EVD) *udat.EP {
	mine, other := must(ia.CreateEP(pz, events, events, events, nil)), must(ia.CreateEP(pz, events, events, events, nil))
	qual, _, err := ia.CreatePSPAny(events, udat.PSPConsumer)
	check(err)
	check(mine.Connect(ia.Addr(), qual, 10*time.Second, nil, udat.QoSBestEffort, udat.ConnectDefault))
	check(nextEvent(events, udat.EventConnectionRequest).CR.Accept(other, nil))
	nextEvent(events, udat.EventConnectionEstablished)
	nextEvent(events, udat.EventConnectionEstablished)
	return mine
}

// nextEvent waits for the next event, which must be of the kind.
func nextEvent(events *udat.EVD, number udat.EventNumber) udat.Event {
	ev, _, err := events.Wait(10*time.Second, 1)
	if err != nil || ev.Number != number {
		panic(fmt.Sprint(ev.Number, err))
	}
	return ev
}
