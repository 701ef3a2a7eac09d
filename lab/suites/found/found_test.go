// Package found contains a small test for each defect of rdmanet that the suites have found. The
// tests do not need the other project. They run on mem0, or on the device that the environment
// names.
package found

import (
	"cmp"
	"context"
	"io"
	"net/http/httptrace"
	"testing"
	"time"

	"github.com/godat/godat/lab/suites/wire"
	"github.com/godat/godat/rdmanet"
)

var device = cmp.Or(wire.Device(), "mem0")

func pair(t *testing.T) (a, b *rdmanet.Conn) {
	t.Helper()
	lc := rdmanet.ListenConfig{Device: device}
	l, err := lc.Listen(t.Context(), "rdma", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	d := rdmanet.Dialer{Device: device}
	if a, err = d.Dial(t.Context(), "rdma", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	b = c.(*rdmanet.Conn)
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

// TestWriteAfterPeerClose: as over TCP, the first Write after the peer's Close returns no error.
// Else the Close of a tls.Conn, which writes an alert, fails whenever the server closes first, and
// net/smtp reports a mail as not sent that was delivered.
func TestWriteAfterPeerClose(t *testing.T) {
	a, b := pair(t)
	go b.Close()
	if _, err := a.Read(make([]byte, 1)); err != io.EOF {
		t.Fatal(err)
	}
	if _, err := a.Write([]byte("bye")); err != nil {
		t.Errorf("the first Write after the peer's Close: %v", err)
	}
	deadline := time.Now().Add(30 * time.Second)
	for { // a later one fails
		if _, err := a.Write([]byte("bye")); err != nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("Writes to a closed peer go on without an error")
		}
		time.Sleep(time.Millisecond)
	}
}

// TestTrace: the trace of a Dial contains the look-up and the connection, but not connections to
// the name server.
func TestTrace(t *testing.T) {
	lc := rdmanet.ListenConfig{Device: device}
	l, err := lc.Listen(t.Context(), "rdma", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var events []string
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
		ConnectStart: func(network, address string) { events = append(events, "start "+address) },
		ConnectDone:  func(network, address string, err error) { events = append(events, "done "+address) },
	})
	d := rdmanet.Dialer{Device: device}
	c, err := d.Dial(ctx, "rdma", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	if len(events) != 2 {
		t.Errorf("a dial has the events %q", events)
	}
	events = nil
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if _, err := d.Dial(ctx, "rdma", "nowhere.invalid:1"); err == nil {
		t.Error("nowhere is reached")
	}
	if len(events) != 0 {
		t.Errorf("a look-up without a result has the events %q", events)
	}
}

// TestAcceptOrder: Accept returns connections in the order in which they were dialed.
func TestAcceptOrder(t *testing.T) {
	lc := rdmanet.ListenConfig{Device: device}
	l, err := lc.Listen(t.Context(), "rdma", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	d := rdmanet.Dialer{Device: device}
	wrong := 0
	const rounds = 100
	for range rounds {
		var dialed, accepted []*rdmanet.Conn
		for range 4 {
			c, err := d.Dial(t.Context(), "rdma", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			dialed = append(dialed, c)
		}
		for i := range dialed {
			c, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			accepted = append(accepted, c.(*rdmanet.Conn))
			if c.RemoteAddr().String() != dialed[i].LocalAddr().String() {
				wrong++
			}
		}
		for i := range dialed {
			dialed[i].Close()
			accepted[i].Close()
		}
	}
	if wrong > 0 {
		t.Errorf("%d of %d connections were accepted out of turn", wrong, 4*rounds)
	}
}
