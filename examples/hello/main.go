// Command hello connects two endpoints through an RDMA device and sends a message from one to the
// other.
//
//	hello [DEVICE]
//
// DEVICE is a name ("rxe0", "mlx5_0") or a local IP address. The default is mem0 (RDMA inside this
// process).
//
//	$ go run ./examples/hello
//	request from 127.0.0.1: "let me in"
//	received 15 bytes: hello over mem0
package main

import (
	"fmt"
	"log"
	"os"
	"time"

	"github.com/godat/godat/udat"
)

const patience = 10 * time.Second

func main() {
	device := "mem0"
	if len(os.Args) > 1 {
		device = os.Args[1]
	}
	if len(os.Args) > 2 || device == "-h" {
		log.Fatal("usage: hello [DEVICE]")
	}
	if err := run(device); err != nil {
		log.Fatal(err)
	}
}

// end has the objects of one end of a connection. The field events is the dispatcher of all its
// events.
type end struct {
	pz     *udat.PZ
	events *udat.EVD
	ep     *udat.EP
	memory *udat.LMR
}

func newEnd(ia *udat.IA) (*end, error) {
	pz, err := ia.CreatePZ()
	if err != nil {
		return nil, err
	}
	events, err := ia.CreateEVD(64, udat.EVDDTO|udat.EVDConnection|udat.EVDCR, nil)
	if err != nil {
		return nil, err
	}
	ep, err := ia.CreateEP(pz, events, events, events, nil)
	if err != nil {
		return nil, err
	}
	memory, err := ia.AllocLMR(pz, 4096, udat.PrivAll)
	return &end{pz, events, ep, memory}, err
}

// expect waits for the next event and returns an error if the event is not of the expected type. It
// skips flushed completions: posted operations complete as flushed when the connection ends or is
// refused, and the event with the reason comes after them.
func (e *end) expect(number udat.EventNumber) (udat.Event, error) {
	for {
		ev, _, err := e.events.Wait(2*patience, 1)
		switch {
		case err != nil:
			return ev, err
		case ev.Number == udat.EventDTOCompletion && ev.Status == udat.DTOErrFlushed:
			continue
		case ev.Number != number || ev.Status != udat.DTOSuccess:
			return ev, fmt.Errorf("got %v %v, want %v", ev.Number, ev.Status, number)
		}
		return ev, nil
	}
}

func run(device string) error {
	ia, err := udat.Open(device)
	if err != nil {
		return err
	}
	defer ia.Close(udat.CloseAbrupt) // destroys whatever is left

	server, err := newEnd(ia)
	if err != nil {
		return err
	}
	client, err := newEnd(ia)
	if err != nil {
		return err
	}
	// A receive may be posted before there is a connection.
	if err := server.ep.PostRecv([]udat.LMRTriplet{server.memory.Triplet(0, 4096)}, 1,
		udat.CompletionDefault); err != nil {
		return err
	}
	qual, _, err := ia.CreatePSPAny(server.events, udat.PSPConsumer)
	if err != nil {
		return err
	}
	if err := client.ep.Connect(ia.Addr(), qual, patience, []byte("let me in"), udat.QoSBestEffort,
		udat.ConnectDefault); err != nil {
		return err
	}
	request, err := server.expect(udat.EventConnectionRequest)
	if err != nil {
		return err
	}
	param, err := request.CR.Query()
	if err != nil {
		return err
	}
	fmt.Printf("request from %v: %q\n", param.RemoteAddr, param.PrivateData)
	if err := request.CR.Accept(server.ep, nil); err != nil {
		return err
	}
	for _, e := range []*end{server, client} {
		if _, err := e.expect(udat.EventConnectionEstablished); err != nil {
			return err
		}
	}
	n := copy(client.memory.Bytes(), "hello over "+device)
	if err := client.ep.PostSend([]udat.LMRTriplet{client.memory.Triplet(0, n)}, 2, udat.CompletionDefault); err != nil {
		return err
	}
	received, err := server.expect(udat.EventDTOCompletion)
	if err != nil {
		return err
	}
	fmt.Printf("received %d bytes: %s\n", received.Length, server.memory.Bytes()[:received.Length])
	return client.ep.Disconnect(udat.CloseGraceful)
}
