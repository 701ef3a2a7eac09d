package rdmanet_test

import (
	"encoding/binary"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/rdmanet"
)

// TestNotices writes to the peer's memory and announces that by a notice, 1,000 times, while the
// stream goes on. It does not wait for the end of the batches. At each notice the peer must find
// the bytes.
func TestNotices(t *testing.T) {
	const rounds, size = 1000, 4096
	onEach(t, func(t *testing.T, dev string) {
		client, server := pair(t, dev, rdmanet.Dialer{}, rdmanet.ListenConfig{})
		go io.Copy(server, server)
		const places = 8
		far := region(t, server, places*size, rdmanet.PeerWrites)
		near := region(t, client, places*size, 0)
		free := make(chan bool, places) // places that the peer has looked at
		for range places {
			free <- true
		}
		sent := make(chan error, 1)
		go func() {
			for i := range uint64(rounds) {
				<-free
				at := int(i%places) * size
				for w := range size / 8 {
					binary.LittleEndian.PutUint64(near.Bytes()[at+w*8:], i+1)
				}
				to, _ := far.Remote().Slice(uint64(at), size)
				b := client.NewBatch()
				b.Write(to, near, at)
				p, err := b.Start(t.Context())
				if err == nil {
					err = client.Notify(i + 1)
				}
				if err == nil && i%places == places-1 { // the others are not awaited
					err = p.Wait()
				}
				if err != nil {
					sent <- err
					return
				}
			}
			sent <- client.Notify(1<<64 - 1)
		}()
		streamed := make(chan error, 1)
		go func() {
			_, err := client.Write(make([]byte, 1<<20))
			streamed <- err
		}()
		go io.Copy(io.Discard, client)
		assert.NilError(t, server.SetReadDeadline(time.Now().Add(patience)))
		for i := range uint64(rounds) {
			value, err := server.ReadNotice()
			assert.NilError(t, err)
			assert.Equal(t, value, i+1)
			for w := range size / 8 {
				got := binary.LittleEndian.Uint64(far.Bytes()[int(i%places)*size+w*8:])
				assert.Equal(t, got, i+1, "word %d", w)
			}
			free <- true
		}
		value, err := server.ReadNotice()
		assert.NilError(t, err)
		assert.Equal(t, value, uint64(1<<64-1))
		assert.NilError(t, <-sent)
		assert.NilError(t, <-streamed)
	})
}

// TestNoticesWait sends more notices than may wait: Notify waits until the peer takes some, or the
// deadline ends it; the connection goes on. Those that have come are there after the peer's Close.
func TestNoticesWait(t *testing.T) {
	const most = 64
	onEach(t, func(t *testing.T, dev string) {
		client, server := pair(t, dev, rdmanet.Dialer{}, rdmanet.ListenConfig{})
		for i := range uint64(most) {
			assert.NilError(t, client.Notify(i))
		}
		for range 2 {
			assert.NilError(t, client.SetWriteDeadline(time.Now().Add(50*time.Millisecond)))
			assert.ErrorIs(t, client.Notify(0), os.ErrDeadlineExceeded)
		}
		assert.NilError(t, client.SetWriteDeadline(time.Time{}))
		echoes(t, client, server)
		waited := make(chan error, 1)
		go func() {
			for i := range uint64(3 * most) {
				if err := client.Notify(most + i); err != nil {
					waited <- err
					return
				}
			}
			waited <- client.Close()
		}()
		assert.NilError(t, server.SetReadDeadline(time.Now().Add(patience)))
		for i := range uint64(4 * most) {
			value, err := server.ReadNotice()
			assert.NilError(t, err)
			assert.Equal(t, value, i)
			if i == 3*most { // the others, and Close, have come before they are taken
				assert.NilError(t, <-waited)
			}
		}
		_, err := server.ReadNotice()
		assert.ErrorIs(t, err, io.EOF)
		assert.ErrorIs(t, server.Notify(1), syscall.EPIPE)
		assert.ErrorIs(t, client.Notify(1), net.ErrClosed)
		_, err = client.ReadNotice()
		assert.ErrorIs(t, err, net.ErrClosed)
	})
}

// TestReadNoticeEnds blocks in ReadNotice: a deadline and Close end it.
func TestReadNoticeEnds(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		client, _ := pair(t, dev, rdmanet.Dialer{}, rdmanet.ListenConfig{})
		assert.NilError(t, client.SetReadDeadline(time.Now().Add(20*time.Millisecond)))
		_, err := client.ReadNotice()
		assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
		assert.NilError(t, client.SetReadDeadline(time.Time{}))
		ended := make(chan error, 2)
		for range 2 {
			go func() { _, err := client.ReadNotice(); ended <- err }()
		}
		time.Sleep(20 * time.Millisecond)
		assert.NilError(t, client.Close())
		for range 2 {
			select {
			case err := <-ended:
				assert.ErrorIs(t, err, net.ErrClosed)
			case <-time.After(patience):
				t.Fatal("ReadNotice does not return")
			}
		}
	})
}
