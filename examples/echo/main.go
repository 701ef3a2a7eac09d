// Command echo is an echo service over RDMA. DEVICE is a name ("rxe0") or a local IP address.
//
//	echo DEVICE                     serve many clients until interrupted; print the address
//	echo DEVICE ADDRESS:PORT TEXT   send the text to a server and print the answer
package main

import (
	"context"
	"fmt"
	"log"
	"net/netip"
	"os"
	"os/signal"
	"time"

	"github.com/godat/godat/udat"
)

// These are, in this order: the largest message in bytes, the number of buffers per connection, the
// largest number of connections, and the longest wait.
const size, depth, most, patience = 4096, 4, 64, 10 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if len(os.Args) == 2 {
		serve(ctx, os.Args[1], func(at netip.AddrPort) { fmt.Println("serving on", at) })
	} else if len(os.Args) == 4 && len(os.Args[3]) <= size {
		fmt.Println(call(os.Args[1], must(netip.ParseAddrPort(os.Args[2])), os.Args[3]))
	} else {
		log.Fatal("usage: echo DEVICE [ADDRESS:PORT TEXT], with a text of at most ", size, " bytes")
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}

// open opens the device. One event dispatcher, events, serves all connections.
func open(device string) (ia *udat.IA, pz *udat.PZ, events *udat.EVD) {
	ia = must(udat.Open(device))
	return ia, must(ia.CreatePZ()), must(ia.CreateEVD(most*(2*depth+2), udat.EVDDTO|udat.EVDConnection|udat.EVDCR, nil))
}

// newEP creates an endpoint and posts its receives. The receives must be posted before the
// connection is established, because the peer may send at once.
func newEP(ia *udat.IA, pz *udat.PZ, events *udat.EVD) (*udat.EP, *udat.LMR) {
	ep := must(ia.CreateEP(pz, events, events, events, nil))
	mem := must(ia.AllocLMR(pz, (depth+1)*size, udat.PrivLocalRead|udat.PrivLocalWrite))
	for i := range udat.Cookie(depth) {
		must(0, ep.PostRecv(buffer(mem, i, size), i, udat.CompletionDefault))
	}
	return ep, mem
}

func buffer(mem *udat.LMR, i udat.Cookie, n uint64) []udat.LMRTriplet {
	return []udat.LMRTriplet{mem.Triplet(int(i)*size, int(n))}
}

// serve sends each message back to its sender until ctx ends. Then it disconnects its clients.
func serve(ctx context.Context, device string, ready func(netip.AddrPort)) {
	ia, pz, events := open(device)
	defer ia.Close(udat.CloseAbrupt) // destroys all objects that are left
	qual, psp, err := ia.CreatePSPAny(events, udat.PSPConsumer)
	ready(netip.AddrPortFrom(ia.Addr(), uint16(must(qual, err))))
	for clients := map[*udat.EP]*udat.LMR{}; psp != nil || len(clients) > 0; {
		switch ev, _, err := events.WaitContext(ctx, 1); {
		case err != nil && psp != nil && ctx.Err() != nil: // disconnect the clients
			psp.Free()
			for ep := range clients {
				ep.Disconnect(udat.CloseGraceful) // an event follows when the connection has ended
			}
			time.AfterFunc(patience, func() { ia.Close(udat.CloseAbrupt) }) // in case a client does not disconnect
			psp, ctx = nil, context.Background()
		case err != nil:
			log.Fatal(err)
		case ev.Number == udat.EventConnectionRequest && (psp == nil || len(clients) == most):
			ev.CR.Reject(nil)
		case ev.Number == udat.EventConnectionRequest:
			ep, mem := newEP(ia, pz, events)
			if clients[ep] = mem; ev.CR.Accept(ep, nil) != nil { // the client has given up
				delete(clients, ep)
				ep.Free()
				mem.Free()
			}
		case ev.Number == udat.EventDTOCompletion && ev.Status != udat.DTOSuccess: // the connection event comes next
		case ev.Number == udat.EventDTOCompletion && ev.Operation == udat.DTOReceive:
			ev.EP.PostSend(buffer(clients[ev.EP], ev.Cookie, ev.Length), ev.Cookie, udat.CompletionDefault)
		case ev.Number == udat.EventDTOCompletion: // the answer is sent: reuse its buffer for a receive
			ev.EP.PostRecv(buffer(clients[ev.EP], ev.Cookie, size), ev.Cookie, udat.CompletionDefault)
		case ev.Number != udat.EventConnectionEstablished: // the connection has ended, or was never established
			ev.EP.Free()
			clients[ev.EP].Free()
			delete(clients, ev.EP)
		}
	}
}

func call(device string, server netip.AddrPort, text string) string {
	ia, pz, events := open(device)
	defer ia.Close(udat.CloseAbrupt)
	ep, mem := newEP(ia, pz, events)
	must(0, ep.Connect(server.Addr(), udat.ConnQual(server.Port()), patience, nil, udat.QoSBestEffort, 0))
	for {
		switch ev, _, err := events.Wait(2*patience, 1); { // longer than Connect waits, to get Connect's event
		case err != nil:
			log.Fatal(err)
		case ev.Number == udat.EventConnectionEstablished:
			n := copy(mem.Bytes()[depth*size:], text)
			must(0, ep.PostSend(buffer(mem, depth, uint64(n)), depth, udat.CompletionDefault))
		case ev.Number != udat.EventDTOCompletion:
			log.Fatal("no answer: ", ev.Number, " ", ev.Err())
		case ev.Status == udat.DTOSuccess && ev.Operation == udat.DTOReceive:
			ep.Disconnect(udat.CloseGraceful)
			return string(mem.Bytes()[ev.Cookie*size:][:ev.Length])
		}
	}
}
