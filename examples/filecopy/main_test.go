package main

import (
	"bytes"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/examples/internal/exampletest"
	"github.com/godat/godat/rdmanet"
)

func TestMain(m *testing.M) { exampletest.Main(m, main) }

func TestUsage(t *testing.T) { exampletest.Usage(t, "usage: filecopy DEVICE") }

// sizes are file sizes: empty, part of a slot, exactly one slot, more than the ring.
var sizes = []int{0, 1, slot, 2*slot*slots + 5}

// file creates a file of n random bytes. It returns the name of the file, the name for the copy,
// and the bytes.
func file(t *testing.T, n int) (from, to string, content []byte) {
	content = make([]byte, n)
	rand.NewChaCha8([32]byte{byte(n)}).Read(content)
	from, to = filepath.Join(t.TempDir(), "from"), filepath.Join(t.TempDir(), "to")
	assert.NilError(t, os.WriteFile(from, content, 0o600))
	return from, to, content
}

func same(t *testing.T, name string, content []byte) {
	t.Helper()
	got, err := os.ReadFile(name)
	assert.NilError(t, err)
	assert.Assert(t, bytes.Equal(got, content), "%d bytes have become %d others", len(content), len(got))
}

// Runs both ends in one process, on mem0.
func TestInside(t *testing.T) {
	exampletest.Inside(t)
	for _, n := range sizes {
		from, to, content := file(t, n)
		address, done := make(chan string, 1), make(chan error, 1)
		go func() { done <- receive("mem0", to, func(at net.Addr) { address <- at.String() }) }()
		assert.NilError(t, send("mem0", from, <-address))
		assert.NilError(t, <-done)
		same(t, to, content)
	}
}

// If the sender ends early, or sends what no sender sends, the receiver fails, and no file with the
// final name exists.
func TestCutShort(t *testing.T) {
	exampletest.Inside(t)
	for last, want := range map[string]string{"": "", "12345678": "bytes in a slot", "9": "in a message of 1"} {
		_, to, _ := file(t, 0)
		address, done := make(chan string, 1), make(chan error, 1)
		go func() { done <- receive("mem0", to, func(at net.Addr) { address <- at.String() }) }()
		conn, err := (&rdmanet.Dialer{Device: "mem0"}).Dial(t.Context(), "rdma", <-address)
		assert.NilError(t, err)
		messages := rdmanet.NewMessages(conn)
		assert.NilError(t, messages.SendMsg(t.Context(), []byte{0, 0, 0, 0, 0, 0, 0, 9}))
		if last != "" {
			assert.NilError(t, messages.SendMsg(t.Context(), []byte(last)))
		} else {
			assert.NilError(t, conn.Close())
		}
		assert.ErrorContains(t, <-done, want)
		conn.Close()
		_, err = os.Stat(to)
		assert.ErrorIs(t, err, os.ErrNotExist)
	}
}

// Runs the two ends as processes on a device.
func TestProcesses(t *testing.T) {
	device := exampletest.Device(t)
	if testing.Short() {
		sizes = sizes[len(sizes)-1:]
	}
	for _, n := range sizes {
		from, to, content := file(t, n)
		receiver := exampletest.Start(t, device, to)
		exampletest.Run(t, device, from, receiver.Address(t))
		receiver.Wait(t)
		same(t, to, content)
	}
}
