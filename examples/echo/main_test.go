package main

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/examples/internal/exampletest"
	"github.com/godat/godat/rdmanet"
)

func TestMain(m *testing.M) { exampletest.Main(m, main) }

func TestUsage(t *testing.T) { exampletest.Usage(t, "usage: echo DEVICE") }

// Runs on mem0: the server serves several clients at once. The server ends when its context
// ends, and its idle client is disconnected.
func TestInside(t *testing.T) {
	exampletest.Inside(t)
	ctx, interrupt := context.WithCancel(t.Context())
	address, ended := make(chan string, 1), make(chan bool)
	go func() {
		defer close(ended)
		serve(ctx, "mem0", func(at net.Addr) { address <- at.String() })
	}()
	server := <-address
	var clients sync.WaitGroup
	for i := range 8 {
		clients.Go(func() {
			text := fmt.Sprint("message of client ", i)
			assert.Check(t, call(t.Context(), "mem0", server, text) == text)
		})
	}
	clients.Wait()
	idle, err := (&rdmanet.Dialer{Device: "mem0"}).Dial(t.Context(), "rdma", server)
	assert.NilError(t, err)
	defer idle.Close()
	messages := rdmanet.NewMessages(idle) // an answer says that the server has accepted
	assert.NilError(t, messages.SendMsg(t.Context(), []byte("x")))
	_, err = messages.RecvMsg(t.Context(), make([]byte, 1))
	assert.NilError(t, err)
	interrupt()
	assert.NilError(t, idle.SetReadDeadline(time.Now().Add(exampletest.Patience)))
	_, err = idle.Read(make([]byte, 1))
	assert.ErrorContains(t, err, "EOF")
	select {
	case <-ended:
	case <-time.After(exampletest.Patience):
		t.Fatal("the server has not ended")
	}
}

// Runs in several processes on a device. The interrupted server ends with status 0.
func TestProcesses(t *testing.T) {
	exampletest.Messages(t, exampletest.Device(t))
}
