package rdmanet_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/rdmanet"
)

// TestMessages sends messages of many lengths, empty and larger than the rings too, from several
// goroutines: each arrives whole.
func TestMessages(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := pair(t, dev, rdmanet.Dialer{WriteBuffer: 8192}, rdmanet.ListenConfig{ReadBuffer: 8192})
		client, server := rdmanet.NewMessages(a), rdmanet.NewMessages(b)
		lengths := []int{0, 1, 3, 4095, 4096, 8192, 100_000, 7}
		var all sync.WaitGroup
		for i := range 4 {
			all.Go(func() {
				for _, n := range lengths {
					if err := client.SendMsg(t.Context(), bytes.Repeat([]byte{byte(i)}, n)); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Go(func() {
			got := map[int]int{}
			p := make([]byte, 100_000)
			for range 4 * len(lengths) {
				n, err := server.RecvMsg(t.Context(), p)
				if err != nil {
					t.Error(err)
					return
				}
				got[n]++
				if n > 0 && !bytes.Equal(p[:n], bytes.Repeat(p[:1], n)) {
					t.Errorf("a message of %d bytes is a mixture", n)
				}
			}
			for _, n := range lengths {
				if got[n] != 4 {
					t.Errorf("%d messages of %d bytes came, expected 4", got[n], n)
				}
			}
		})
		all.Wait()
		assert.NilError(t, a.CloseWrite())
		_, err := server.RecvMsg(t.Context(), nil)
		assert.Equal(t, err, io.EOF)
	})
}

// TestMessageBuffers receives with a buffer that is too short, after a deadline, and at an end
// within a message.
func TestMessageBuffers(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := pair(t, dev, rdmanet.Dialer{}, rdmanet.ListenConfig{})
		client, server := rdmanet.NewMessages(a), rdmanet.NewMessages(b)
		assert.NilError(t, client.SendMsg(t.Context(), []byte("longer")))
		var long *rdmanet.MsgTooLongError
		_, err := server.RecvMsg(t.Context(), make([]byte, 5))
		assert.Assert(t, errors.As(err, &long) && long.Len == 6, "%v", err)
		p := make([]byte, 10)
		n, err := server.RecvMsg(t.Context(), p)
		assert.NilError(t, err)
		assert.Equal(t, string(p[:n]), "longer")

		_, err = a.Write([]byte{0, 0, 0, 4, 'a', 'b'}) // half a message
		assert.NilError(t, err)
		assert.NilError(t, b.SetReadDeadline(time.Now().Add(200*time.Millisecond)))
		_, err = server.RecvMsg(t.Context(), p)
		assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
		assert.NilError(t, b.SetReadDeadline(time.Time{}))
		_, err = a.Write([]byte("cd"))
		assert.NilError(t, err)
		n, err = server.RecvMsg(t.Context(), p)
		assert.NilError(t, err)
		assert.Equal(t, string(p[:n]), "abcd")

		_, err = a.Write([]byte{255, 255, 255, 255}) // a length that nobody has
		assert.NilError(t, err)
		_, err = server.RecvMsg(t.Context(), p)
		assert.Assert(t, errors.As(err, &long) && long.Len == 1<<32-1, "%v", err)
		assert.NilError(t, a.CloseWrite())
		_, err = server.RecvMsg(t.Context(), make([]byte, 0))
		assert.Assert(t, errors.As(err, &long), "%v", err)
		assert.NilError(t, client.Close())
		assert.ErrorIs(t, client.SendMsg(t.Context(), nil), net.ErrClosed)
		_, err = a.Write([]byte("x"))
		assert.ErrorIs(t, err, net.ErrClosed, "the connection is closed too")
	})
}

// TestRegions gives the peer memory: the peer writes it, announces that by a message, and reads it
// back.
func TestRegions(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := pair(t, dev, rdmanet.Dialer{}, rdmanet.ListenConfig{})
		client, server := rdmanet.NewMessages(a), rdmanet.NewMessages(b)
		store, err := b.NewRegion(make([]byte, 1<<20), rdmanet.PeerReads|rdmanet.PeerWrites)
		assert.NilError(t, err)
		name, err := store.Remote().MarshalBinary()
		assert.NilError(t, err)
		assert.NilError(t, server.SendMsg(t.Context(), name))

		p := make([]byte, rdmanet.RemoteSize)
		_, err = client.RecvMsg(t.Context(), p)
		assert.NilError(t, err)
		var remote rdmanet.Remote
		assert.NilError(t, remote.UnmarshalBinary(p))
		assert.Equal(t, remote.Len(), uint64(1<<20))
		data := pattern(1<<20, 7)
		local, err := a.NewRegion(bytes.Clone(data), 0)
		assert.NilError(t, err)
		assert.NilError(t, a.WriteRemote(t.Context(), remote, local, 0))
		assert.NilError(t, client.SendMsg(t.Context(), []byte("written")))

		_, err = server.RecvMsg(t.Context(), p)
		assert.NilError(t, err)
		assert.Assert(t, bytes.Equal(store.Bytes(), data))

		clear(local.Bytes())
		part, err := remote.Slice(1000, 5000)
		assert.NilError(t, err)
		assert.NilError(t, a.ReadRemote(t.Context(), local, 17, part))
		assert.Assert(t, bytes.Equal(local.Bytes()[17:5017], data[1000:6000]))
		_, err = remote.Slice(1<<20, 1)
		assert.ErrorIs(t, err, syscall.EINVAL)
		assert.ErrorIs(t, a.ReadRemote(t.Context(), local, 1, remote), syscall.EINVAL)

		assert.NilError(t, store.Close())
		assert.Assert(t, a.ReadRemote(t.Context(), local, 0, remote) != nil, "a read of a region that is closed")
	})
}

// TestWriteRegion mixes Writes that copy with those that do not.
func TestWriteRegion(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		client, server := pair(t, dev, rdmanet.Dialer{}, rdmanet.ListenConfig{ReadBuffer: 64 << 10})
		data := pattern(1<<20, 8)
		r, err := client.NewRegion(data, 0)
		assert.NilError(t, err)
		sent := make(chan error, 1)
		go func() {
			for at := 0; at < len(data); at += 1 << 18 {
				if _, err := client.Write([]byte("head")); err != nil {
					sent <- err
					return
				}
				if n, err := client.WriteRegion(r, at, 1<<18); err != nil || n != 1<<18 {
					sent <- errors.Join(err, io.ErrShortWrite)
					return
				}
			}
			sent <- client.CloseWrite()
		}()
		got, err := io.ReadAll(server)
		assert.NilError(t, errors.Join(err, <-sent))
		var want []byte
		for at := 0; at < len(data); at += 1 << 18 {
			want = append(append(want, "head"...), data[at:at+1<<18]...)
		}
		assert.Assert(t, bytes.Equal(got, want))
		_, err = client.WriteRegion(r, 1, len(data))
		assert.ErrorIs(t, err, syscall.EINVAL)
	})
}
