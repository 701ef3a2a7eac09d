package main

import (
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/examples/internal/exampletest"
)

func TestMain(m *testing.M) { exampletest.Main(m, main) }

func TestUsage(t *testing.T) { exampletest.Usage(t, "usage: kv DEVICE") }

// started starts a server on mem0 that runs until the test ends. It returns the pipe for the input
// lines and a connected reader.
func started(t *testing.T) (io.Writer, *reader) {
	lines, input := io.Pipe()
	address, done := make(chan string, 1), make(chan error, 1)
	go func() { done <- serve("mem0", lines, func(at net.Addr) { address <- at.String() }) }()
	r, err := dial(t.Context(), "mem0", <-address)
	assert.NilError(t, err)
	t.Cleanup(func() {
		r.conn.Close()
		input.Close()
		assert.NilError(t, <-done)
	})
	return input, r
}

// eventually reads the key until it has the value.
func eventually(t *testing.T, r *reader, key, want string) {
	t.Helper()
	var value string
	var err error
	for until := time.Now().Add(exampletest.Patience); time.Now().Before(until) && (err != nil || value != want); {
		value, err = r.get(t.Context(), key)
	}
	assert.NilError(t, err)
	assert.Equal(t, value, want)
}

func TestInside(t *testing.T) {
	exampletest.Inside(t)
	input, r := started(t)
	_, err := r.get(t.Context(), "colour")
	assert.ErrorContains(t, err, `there is no "colour"`)
	fmt.Fprintln(input, "colour=green")
	eventually(t, r, "colour", "green")
	fmt.Fprintln(input, "colour=of a longer name")
	eventually(t, r, "colour", "of a longer name")
}

// Without a server the reader returns an error that says so.
func TestNobody(t *testing.T) {
	exampletest.Inside(t)
	for _, device := range []string{"mem0", "tcp:127.0.0.1"} {
		_, err := dial(t.Context(), device, "127.0.0.1:1")
		assert.ErrorIs(t, err, syscall.ECONNREFUSED)
	}
}

// A reader never returns a mixture of two values, however often the server stores new ones.
func TestMixture(t *testing.T) {
	exampletest.Inside(t)
	input, r := started(t)
	var writer sync.WaitGroup
	stop := make(chan bool)
	writer.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				fmt.Fprintf(input, "k=%s\n", strings.Repeat(string(rune('a'+i%26)), 200))
			}
		}
	})
	for range 2000 {
		if value, err := r.get(t.Context(), "k"); err == nil {
			assert.Equal(t, value, strings.Repeat(value[:1], 200))
		} else {
			assert.ErrorContains(t, err, "there is no", "but that the key is not there yet")
		}
	}
	close(stop)
	writer.Wait()
}

// If any byte of a slot changes, the checksum does not match.
func TestTorn(t *testing.T) {
	exampletest.Inside(t)
	slot := make([]byte, size)
	seal(slot)
	_, _, err := parse(slot)
	assert.NilError(t, err)
	for i := range slot {
		slot[i]++
		_, _, err = parse(slot)
		assert.ErrorIs(t, err, errTorn, "byte %d", i)
		slot[i]--
	}
}

// A value that the table cannot store is refused, with the reason.
func TestRefused(t *testing.T) {
	exampletest.Inside(t)
	mem := newTable()
	assert.NilError(t, mem.set("k182", "first"))
	assert.Equal(t, slotOf("k1989"), slotOf("k182"))
	assert.Error(t, mem.set("k1989", "second"), `the slot of "k1989" has the key "k182"`)
	assert.ErrorContains(t, mem.set("", "value"), "a key is not empty")
	assert.ErrorContains(t, mem.set("k", strings.Repeat("v", size-header)), "have 245 bytes, the limit is 244")
}

// Runs server and client as processes on a device.
func TestProcesses(t *testing.T) {
	device := exampletest.Device(t)
	server := exampletest.Start(t, device)
	address := server.Address(t)
	fmt.Fprintln(server.Stdin, "colour=green")
	assert.Equal(t, server.Line(t), "set colour")
	fmt.Fprintln(server.Stdin, "=no key")
	fmt.Fprintln(server.Stdin, "shape=round")
	assert.Equal(t, server.Line(t), "set shape")
	assert.Equal(t, exampletest.Run(t, device, address, "shape", "colour"), "shape=round\ncolour=green\n")
	server.Stdin.Close()
	server.Wait(t)
}
