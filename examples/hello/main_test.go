package main

import (
	"fmt"
	"net/netip"
	"os"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/examples/internal/exampletest"
	"github.com/godat/godat/udat"
)

func TestMain(m *testing.M) { exampletest.Main(m, main) }

func TestUsage(t *testing.T) { exampletest.Usage(t, "usage: hello [DEVICE]") }

// onEach runs a test inside this process, and on the device that the environment names.
func onEach(t *testing.T, test func(t *testing.T, device string)) {
	devices := []string{"mem0"}
	if d := os.Getenv("GODAT_TEST_DEVICE"); d != "" {
		devices = append(devices, d)
	}
	for _, d := range devices {
		t.Run(d, func(t *testing.T) { test(t, d) })
	}
}

// addressOf returns the address of a device.
func addressOf(t *testing.T, device string) string {
	ia, err := udat.Open(device)
	assert.NilError(t, err)
	defer ia.Close(udat.CloseAbrupt)
	return ia.Addr().String()
}

// TestHello runs the example.
func TestHello(t *testing.T) {
	onEach(t, func(t *testing.T, device string) { assert.NilError(t, run(device)) })
}

// TestGuide runs the program of docs/udapl.md, which is at the end of this file, against a server,
// and against a port where nobody listens. In the second case the error says that the connection
// was refused, although the receive is flushed first.
func TestGuide(t *testing.T) {
	onEach(t, func(t *testing.T, device string) {
		ia, err := udat.Open(device)
		assert.NilError(t, err)
		defer ia.Close(udat.CloseAbrupt)
		server, err := newEnd(ia)
		assert.NilError(t, err)
		qual, psp, err := ia.CreatePSPAny(server.events, udat.PSPConsumer)
		assert.NilError(t, err)
		assert.NilError(t, server.ep.PostRecv([]udat.LMRTriplet{server.memory.Triplet(0, 4096)}, 1, udat.CompletionDefault))
		client := make(chan error, 1)
		go func() { client <- hello(device, ia.Addr(), qual) }()
		request, err := server.expect(udat.EventConnectionRequest)
		assert.NilError(t, err)
		assert.NilError(t, request.CR.Accept(server.ep, nil))
		_, err = server.expect(udat.EventConnectionEstablished)
		assert.NilError(t, err)
		received, err := server.expect(udat.EventDTOCompletion)
		assert.NilError(t, err)
		assert.Equal(t, string(server.memory.Bytes()[:received.Length]), "hello")
		assert.NilError(t, <-client)

		assert.NilError(t, psp.Free())
		assert.ErrorContains(t, hello(device, ia.Addr(), qual),
			"the connection has ended: DAT_CONNECTION_EVENT_NON_PEER_REJECTED")
	})
}

// TestRefused connects the example's client, with a posted receive, to a port where nobody listens.
func TestRefused(t *testing.T) {
	onEach(t, func(t *testing.T, device string) {
		ia, err := udat.Open(device)
		assert.NilError(t, err)
		defer ia.Close(udat.CloseAbrupt)
		client, err := newEnd(ia)
		assert.NilError(t, err)
		qual, psp, err := ia.CreatePSPAny(client.events, udat.PSPConsumer)
		assert.NilError(t, err)
		assert.NilError(t, psp.Free())
		assert.NilError(t, client.ep.PostRecv([]udat.LMRTriplet{client.memory.Triplet(0, 4096)}, 1, udat.CompletionDefault))
		assert.NilError(t, client.ep.Connect(ia.Addr(), qual, patience, nil, udat.QoSBestEffort, udat.ConnectDefault))
		_, err = client.expect(udat.EventConnectionEstablished)
		assert.ErrorContains(t, err, "got DAT_CONNECTION_EVENT_NON_PEER_REJECTED")
	})
}

// hello connects to a server, sends it a message, and waits until the send is done.
func hello(device string, server netip.Addr, port udat.ConnQual) error {
	ia, err := udat.Open(device) // a name ("rxe0") or a local IP address; udat.Providers() lists them
	if err != nil {
		return err
	}
	defer ia.Close(udat.CloseAbrupt) // destroys whatever is left
	pz, err := ia.CreatePZ()         // memory and endpoints of one zone work together
	if err != nil {
		return err
	}
	events, err := ia.CreateEVD(64, udat.EVDDTO|udat.EVDConnection, nil)
	if err != nil {
		return err
	}
	ep, err := ia.CreateEP(pz, events, events, events, nil)
	if err != nil {
		return err
	}
	mem, err := ia.AllocLMR(pz, 4096, udat.PrivAll) // or CreateLMR for your own memory
	if err != nil {
		return err
	}
	const receive, send = 1, 2 // cookies, returned in the completions
	if err := ep.PostRecv([]udat.LMRTriplet{mem.Triplet(2048, 2048)}, receive, udat.CompletionDefault); err != nil {
		return err
	}
	if err := ep.Connect(server, port, 5*time.Second, nil, udat.QoSBestEffort, udat.ConnectDefault); err != nil {
		return err
	}
	for { // Number is the kind of the event, Cookie identifies a completion
		ev, _, err := events.Wait(10*time.Second, 1)
		switch {
		case err != nil:
			return err
		case ev.Number == udat.EventConnectionEstablished:
			n := copy(mem.Bytes(), "hello")
			if err := ep.PostSend([]udat.LMRTriplet{mem.Triplet(0, n)}, send, udat.CompletionDefault); err != nil {
				return err
			}
		case ev.Number != udat.EventDTOCompletion:
			// Refused, timed out, broken or disconnected.
			return fmt.Errorf("the connection has ended: %v", ev.Number)
		case ev.Status == udat.DTOErrFlushed:
			// Flushed with the connection, whose event follows with the cause.
		case ev.Status != udat.DTOSuccess:
			return fmt.Errorf("operation %d: %v", ev.Cookie, ev.Status)
		case ev.Cookie == send:
			return ep.Disconnect(udat.CloseGraceful)
		}
	}
}
