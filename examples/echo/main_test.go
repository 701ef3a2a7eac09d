package main

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/examples/internal/exampletest"
	"github.com/godat/godat/udat"
)

func TestMain(m *testing.M) { exampletest.Main(m, main) }

// Runs in one process, on mem0, with several clients at once. The server ends when its context
// ends, and its idle client is disconnected.
func TestInside(t *testing.T) {
	exampletest.Inside(t)
	ctx, interrupt := context.WithCancel(t.Context())
	address, ended := make(chan netip.AddrPort, 1), make(chan bool)
	go func() {
		defer close(ended)
		serve(ctx, "mem0", func(at netip.AddrPort) { address <- at })
	}()
	server := <-address
	var clients sync.WaitGroup
	for i := range 8 {
		clients.Go(func() {
			text := fmt.Sprint("message of client ", i)
			assert.Check(t, call("mem0", server, text) == text)
		})
	}
	clients.Wait()
	ia, pz, events := open("mem0")
	defer ia.Close(udat.CloseAbrupt)
	ep, _ := newEP(ia, pz, events)
	assert.NilError(t, ep.Connect(server.Addr(), udat.ConnQual(server.Port()), patience, nil, udat.QoSBestEffort, 0))
	expect(t, events, udat.EventConnectionEstablished)
	interrupt()
	expect(t, events, udat.EventConnectionDisconnected)
	select {
	case <-ended:
	case <-time.After(exampletest.Patience):
		t.Fatal("the server has not ended")
	}
}

// expect waits for a connection event. It skips the flushed receives that come before the event.
func expect(t *testing.T, events *udat.EVD, number udat.EventNumber) {
	t.Helper()
	for {
		ev, _, err := events.Wait(exampletest.Patience, 1)
		assert.NilError(t, err)
		if ev.Number != udat.EventDTOCompletion {
			assert.Equal(t, ev.Number, number)
			return
		}
	}
}

// Runs in several processes on a device. The interrupted server ends with status 0.
func TestProcesses(t *testing.T) {
	device := exampletest.Device(t)
	server := exampletest.Start(t, device)
	address := server.Address(t)
	clients := map[string]*exampletest.Process{}
	for i := range 3 {
		text := fmt.Sprint("message of client ", i)
		clients[text] = exampletest.Start(t, device, address, text)
	}
	for text, client := range clients {
		assert.Equal(t, client.Wait(t), text+"\n")
	}
	server.Interrupt(t)
	server.Wait(t)
}
