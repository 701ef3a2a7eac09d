package rdmanet_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/rdmanet"
)

// TestReadFunc reads a stream in place, of a few sizes of ring and in turns with Read: it takes
// nothing, a part or all of what is there, and each byte comes once, in order.
func TestReadFunc(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		for _, buffer := range []int{4096, 64 << 10} {
			client, server := pair(t, dev, rdmanet.Dialer{}, rdmanet.ListenConfig{ReadBuffer: buffer})
			want := pattern(1<<20, 6)
			sent := make(chan error, 1)
			go func() {
				_, err := client.Write(want)
				sent <- errors.Join(err, client.CloseWrite())
			}()
			var got []byte
			var err error
			for turn := 0; err == nil; turn++ {
				if turn%7 == 6 {
					p := make([]byte, 100)
					var n int
					n, err = server.Read(p)
					got = append(got, p[:n]...)
					continue
				}
				err = server.ReadFunc(func(p []byte) (int, error) {
					assert.Assert(t, len(p) > 0)
					n := len(p) * (turn % 3) / 2 // nothing, half, all
					got = append(got, p[:n]...)
					return n, nil
				})
			}
			assert.ErrorIs(t, err, io.EOF)
			assert.NilError(t, <-sent)
			assert.Assert(t, bytes.Equal(got, want), "%d bytes", len(got))
		}
	})
}

// TestReadFuncErrors: a function that fails consumes as many bytes as it returns. A function that
// panics or returns a wrong count consumes none. A deadline, Close and WriteTo have different
// errors.
func TestReadFuncErrors(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		client, server := pair(t, dev, rdmanet.Dialer{}, rdmanet.ListenConfig{})
		next := func(want string) {
			t.Helper()
			assert.NilError(t, server.ReadFunc(func(p []byte) (int, error) {
				assert.Equal(t, string(p), want)
				return 0, nil
			}))
		}
		_, err := io.WriteString(client, "abcdef")
		assert.NilError(t, err)
		next("abcdef")
		own := errors.New("own")
		assert.Equal(t, server.ReadFunc(func([]byte) (int, error) { return 2, own }), own)
		next("cdef")
		for _, n := range []int{-1, 5} {
			assert.ErrorIs(t, server.ReadFunc(func([]byte) (int, error) { return n, nil }), syscall.EINVAL)
			next("cdef")
		}
		func() {
			defer func() { assert.Equal(t, recover(), "panic") }()
			server.ReadFunc(func([]byte) (int, error) { panic("panic") })
		}()
		next("cdef")

		inWriter, goOn, written := make(chan bool), make(chan bool), make(chan error, 1)
		go func() {
			_, err := server.WriteTo(writerFunc(func(p []byte) (int, error) {
				inWriter <- true
				<-goOn
				return 1, own
			}))
			written <- err
		}()
		<-inWriter
		all := func(p []byte) (int, error) { return len(p), nil }
		assert.ErrorIs(t, server.ReadFunc(all), syscall.EBUSY)
		goOn <- true
		assert.Equal(t, <-written, own)
		next("def")
		assert.NilError(t, server.ReadFunc(all))
		assert.NilError(t, server.SetReadDeadline(time.Now().Add(20*time.Millisecond)))
		assert.ErrorIs(t, server.ReadFunc(all), os.ErrDeadlineExceeded)
		assert.NilError(t, server.SetReadDeadline(time.Time{}))

		_, err = io.WriteString(client, "held")
		assert.NilError(t, err)
		assert.NilError(t, server.ReadFunc(func(p []byte) (int, error) { // its memory outlives the connection
			assert.NilError(t, server.Close())
			assert.NilError(t, client.Close())
			time.Sleep(50 * time.Millisecond)
			assert.Equal(t, string(p), "held")
			return 1, nil
		}))
		assert.ErrorIs(t, server.ReadFunc(all), net.ErrClosed)
	})
}

// TestCloseReadInLoan ends reading while a call has all of a full ring, of which it then takes
// nothing: what the peer sends is dropped all the same, so that its Write does not block.
func TestCloseReadInLoan(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		const ring = 4096
		client, server := pair(t, dev, rdmanet.Dialer{}, rdmanet.ListenConfig{ReadBuffer: ring})
		_, err := client.Write(make([]byte, ring))
		assert.NilError(t, err)
		for end := time.Now().Add(patience); server.Stats().BytesReceived < ring && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
		assert.NilError(t, server.ReadFunc(func(p []byte) (int, error) {
			assert.Equal(t, len(p), ring)
			return 0, server.CloseRead()
		}))
		assert.NilError(t, client.SetWriteDeadline(time.Now().Add(patience)))
		_, err = client.Write(make([]byte, 1<<20))
		assert.NilError(t, err)
	})
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
