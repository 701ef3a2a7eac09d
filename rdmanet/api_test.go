package rdmanet_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/rdmanet"
)

// TestNoConn: each call of a nil Conn and of the zero Conn returns EINVAL, as those of package net
// do.
func TestNoConn(t *testing.T) {
	for name, c := range map[string]*rdmanet.Conn{"nil": nil, "zero": {}} {
		var word uint64
		one := make([]byte, 1)
		atomics := c.NewBatch()
		atomics.FetchAdd(rdmanet.Remote{}, 1, &word)
		atomics.CompareSwap(rdmanet.Remote{}, 1, 2, &word)
		atomics.Read(nil, 0, rdmanet.Remote{})
		memory, messages := c.RemoteMemory(t.Context(), rdmanet.Remote{}), rdmanet.NewMessages(c)
		for call, try := range map[string]func() error{
			"Read":             func() error { _, err := c.Read(one); return err },
			"Read of nothing":  func() error { _, err := c.Read(nil); return err },
			"Write":            func() error { _, err := c.Write(one); return err },
			"ReadFrom":         func() error { _, err := c.ReadFrom(strings.NewReader("x")); return err },
			"WriteTo":          func() error { _, err := c.WriteTo(io.Discard); return err },
			"WriteRegion":      func() error { _, err := c.WriteRegion(nil, 0, 1); return err },
			"ReadRemote":       func() error { return c.ReadRemote(t.Context(), nil, 0, rdmanet.Remote{}) },
			"WriteRemote":      func() error { return c.WriteRemote(t.Context(), rdmanet.Remote{}, nil, 0) },
			"FetchAdd":         func() error { _, err := c.FetchAdd(t.Context(), rdmanet.Remote{}, 1); return err },
			"CompareSwap":      func() error { _, err := c.CompareSwap(t.Context(), rdmanet.Remote{}, 1, 2); return err },
			"empty batch":      func() error { return c.NewBatch().Do(t.Context()) },
			"Batch.Start":      func() error { _, err := atomics.Start(t.Context()); return err },
			"NewRegion":        func() error { _, err := c.NewRegion(one, 0); return err },
			"Grant":            func() error { _, err := c.Grant(t.Context(), nil, 0, 1, rdmanet.PeerReads); return err },
			"ReadAt":           func() error { _, err := memory.ReadAt(one, 0); return err },
			"WriteAt":          func() error { _, err := memory.WriteAt(one, 0); return err },
			"SendMsg":          func() error { return messages.SendMsg(t.Context(), one) },
			"RecvMsg":          func() error { _, err := messages.RecvMsg(t.Context(), one); return err },
			"Messages.Close":   messages.Close,
			"CloseRead":        c.CloseRead,
			"CloseWrite":       c.CloseWrite,
			"SetDeadline":      func() error { return c.SetDeadline(time.Time{}) },
			"SetReadDeadline":  func() error { return c.SetReadDeadline(time.Time{}) },
			"SetWriteDeadline": func() error { return c.SetWriteDeadline(time.Time{}) },
			"SetLinger":        func() error { return c.SetLinger(1) },
			"SetReadBuffer":    func() error { return c.SetReadBuffer(4096) },
			"Close":            c.Close,
			"Close again":      c.Close,
		} {
			assert.ErrorIs(t, try(), syscall.EINVAL, "%s of %s", call, name)
		}
		assert.Assert(t, c.LocalAddr() == nil && c.RemoteAddr() == nil && c.PeerCertificates() == nil)
		assert.Equal(t, c.Device(), "")
		assert.Equal(t, c.Stats(), rdmanet.Stats{})
	}
}

// TestInvalidMemory: memory that cannot be registered, and a region of another connection, are
// EINVAL.
func TestInvalidMemory(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		client, server := pair(t, dev, rdmanet.Dialer{}, rdmanet.ListenConfig{})
		for _, empty := range [][]byte{nil, {}} {
			_, err := client.NewRegion(empty, 0)
			assert.ErrorIs(t, err, syscall.EINVAL)
		}
		far := region(t, server, 8, rdmanet.PeerReads)
		assert.ErrorIs(t, client.ReadRemote(t.Context(), far, 0, far.Remote()), syscall.EINVAL)
		assert.ErrorIs(t, client.WriteRemote(t.Context(), far.Remote(), nil, 0), syscall.EINVAL)
		_, err := client.WriteRegion(far, 0, 8)
		assert.ErrorIs(t, err, syscall.EINVAL)
	})
}

// TestStreamDeadlines: the deadlines are those of the stream. Operations on remote memory end with
// their contexts alone.
func TestStreamDeadlines(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		client, server := pair(t, dev, rdmanet.Dialer{}, rdmanet.ListenConfig{})
		far, near := region(t, server, 8, rdmanet.PeerReads|rdmanet.PeerWrites), region(t, client, 8, 0)
		assert.NilError(t, client.SetDeadline(time.Unix(1, 0)))
		copy(near.Bytes(), "written")
		assert.NilError(t, client.WriteRemote(t.Context(), far.Remote(), near, 0))
		clear(near.Bytes())
		assert.NilError(t, client.ReadRemote(t.Context(), near, 0, far.Remote()))
		assert.Equal(t, string(near.Bytes()[:7]), "written")
		over, cancel := context.WithCancel(t.Context())
		cancel()
		assert.ErrorIs(t, client.ReadRemote(over, near, 0, far.Remote()), context.Canceled)
		assert.ErrorIs(t, client.WriteRemote(over, far.Remote(), near, 0), context.Canceled)
	})
}

// TestAccessRefused: an operation that the peer has not allowed fails with ErrAccess, and so do
// later calls, because the connection is broken.
func TestAccessRefused(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		client, server := pair(t, dev, rdmanet.Dialer{}, rdmanet.ListenConfig{})
		far, near := region(t, server, 8, rdmanet.PeerWrites), region(t, client, 8, 0)
		err := client.ReadRemote(t.Context(), near, 0, far.Remote())
		if strings.HasPrefix(dev, "siw") { // the driver reports no reason
			t.Skip("soft-iWARP ends the connection without a reason")
		}
		for range 2 {
			assert.ErrorIs(t, err, rdmanet.ErrAccess)
			assert.ErrorContains(t, err, "the peer does not allow the access")
			assert.ErrorIs(t, err, syscall.ECONNRESET)
			var op *net.OpError
			assert.Assert(t, errors.As(err, &op))
			_, err = client.Read(make([]byte, 1))
		}
	})
}

// TestRemoteMemory reads and writes the peer's memory without registered memory of the program.
func TestRemoteMemory(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		client, server := pair(t, dev, rdmanet.Dialer{}, rdmanet.ListenConfig{})
		far := region(t, server, 100_000, rdmanet.PeerReads|rdmanet.PeerWrites)
		m := client.RemoteMemory(t.Context(), far.Remote())
		assert.Equal(t, m.Size(), int64(100_000))
		want := pattern(100_000, 5)
		n, err := m.WriteAt(want[:60_000], 0)
		assert.NilError(t, err)
		assert.Equal(t, n, 60_000)
		_, err = io.Copy(io.NewOffsetWriter(m, 60_000), bytes.NewReader(want[60_000:]))
		assert.NilError(t, err)
		assert.Assert(t, bytes.Equal(far.Bytes(), want))
		got, err := io.ReadAll(io.NewSectionReader(m, 1, m.Size()-1))
		assert.NilError(t, err)
		assert.Assert(t, bytes.Equal(got, want[1:]))

		p := make([]byte, 10)
		for _, try := range []struct {
			off  int64
			n    int
			want error
		}{{99_990, 10, nil}, {99_995, 5, io.EOF}, {100_000, 0, io.EOF}, {1 << 62, 0, io.EOF}, {-1, 0, syscall.EINVAL}} {
			n, err := m.ReadAt(p, try.off)
			assert.Equal(t, n, try.n)
			assert.Assert(t, errors.Is(err, try.want), "%d: %v", try.off, err)
			assert.Assert(t, n == 0 || bytes.Equal(p[:n], want[try.off:][:n]))
		}
		for _, off := range []int64{99_995, 1 << 62, -1} {
			n, err := m.WriteAt(p, off)
			assert.Equal(t, n, 0)
			assert.ErrorIs(t, err, syscall.EINVAL)
		}
		n, err = m.ReadAt(nil, 0)
		assert.NilError(t, err)
		assert.Equal(t, n, 0)
		assert.Assert(t, bytes.Equal(far.Bytes(), want))
		over, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = client.RemoteMemory(over, far.Remote()).ReadAt(p, 0)
		assert.ErrorIs(t, err, context.Canceled)
		_, err = m.ReadAt(p, 0) // the connection goes on
		assert.NilError(t, err)
		assert.NilError(t, far.Close())
		_, err = m.ReadAt(p, 0)
		assert.Assert(t, err != nil)
	})
}

// TestMessageContexts: a context ends a call that waits for a message, for room, or for another
// call. No byte of a message that arrives later is lost, whatever the next buffer is.
func TestMessageContexts(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := pair(t, dev, rdmanet.Dialer{WriteBuffer: 8192}, rdmanet.ListenConfig{ReadBuffer: 8192})
		client, server := rdmanet.NewMessages(a), rdmanet.NewMessages(b)
		first, cancel := context.WithCancel(t.Context())
		received := make(chan error, 1)
		go func() { _, err := server.RecvMsg(first, make([]byte, 8)); received <- err }()
		_, err := a.Write([]byte{0, 0, 0, 4, 'a', 'b'}) // half a message
		assert.NilError(t, err)
		for b.Stats().BytesRead < 6 { // the first call has the half, and the place
			assert.NilError(t, t.Context().Err())
			shortly, stop := context.WithTimeout(t.Context(), 20*time.Millisecond)
			_, err = server.RecvMsg(shortly, make([]byte, 8))
			stop()
			assert.ErrorIs(t, err, context.DeadlineExceeded)
			var late net.Error
			assert.Assert(t, errors.As(err, &late) && late.Timeout())
		}
		cancel()
		assert.ErrorIs(t, <-received, context.Canceled)
		_, err = a.Write([]byte("cd"))
		assert.NilError(t, err)
		p := make([]byte, 8)
		n, err := server.RecvMsg(t.Context(), p)
		assert.NilError(t, err)
		assert.Equal(t, string(p[:n]), "abcd")

		over, cancel := context.WithCancel(t.Context())
		cancel()
		assert.ErrorIs(t, client.SendMsg(over, []byte("never")), context.Canceled)
		assert.NilError(t, client.SendMsg(t.Context(), []byte("whole")))
		half, cancel := context.WithCancel(t.Context())
		sent, before := make(chan error, 1), a.Stats().BytesWritten
		go func() { sent <- client.SendMsg(half, make([]byte, 1<<20)) }()
		for a.Stats().BytesWritten == before {
			assert.NilError(t, t.Context().Err())
			runtime.Gosched()
		}
		cancel()
		assert.ErrorIs(t, <-sent, context.Canceled)
		assert.ErrorIs(t, client.SendMsg(t.Context(), nil), context.Canceled, "half a message is the last")
		n, err = server.RecvMsg(t.Context(), p)
		assert.NilError(t, err)
		assert.Equal(t, string(p[:n]), "whole")
	})
}

// TestDialEndsWithContext: a Dial whose peer does not answer ends when its context has ended, not
// before, so that ctx.Err is set when the error is context.DeadlineExceeded.
func TestDialEndsWithContext(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts TCP, and answers no request
	assert.NilError(t, err)
	defer silent.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	_, err = (&rdmanet.Dialer{Device: "tcp"}).Dial(ctx, "rdma", silent.Addr().String())
	assert.ErrorIs(t, err, context.DeadlineExceeded)
	assert.ErrorIs(t, err, syscall.ETIMEDOUT, "the reason")
	assert.ErrorIs(t, ctx.Err(), context.DeadlineExceeded)
}
