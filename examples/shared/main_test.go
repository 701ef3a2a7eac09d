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

func TestUsage(t *testing.T) { exampletest.Usage(t, "usage: shared DEVICE") }

// started runs a server on a device. The result ends it and returns the number of receives that it
// has left.
func started(t *testing.T, device string) (server netip.AddrPort, end func() int) {
	ctx, interrupt := context.WithCancel(t.Context())
	address, left := make(chan netip.AddrPort, 1), make(chan int, 1)
	go func() { left <- serve(ctx, device, func(at netip.AddrPort) { address <- at }) }()
	return <-address, func() int {
		interrupt()
		select {
		case n := <-left:
			return n
		case <-time.After(exampletest.Patience):
			t.Fatal("the server has not ended")
			return 0
		}
	}
}

// connected is a client's endpoint with n receives, and its dispatcher.
func connected(t *testing.T, device string, server netip.AddrPort, n int) (*udat.IA, *udat.EP, *udat.EVD, *udat.LMR) {
	ia, pz, events, mem := open(device, n+1)
	ep, err := ia.CreateEP(pz, events, events, events, nil)
	assert.NilError(t, err)
	for i := range udat.Cookie(n) {
		assert.NilError(t, ep.PostRecv(buffer(mem, i, size), i, udat.CompletionDefault))
	}
	assert.NilError(t, ep.Connect(server.Addr(), udat.ConnQual(server.Port()), patience, nil, udat.QoSBestEffort, 0))
	expect(t, events, udat.EventConnectionEstablished)
	return ia, ep, events, mem
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

// Runs in one process, on mem0, with several clients at once. The server ends when its context
// ends, and its idle client is disconnected.
func TestInside(t *testing.T) {
	exampletest.Inside(t)
	server, end := started(t, "mem0")
	var clients sync.WaitGroup
	for i := range 8 {
		clients.Go(func() {
			text := fmt.Sprint("message of client ", i)
			assert.Check(t, call("mem0", server, text) == text)
		})
	}
	clients.Wait()
	ia, _, events, _ := connected(t, "mem0", server, 1)
	defer ia.Close(udat.CloseAbrupt)
	assert.Equal(t, end(), buffers)
	expect(t, events, udat.EventConnectionDisconnected)
}

// A client goes away while the server has its messages and has not answered them: the Sends that
// the server then posts complete after the connection event. The endpoint is freed after them, and
// no buffer is lost.
func TestQuiet(t *testing.T) {
	exampletest.Inside(t)
	const messages = 8
	for _, device := range []string{"mem0", "tcp:127.0.0.1"} {
		s := newServer(device)
		defer s.ia.Close(udat.CloseAbrupt)
		qual, _, err := s.ia.CreatePSPAny(s.events, udat.PSPConsumer)
		assert.NilError(t, err)
		next := func() udat.Event { return must3(s.events.Wait(exampletest.Patience, 1)) }
		done := make(chan bool)
		go func() {
			defer close(done)
			address := netip.AddrPortFrom(s.ia.Addr(), uint16(qual))
			ia, ep, events, mem := connected(t, device, address, messages)
			defer ia.Close(udat.CloseAbrupt)
			for range messages {
				must(0, ep.PostSend(buffer(mem, messages, 100), 99, udat.CompletionDefault))
			}
			for range messages {
				must3(events.Wait(exampletest.Patience, 1))
			}
			ep.Disconnect(udat.CloseAbrupt)
		}()
		s.handle(next()) // the request
		s.handle(next()) // established
		var pending []udat.Event
		for len(pending) <= messages {
			pending = append(pending, next())
		}
		<-done
		for _, ev := range pending { // the last is the connection event
			s.handle(ev)
		}
		assert.Equal(t, s.ended, 1)
		for behind := 0; len(s.clients) > 0; behind++ {
			s.freeQuiet()
			if behind < messages {
				assert.Equal(t, len(s.clients), 1, "a Send is on its way")
				ev := next()
				assert.Equal(t, ev.Operation, udat.DTOSend)
				s.handle(ev)
			}
		}
		assert.Equal(t, must(s.queue.Query()).OutstandingDTOCount, buffers)
	}
}

func must3(ev udat.Event, _ int, err error) udat.Event { return must(ev, err) }

// Runs in several processes on a device. The interrupted server ends with status 0.
func TestProcesses(t *testing.T) {
	device := exampletest.Device(t)
	ia, err := udat.Open(device)
	assert.NilError(t, err)
	_, _, provider, err := ia.Query()
	ia.Close(udat.CloseAbrupt)
	assert.NilError(t, err)
	if !provider.SRQSupported {
		t.Skip("the device has no shared receive queues")
	}
	exampletest.Messages(t, device)
}
