package udat_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/godat/godat/udat"
)

// Four blocks go into the memory of a peer by RDMA write. Only the last write asks for a
// completion. Work completes in order, so the completion of the last write proves that all of them
// are done.
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

	const flag = 1024 // offset of the flag, a multiple of 8; the payload is before it
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
// returns the active one. Here both ends are in one process; usually the other end is in another
// process.
func connectInside(ia *udat.IA, pz *udat.PZ, events *udat.EVD) *udat.EP {
	mine, other := must(ia.CreateEP(pz, events, events, events, nil)), must(ia.CreateEP(pz, events, events, events, nil))
	connectThem(ia, events, mine, other)
	return mine
}

// connectThem connects two endpoints whose connection events come to one dispatcher.
func connectThem(ia *udat.IA, events *udat.EVD, mine, other *udat.EP) {
	qual, _, err := ia.CreatePSPAny(events, udat.PSPConsumer)
	check(err)
	check(mine.Connect(ia.Addr(), qual, 10*time.Second, nil, udat.QoSBestEffort, udat.ConnectDefault))
	check(nextEvent(events, udat.EventConnectionRequest).CR.Accept(other, nil))
	nextEvent(events, udat.EventConnectionEstablished)
	nextEvent(events, udat.EventConnectionEstablished)
}

// nextEvent waits for the next event, which must be of the kind.
func nextEvent(events *udat.EVD, number udat.EventNumber) udat.Event {
	ev, _, err := events.Wait(10*time.Second, 1)
	if err != nil || ev.Number != number {
		panic(fmt.Sprint(ev.Number, err))
	}
	return ev
}

// One end sends a message. The other end has posted a receive before the connection and reads the
// message.
func ExampleEP_PostSend() {
	ia := must(udat.Open("mem0"))
	defer ia.Close(udat.CloseAbrupt)
	pz := must(ia.CreatePZ())
	sends := must(ia.CreateEVD(16, udat.EVDDTO|udat.EVDConnection|udat.EVDCR, nil))
	receives := must(ia.CreateEVD(16, udat.EVDDTO, nil))
	mem := must(ia.AllocLMR(pz, 4096, udat.PrivLocalRead|udat.PrivLocalWrite))
	sender, receiver := must(ia.CreateEP(pz, nil, sends, sends, nil)), must(ia.CreateEP(pz, receives, nil, sends, nil))
	check(receiver.PostRecv([]udat.LMRTriplet{mem.Triplet(2048, 2048)}, 7, udat.CompletionDefault))
	connectThem(ia, sends, sender, receiver)

	n := copy(mem.Bytes(), "a message")
	check(sender.PostSend([]udat.LMRTriplet{mem.Triplet(0, n)}, 8, udat.CompletionDefault))
	received := nextEvent(receives, udat.EventDTOCompletion)
	fmt.Printf("receive %d has %q\n", received.Cookie, mem.Bytes()[2048:][:received.Length])
	fmt.Println("send", nextEvent(sends, udat.EventDTOCompletion).Cookie, "is done")
	// Output:
	// receive 7 has "a message"
	// send 8 is done
}

// A peer's memory is read without its program taking part. The peer has sent the triplet that names
// the memory.
func ExampleEP_PostRDMARead() {
	ia := must(udat.Open("mem0"))
	defer ia.Close(udat.CloseAbrupt)
	pz := must(ia.CreatePZ())
	events := must(ia.CreateEVD(64, udat.EVDDTO|udat.EVDConnection|udat.EVDCR, nil))
	theirs := must(ia.AllocLMR(pz, 4096, udat.PrivLocalRead|udat.PrivRemoteRead))
	copy(theirs.Bytes(), "what the peer has")
	wire := must(theirs.RMRTriplet(0, 17).MarshalBinary()) // 20 bytes, for a message or private data

	mine := connectInside(ia, pz, events)
	var from udat.RMRTriplet
	check(from.UnmarshalBinary(wire))
	into := must(ia.AllocLMR(pz, 17, udat.PrivLocalRead|udat.PrivLocalWrite|udat.PrivRemoteWrite))
	check(mine.PostRDMARead([]udat.LMRTriplet{into.Triplet(0, 17)}, 1, from, udat.CompletionDefault))
	done := nextEvent(events, udat.EventDTOCompletion)
	fmt.Println(done.Status, string(into.Bytes()))
	// Output: DAT_DTO_SUCCESS what the peer has
}

// Open opens an adapter of this host. An error lists the names that exist.
func ExampleOpen() {
	for _, p := range udat.Providers() {
		if p.Name == "mem0" {
			fmt.Println(p.Name, "is always there")
		}
	}
	_, err := udat.Open("mlx5_99")
	fmt.Println(errors.Is(err, udat.ErrProviderNotFound))
	// Output:
	// mem0 is always there
	// true
}

// A graceful disconnect completes the posted requests. After its event the endpoint may be freed.
// The peer gets the event too.
func ExampleEP_Disconnect() {
	ia := must(udat.Open("mem0"))
	defer ia.Close(udat.CloseAbrupt)
	pz := must(ia.CreatePZ())
	events := must(ia.CreateEVD(64, udat.EVDDTO|udat.EVDConnection|udat.EVDCR, nil))
	ep := connectInside(ia, pz, events)
	check(ep.Disconnect(udat.CloseGraceful))
	for range 2 {
		fmt.Println(nextEvent(events, udat.EventConnectionDisconnected).Number)
	}
	check(ep.Free())
	// Output:
	// DAT_CONNECTION_EVENT_DISCONNECTED
	// DAT_CONNECTION_EVENT_DISCONNECTED
}

// An endpoint is quiet, so that the memory of its posts may be used again, when the completions of
// two markers have come. One goroutine posts while the peer ends the connection; some of its posts
// complete before the connection event and some after it.
func ExampleEP_Disconnect_quiet() {
	ia := must(udat.Open("mem0"))
	defer ia.Close(udat.CloseAbrupt)
	pz := must(ia.CreatePZ())
	events := must(ia.CreateEVD(1024, udat.EVDDTO|udat.EVDConnection|udat.EVDCR, nil))
	quiet := must(ia.CreateEVD(8, udat.EVDConnection, nil)) // of the peer
	attr := &udat.EPAttr{MaxRequestDTOs: 500}
	ep, peer := must(ia.CreateEP(pz, events, events, events, attr)), must(ia.CreateEP(pz, nil, nil, quiet, nil))
	qual, _, err := ia.CreatePSPAny(events, udat.PSPConsumer)
	check(err)
	check(ep.Connect(ia.Addr(), qual, 10*time.Second, nil, udat.QoSBestEffort, udat.ConnectDefault))
	check(nextEvent(events, udat.EventConnectionRequest).CR.Accept(peer, nil))
	nextEvent(events, udat.EventConnectionEstablished)
	nextEvent(quiet, udat.EventConnectionEstablished)

	posted := make(chan int)
	go func() {
		n := 0
		for ; n < 300; n++ {
			check(ep.PostSend(nil, udat.Cookie(n), udat.CompletionDefault))
			if n == 100 {
				check(peer.Disconnect(udat.CloseAbrupt))
			}
		}
		posted <- n
	}()

	const marker = 1 << 32 // a cookie that no other post has
	completed, total := 0, 0
	for markers := 0; markers < 2; {
		ev, _, err := events.Wait(10*time.Second, 1)
		check(err)
		switch {
		case ev.Number == udat.EventConnectionDisconnected || ev.Number == udat.EventConnectionBroken:
			total = <-posted // nobody posts any more
			check(ep.PostRecv(nil, marker, udat.CompletionDefault))
			check(ep.PostSend(nil, marker, udat.CompletionDefault))
		case ev.Cookie == marker:
			markers++
		default:
			completed++
		}
	}
	fmt.Println(completed == total)
	check(ep.Free())
	// Output: true
}
