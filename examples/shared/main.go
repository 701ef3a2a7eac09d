// Command shared is an echo service whose clients share one queue of receives: the memory of the
// server depends on the messages in flight, and not on the number of clients.
//
//	shared DEVICE                     serve many clients until interrupted; print the address
//	shared DEVICE ADDRESS:PORT TEXT   send the text to a server and print the answer
//
// DEVICE is a name ("rxe0"), a local IP address, or tcp:ADDRESS (RDMA over TCP); it must have
// shared receive queues. In two shells:
//
//	$ go run ./examples/shared tcp:127.0.0.1
//	serving on 127.0.0.1:41015
//
//	$ go run ./examples/shared tcp:127.0.0.1 127.0.0.1:41015 hello
//	hello
//
// The connection event is not the last event of an endpoint: a Send that was posted while the
// connection ended completes after it. The server therefore frees an endpoint when it is quiet:
// each Send has its completion, and the endpoint holds no receive of the shared queue.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/netip"
	"os"
	"os/signal"
	"time"

	"github.com/godat/godat/udat"
)

// These are, in this order: the largest message in bytes, the number of buffers, the largest number
// of connections, the longest wait, and the time between two looks at ended connections.
const size, buffers, most, patience, soon = 4096, 64, 1000, 10 * time.Second, 5 * time.Millisecond

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if len(os.Args) == 2 && os.Args[1] != "-h" {
		serve(ctx, os.Args[1], func(at netip.AddrPort) { fmt.Println("serving on", at) })
	} else if len(os.Args) == 4 && len(os.Args[3]) <= size {
		fmt.Println(call(os.Args[1], must(netip.ParseAddrPort(os.Args[2])), os.Args[3]))
	} else {
		log.Fatal("usage: shared DEVICE [ADDRESS:PORT TEXT], with a text of at most ", size, " bytes")
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}

// open opens the device, with n buffers. One event dispatcher, events, has the events of all
// connections.
func open(device string, n int) (ia *udat.IA, pz *udat.PZ, events *udat.EVD, mem *udat.LMR) {
	ia = must(udat.Open(device))
	pz = must(ia.CreatePZ())
	events = must(ia.CreateEVD(2*n+2*most, udat.EVDDTO|udat.EVDConnection|udat.EVDCR, nil))
	return ia, pz, events, must(ia.AllocLMR(pz, n*size, udat.PrivLocalRead|udat.PrivLocalWrite))
}

func buffer(mem *udat.LMR, i udat.Cookie, n uint64) []udat.LMRTriplet {
	return []udat.LMRTriplet{mem.Triplet(int(i)*size, int(n))}
}

type server struct {
	ia      *udat.IA
	pz      *udat.PZ
	events  *udat.EVD
	mem     *udat.LMR
	queue   *udat.SRQ // has each buffer that no Send has
	clients map[*udat.EP]*client
	ended   int // number of clients whose connection has ended
}

type client struct {
	sends int // posted and not completed
	ended bool
}

// newServer opens a device and posts a receive for each buffer.
func newServer(device string) *server {
	s := &server{clients: map[*udat.EP]*client{}}
	s.ia, s.pz, s.events, s.mem = open(device, buffers)
	s.queue = must(s.ia.CreateSRQ(s.pz, udat.SRQAttr{MaxRecvDTOs: buffers, MaxRecvIOV: 1}))
	var receives []udat.Recv
	for i := range udat.Cookie(buffers) {
		receives = append(receives, udat.Recv{IOV: buffer(s.mem, i, size), Cookie: i})
	}
	must(s.queue.PostRecvBatch(receives))
	return s
}

// serve sends each message back to its sender until ctx ends. Then it disconnects its clients, and
// returns the number of receives on the queue. It is that of the buffers: none was lost.
func serve(ctx context.Context, device string, ready func(netip.AddrPort)) int {
	s := newServer(device)
	defer s.ia.Close(udat.CloseAbrupt) // destroys all objects that are left
	qual, psp, err := s.ia.CreatePSPAny(s.events, udat.PSPConsumer)
	ready(netip.AddrPortFrom(s.ia.Addr(), uint16(must(qual, err))))
	for psp != nil || len(s.clients) > 0 {
		wait := udat.Infinite
		if s.ended > 0 {
			wait = soon
		}
		turn, cancel := context.WithTimeout(ctx, wait)
		ev, _, err := s.events.WaitContext(turn, 1)
		cancel()
		switch {
		case err != nil && ctx.Err() != nil: // disconnect the clients
			psp.Free()
			for ep := range s.clients {
				ep.Disconnect(udat.CloseGraceful) // an event follows when the connection has ended
			}
			time.AfterFunc(patience, func() { s.ia.Close(udat.CloseAbrupt) }) // in case a client does not disconnect
			psp, ctx = nil, context.Background()
		case errors.Is(err, context.DeadlineExceeded):
			s.freeQuiet()
		case err != nil:
			log.Fatal(err)
		case ev.Number == udat.EventConnectionRequest && (psp == nil || len(s.clients) == most):
			ev.CR.Reject(nil)
		default:
			s.handle(ev)
		}
	}
	return must(s.queue.Query()).OutstandingDTOCount
}

func (s *server) handle(ev udat.Event) {
	c := s.clients[ev.EP]
	switch {
	case ev.Number == udat.EventConnectionRequest:
		attr := &udat.EPAttr{MaxRequestDTOs: buffers}
		ep := must(s.ia.CreateEPWithSRQ(s.pz, s.events, s.events, s.events, s.queue, attr))
		if s.clients[ep] = new(client); ev.CR.Accept(ep, nil) != nil { // the client has given up
			delete(s.clients, ep)
			ep.Free()
		}
	case ev.Number == udat.EventConnectionEstablished:
	case ev.Number != udat.EventDTOCompletion: // the connection has ended, or was never established
		c.ended = true
		s.ended++
	case ev.Operation == udat.DTOReceive && ev.Status == udat.DTOSuccess && c != nil &&
		ev.EP.PostSend(buffer(s.mem, ev.Cookie, ev.Length), ev.Cookie, udat.CompletionDefault) == nil:
		c.sends++
	default: // a Send has ended, or a receive without a message: the buffer is free
		if ev.Operation == udat.DTOSend {
			c.sends--
		}
		must(0, s.queue.PostRecv(buffer(s.mem, ev.Cookie, size), ev.Cookie))
	}
}

// freeQuiet frees the endpoints of ended connections that are quiet.
func (s *server) freeQuiet() {
	for ep, c := range s.clients {
		if !c.ended || c.sends > 0 {
			continue
		}
		if _, holdsNone, _, err := ep.GetStatus(); err == nil && holdsNone {
			ep.Free()
			delete(s.clients, ep)
			s.ended--
		}
	}
}

func call(device string, server netip.AddrPort, text string) string {
	ia, pz, events, mem := open(device, 2)
	defer ia.Close(udat.CloseAbrupt)
	ep := must(ia.CreateEP(pz, events, events, events, nil))
	must(0, ep.PostRecv(buffer(mem, 0, size), 0, udat.CompletionDefault)) // before the connection: the peer may be fast
	must(0, ep.Connect(server.Addr(), udat.ConnQual(server.Port()), patience, nil, udat.QoSBestEffort, 0))
	for {
		switch ev, _, err := events.Wait(2*patience, 1); { // longer than Connect waits, to get Connect's event
		case err != nil:
			log.Fatal(err)
		case ev.Number == udat.EventConnectionEstablished:
			n := copy(mem.Bytes()[size:], text)
			must(0, ep.PostSend(buffer(mem, 1, uint64(n)), 1, udat.CompletionDefault))
		case ev.Number != udat.EventDTOCompletion:
			log.Fatal("no answer: ", ev.Number, " ", ev.Err())
		case ev.Status == udat.DTOSuccess && ev.Operation == udat.DTOReceive:
			ep.Disconnect(udat.CloseGraceful)
			return string(mem.Bytes()[:ev.Length])
		}
	}
}
