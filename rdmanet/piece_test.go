package rdmanet

import (
	"bytes"
	"io"
	"syscall"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
)

// TestLargestOp: an operation has 8 packets at most on soft-RoCE, and is not limited elsewhere.
func TestLargestOp(t *testing.T) {
	mtu := func(text string) []udat.NamedAttr {
		return []udat.NamedAttr{{Name: "TRANSPORT", Value: "8"}, {Name: "PATH_MTU", Value: text}}
	}
	assert.Equal(t, largestOp("Soft-RoCE", mtu("1024")), uint64(8192))
	assert.Equal(t, largestOp("Soft-RoCE", mtu("4096")), uint64(32768))
	for _, transport := range [][]udat.NamedAttr{nil, mtu("many")} {
		assert.Equal(t, largestOp("Soft-RoCE", transport), uint64(maxOp))
	}
	assert.Equal(t, largestOp("NVIDIA", mtu("4096")), uint64(maxOp))
}

// TestPieces: no write is longer than the adapter allows, several have one message, and all bytes
// come, with immediate data and without.
func TestPieces(t *testing.T) {
	for _, imm := range []bool{true, false} {
		pieces(t, imm)
	}
}

func pieces(t *testing.T, imm bool) {
	client, server := ends(t)
	const piece, n = 1000, 100_000
	client.mu.Lock()
	assert.Equal(t, client.out.piece, uint64(maxOp))
	client.out.piece, client.out.imm = piece, imm
	client.mu.Unlock()
	want := make([]byte, n)
	for i := range want {
		want[i] = byte(i / 256)
	}
	sent := make(chan error, 1)
	go func() {
		_, err := client.Write(want)
		sent <- err
	}()
	got := make([]byte, n)
	_, err := io.ReadFull(server, got)
	assert.NilError(t, err)
	assert.NilError(t, <-sent)
	assert.Assert(t, bytes.Equal(got, want))
	client.mu.Lock()
	requests, messages := client.out.requests, client.out.messages
	client.mu.Unlock()
	assert.Assert(t, requests >= n/piece && messages < n/piece, "%d requests, %d messages", requests, messages)
}

// TestBatchPieces: no read or write of remote memory is longer than the adapter allows. All bytes
// come, and the batch ends once, with the last piece.
func TestBatchPieces(t *testing.T) {
	client, server := ends(t)
	const piece, n = 1000, 100_001
	client.mu.Lock()
	client.out.piece = piece
	client.mu.Unlock()
	far, err := server.NewRegion(make([]byte, n), PeerReads|PeerWrites)
	assert.NilError(t, err)
	near, err := client.NewRegion(make([]byte, n+5), 0)
	assert.NilError(t, err)
	for i := range near.Bytes() {
		near.Bytes()[i] = byte(i / 256)
	}
	for _, do := range []func() error{
		func() error { return client.WriteRemote(far.Remote(), near, 5) },
		func() error { return client.ReadRemote(near, 0, far.Remote()) },
	} {
		client.mu.Lock()
		before := client.out.requests
		client.mu.Unlock()
		assert.NilError(t, do())
		assert.Assert(t, bytes.Equal(far.Bytes(), near.Bytes()[5:]) || bytes.Equal(far.Bytes(), near.Bytes()[:n]))
		client.mu.Lock()
		posted := client.out.requests - before
		client.mu.Unlock()
		assert.Assert(t, posted >= (n+piece-1)/piece, "%d requests", posted)
	}
	assert.Assert(t, bytes.Equal(far.Bytes(), near.Bytes()[:n]))
}

// TestSetReadBufferTellsPeer changes the read buffer while nothing is sent: the peer learns it at
// once. The sizes at the limits are allowed, the next ones are not.
func TestSetReadBufferTellsPeer(t *testing.T) {
	const most = 64 << 10
	client, server := endsWith(t, ListenConfig{ReadBuffer: most})
	for sum := uint64(0); server.Stats().ReadBuffer < most; {
		write(t, client, make([]byte, minRing))
		sum += minRing
		received(t, server, sum)
		_, err := io.ReadFull(server, make([]byte, minRing))
		assert.NilError(t, err)
	}
	for _, size := range []int{minRing, most} {
		assert.NilError(t, server.SetReadBuffer(size))
		until(t, "the peer knows the window", func() bool {
			client.mu.Lock()
			defer client.mu.Unlock()
			return client.out.window == uint64(size)
		})
	}
	until(t, "the peer has credit", func() bool { return client.Stats().Credit == most })
	for _, size := range []int{minRing - 1, most + 1, -1} {
		assert.ErrorIs(t, server.SetReadBuffer(size), syscall.EINVAL)
	}
}
