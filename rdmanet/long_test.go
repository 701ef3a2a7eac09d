package rdmanet

import (
	"bytes"
	"encoding/binary"
	"io"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// older changes a connection that has carried nothing into one that has carried a number of
// requests, and of bytes and messages in each direction. The peer knows of them too. bytes must be
// a multiple of the size of each ring, messages of the number of receives.
func older(c *Conn, requests, bytes uint64, messages uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	in, out := &c.in, &c.out
	in.placed, in.read, in.freed, in.told = in.placed+bytes, in.read+bytes, in.freed+bytes, in.told+bytes
	out.appended, out.posted, out.freed = out.appended+bytes, out.posted+bytes, out.freed+bytes
	out.position, out.limit = out.position+bytes, out.limit+bytes
	in.sentAt = out.appended
	out.messages, out.acked = out.messages+messages, out.acked+messages
	in.messages, in.reposted, in.toldAt = in.messages+messages, in.reposted+messages, in.toldAt+messages
	for i := range c.reqs {
		c.reqs[i] += bytes
	}
	out.requests, out.done = requests, requests
}

// TestLongConnection has connections that are about to send request number 2^32, byte 2^32 or
// message 2^32, and some that have done so long ago. All of them must work as before.
func TestLongConnection(t *testing.T) {
	for _, age := range []struct {
		requests, bytes uint64
		messages        uint32
	}{{1<<32 - 40, 1<<32 - 1<<17, 1<<32 - defaultSlots}, {1<<40 + 3, 1 << 50, 5 * defaultSlots}} {
		client, server := ends(t)
		older(client, age.requests, age.bytes, age.messages)
		older(server, age.requests, age.bytes, age.messages)
		far, err := server.NewRegion(bytes.Repeat([]byte{7}, 4096), accesses)
		assert.NilError(t, err)
		near, err := client.NewRegion(make([]byte, 4096), 0)
		assert.NilError(t, err)
		word, err := far.Remote().Slice(0, 8)
		assert.NilError(t, err)
		for i := range uint64(40) {
			clear(near.Bytes())
			assert.NilError(t, client.ReadRemote(t.Context(), near, 0, far.Remote()))
			assert.Equal(t, near.Bytes()[4095], byte(7))
			want := binary.NativeEndian.Uint64(far.Bytes())
			old, err := client.FetchAdd(t.Context(), word, 1<<32+i)
			assert.NilError(t, err)
			assert.Equal(t, old, want)
		}
		for _, way := range [][2]*Conn{{client, server}, {server, client}} {
			assert.NilError(t, way[0].SetDeadline(time.Now().Add(hostilePatience)))
			assert.NilError(t, way[1].SetDeadline(time.Now().Add(hostilePatience)))
			for range 3 * defaultSlots { // so small that only the number of messages makes a credit due
				_, err := way[0].Write([]byte{1})
				assert.NilError(t, err)
				_, err = io.ReadFull(way[1], make([]byte, 1))
				assert.NilError(t, err)
			}
		}
		data := make([]byte, 1<<20)
		for i := range data {
			data[i] = byte(i % 251)
		}
		for name, read := range map[string]func(c *Conn) []byte{
			"Read": func(c *Conn) []byte {
				got := make([]byte, len(data))
				_, err := io.ReadFull(c, got)
				assert.NilError(t, err)
				return got
			},
		} {
			for _, way := range [][2]*Conn{{client, server}, {server, client}} {
				written := make(chan error, 1)
				go func() {
					_, err := way[0].Write(data)
					written <- err
				}()
				assert.Assert(t, bytes.Equal(read(way[1]), data), name)
				assert.NilError(t, <-written)
			}
		}
		assert.Equal(t, client.Stats().BytesRead, age.bytes+uint64(len(data)+3*defaultSlots))
		assert.NilError(t, client.SetReadBuffer(minRing))
		go server.Write(data)
		_, err = io.ReadFull(client, make([]byte, len(data)))
		assert.NilError(t, err)
		assert.NilError(t, client.CloseWrite())
		var got bytes.Buffer
		n, err := server.WriteTo(&got)
		assert.Assert(t, n == 0 && err == nil, "%d, %v", n, err)
		assert.NilError(t, server.Close())
		_, err = client.Read(make([]byte, 1))
		assert.Equal(t, err, io.EOF)
	}
}
