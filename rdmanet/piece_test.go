package rdmanet

import (
	"bytes"
	"io"
	"syscall"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
)

// TestLargestWrite: a write has 8 packets at most on soft-RoCE, and is not limited elsewhere.
func TestLargestWrite(t *testing.T) {
	mtu := func(text string) []udat.NamedAttr {
		return []udat.NamedAttr{{Name: "TRANSPORT", Value: "8"}, {Name: "PATH_MTU", Value: text}}
	}
	assert.Equal(t, largestWrite("Soft-RoCE", mtu("1024")), uint64(8192))
	assert.Equal(t, largestWrite("Soft-RoCE", mtu("4096")), uint64(32768))
	for _, transport := range [][]udat.NamedAttr{nil, mtu("many")} {
		assert.Equal(t, largestWrite("Soft-RoCE", transport), uint64(maxChunk))
	}
	assert.Equal(t, largestWrite("NVIDIA", mtu("4096")), uint64(maxChunk))
}

// TestPieces: no write is longer than the adapter allows, several writes have one message, and all
// bytes arrive, with immediate data and without.
func TestPieces(t *testing.T) {
	for _, imm := range []bool{true, false} {
		pieces(t, imm)
	}
}

func pieces(t *testing.T, imm bool) {
	client, server := ends(t)
	const piece, n = 1000, 100_000
	client.mu.Lock()
	assert.Equal(t, client.out.piece, uint64(maxChunk))
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
