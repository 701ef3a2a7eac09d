package rdmanet_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/rdmanet"
)

// TestLargeRemote reads and writes more of the peer's memory than one RDMA operation of this
// package moves: each part goes to its own place.
func TestLargeRemote(t *testing.T) {
	if testing.Short() {
		t.Skip("moves 600 MiB")
	}
	onEach(t, func(t *testing.T, dev string) {
		const size = 256<<20 + 4096 + 8 // three operations
		client, server := pair(t, dev, rdmanet.Dialer{}, rdmanet.ListenConfig{})
		there, here := make([]byte, size), make([]byte, size)
		mark := func(p []byte, add uint64) {
			for at := 0; at < size; at += 4096 {
				binary.LittleEndian.PutUint64(p[at:], uint64(at)+add)
			}
		}
		mark(there, 1)
		r, err := server.NewRegion(there, rdmanet.PeerReads|rdmanet.PeerWrites)
		assert.NilError(t, err)
		own, err := client.NewRegion(here, 0)
		assert.NilError(t, err)
		assert.NilError(t, client.ReadRemote(t.Context(), own, 0, r.Remote()))
		assert.Assert(t, bytes.Equal(here, there))
		mark(here, 7)
		assert.NilError(t, client.WriteRemote(t.Context(), r.Remote(), own, 0))
		assert.Assert(t, bytes.Equal(here, there))
	})
}

// TestWriteRegionWaits changes the memory as soon as WriteRegion has returned. The peer must read
// the old bytes.
func TestWriteRegionWaits(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		client, server := pair(t, dev, rdmanet.Dialer{}, rdmanet.ListenConfig{})
		buf := make([]byte, 96<<10)
		r, err := client.NewRegion(buf, 0)
		assert.NilError(t, err)
		go func() {
			for i := range 200 {
				for j := range buf {
					buf[j] = byte(i)
				}
				if n, err := client.WriteRegion(r, 0, len(buf)); n != len(buf) || err != nil {
					t.Error(n, err)
					break
				}
			}
			client.CloseWrite()
		}()
		got := make([]byte, len(buf))
		for i := range 200 {
			_, err := io.ReadFull(server, got)
			assert.NilError(t, err)
			for j, b := range got {
				if b != byte(i) {
					t.Fatalf("byte %d of piece %d is %d", j, i, b)
				}
			}
		}
	})
}

// TestClosedRegion uses a region after its Close: that is an error, and the connection lives.
func TestClosedRegion(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		client, server := pair(t, dev, rdmanet.Dialer{}, rdmanet.ListenConfig{})
		far, err := server.NewRegion(make([]byte, 4096), rdmanet.PeerReads|rdmanet.PeerWrites)
		assert.NilError(t, err)
		for range 2 { // the second is like the first
			r, err := client.NewRegion(make([]byte, 4096), 0)
			assert.NilError(t, err)
			assert.NilError(t, r.Close())
			err = r.Close()
			assert.ErrorIs(t, err, net.ErrClosed)
			assert.ErrorContains(t, err, "the region is closed")
			_, err = client.WriteRegion(r, 0, -1)
			assert.ErrorContains(t, err, " -1 bytes")
			_, err = client.WriteRegion(r, 0, 4096)
			assert.ErrorIs(t, err, net.ErrClosed)
			assert.ErrorContains(t, err, "the region is closed")
			assert.ErrorIs(t, client.ReadRemote(t.Context(), r, 0, far.Remote()), net.ErrClosed)
			assert.ErrorIs(t, client.WriteRemote(t.Context(), far.Remote(), r, 0), net.ErrClosed)
		}
		_, err = client.Write([]byte("x"))
		assert.NilError(t, err)
		_, err = io.ReadFull(server, make([]byte, 1))
		assert.NilError(t, err)
	})
}

// TestMessageCutShort: a stream that ends within a message, at any byte, is io.ErrUnexpectedEOF;
// between messages it is io.EOF.
func TestMessageCutShort(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		l := listen(t, dev, rdmanet.ListenConfig{})
		whole := []byte{0, 0, 0, 3, 'a', 'b', 'c', 0, 0, 0, 2, 'd', 'e'}
		for n := range len(whole) + 1 {
			client, server := join(t, dev, l, rdmanet.Dialer{})
			_, err := client.Write(whole[:n])
			assert.NilError(t, err)
			assert.NilError(t, client.Close())
			m := rdmanet.NewMessages(server)
			var count int
			for {
				if _, err = m.RecvMsg(t.Context(), make([]byte, 8)); err != nil {
					break
				}
				count++
			}
			switch n {
			case 0, 7, len(whole):
				assert.Equal(t, err, io.EOF)
			default:
				assert.ErrorIs(t, err, io.ErrUnexpectedEOF, "after %d bytes", n)
			}
			assert.Equal(t, count, map[bool]int{true: 1}[n >= 7]+map[bool]int{true: 1}[n >= len(whole)])
			server.Close()
		}
	})
}
