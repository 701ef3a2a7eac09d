package rdmanet

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
)

// FuzzHello decodes the private data of a request or an accept. A hello that is accepted is within
// the limits, and is encoded to the same data again.
func FuzzHello(f *testing.F) {
	good := hello{immediate: true, slots: defaultSlots, ring: remoteRing{1 << 40, 7, 1 << 20}}.encode()
	f.Add(good)
	f.Add(append(bytes.Clone(good), make([]byte, 28)...)) // padded
	f.Add(good[:helloSize-1])
	f.Add([]byte("RDN3"))
	f.Add(hello{slots: minSlots, ring: remoteRing{1<<64 - 1, 0, minRing}}.encode())
	f.Add(hello{slots: maxSlots + 1, ring: remoteRing{size: maxRing}}.encode())
	f.Add(hello{slots: maxSlots, ring: remoteRing{size: maxRing + 1}}.encode())
	f.Add(hello{slots: minSlots, ring: remoteRing{size: minRing / 2}}.encode())
	f.Add(hello{slots: minSlots - 1, ring: remoteRing{size: minRing}}.encode())
	f.Add(hello{slots: minSlots, ring: remoteRing{size: minRing + 1}}.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := decodeHello(b)
		if err != nil {
			return
		}
		assert.Assert(t, h.slots >= minSlots && h.slots <= maxSlots)
		assert.Assert(t, h.ring.size >= minRing && h.ring.size <= maxRing && h.ring.size&(h.ring.size-1) == 0)
		assert.Assert(t, h.ring.addr+uint64(h.ring.size-1) >= h.ring.addr)
		again, err := decodeHello(h.encode())
		assert.NilError(t, err)
		assert.Equal(t, again, h)
	})
}

// fuzzListener is a listener on mem0 and a connection of it that nobody attacks.
func fuzzListener(f *testing.F) (l *Listener, witness func(*testing.T)) {
	lc := ListenConfig{Device: "mem0"}
	l, err := lc.Listen(f.Context(), Network, ":0")
	assert.NilError(f, err)
	f.Cleanup(func() { l.Close() })
	a, err := (&Dialer{Device: "mem0"}).Dial(f.Context(), Network, l.Addr().String())
	assert.NilError(f, err)
	f.Cleanup(func() { a.Close() })
	b, err := l.AcceptConn()
	assert.NilError(f, err)
	f.Cleanup(func() { b.Close() })
	return l, func(t *testing.T) {
		_, err := a.Write([]byte("y"))
		assert.NilError(t, err)
		_, err = io.ReadFull(b, make([]byte, 1))
		assert.NilError(t, err)
	}
}

// FuzzControl has a peer that says a whole conversation: a hello in which the bits of the first
// input are changed, and any messages, each of 32 bytes of the second, the last of the bytes that
// are left. The end that receives them goes on or ends the connection with an error. It reads no
// more bytes than its ring has, and another connection is not disturbed.
func FuzzControl(f *testing.F) {
	messages := func(all ...control) (b []byte) {
		for _, m := range all {
			b = append(b, make([]byte, controlSize)...)
			m.encode(b[len(b)-controlSize:])
		}
		return b
	}
	credit := control{kind: kindCredit, limit: 4096, value: 4096}
	f.Add([]byte{}, messages(credit, control{kind: kindCredit, limit: 4095}))
	f.Add([]byte{}, messages(credit, control{kind: kindFin, limit: 4096}))
	data, fin := control{kind: kindData, limit: 4096, value: 5}, control{kind: kindFin, limit: 4096, value: 5}
	f.Add([]byte{}, messages(data, fin))
	f.Add([]byte{}, messages(control{kind: kindData, limit: 4096, value: 1<<64 - 1}))
	f.Add([]byte{}, messages(control{kind: kindClose, limit: 4096}, control{kind: kindClosed, limit: 4096}))
	f.Add([]byte{}, messages(control{kind: kindCredit, slots: 1<<32 - 1, limit: 1<<64 - 1}))
	f.Add([]byte{}, messages(control{kind: kinds}))
	f.Add([]byte{}, []byte("short"))
	f.Add([]byte{}, []byte{})
	f.Add([]byte{1}, []byte{})
	f.Add([]byte{0, 0, 0, 0, 0, 1}, messages(credit))
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF}, messages(credit))
	f.Add(bytes.Repeat([]byte{0, 0, 0, 1}, 8), messages(credit))
	l, witness := fuzzListener(f)
	f.Fuzz(func(t *testing.T, flips, b []byte) {
		r, err := connectRaw(t, "mem0", addrOf(l.Addr()), func(h hello) []byte {
			p := h.encode()
			for i := range min(len(p), len(flips)) {
				p[i] ^= flips[i]
			}
			return p
		})
		if err != nil {
			assert.Assert(t, len(flips) > 0, "%v", err)
			witness(t)
			return
		}
		r.credit() // opens the connection
		for n := 0; n == 0 || len(b) > 0 && n < 10; n++ {
			size := min(len(b), controlSize)
			copy(r.mem.Bytes()[8<<10:], b[:size])
			post := r.ep.PostSend([]udat.LMRTriplet{r.mem.Triplet(8<<10, size)}, 0, udat.CompletionDefault)
			b = b[size:]
			if post != nil {
				break // the connection has ended
			}
			var ev udat.Event
			for ev.Number != udat.EventDTOCompletion || ev.Operation != udat.DTOSend {
				ev, _, err = r.evd.Wait(hostilePatience, 1)
				assert.NilError(t, err)
			}
		}
		c, err := l.AcceptConn()
		assert.NilError(t, err)
		defer c.Close()
		r.ep.Disconnect(udat.CloseAbrupt)
		assert.NilError(t, c.SetReadDeadline(time.Now().Add(hostilePatience)))
		n, err := io.Copy(io.Discard, c)
		assert.Assert(t, n <= int64(10*defaultBuffer), "%d bytes", n)
		var late net.Error
		assert.Assert(t, !errors.As(err, &late) || !late.Timeout(), "%v", err)
		witness(t)
	})
}

// FuzzMessages reads any stream as messages. Each is the next one of the stream, with its length; a
// stream that ends within a message is io.ErrUnexpectedEOF.
func FuzzMessages(f *testing.F) {
	f.Add([]byte{0, 0, 0, 2, 'h', 'i', 0, 0, 0, 0})
	f.Add([]byte{0, 0, 0, 2, 'h'})
	f.Add([]byte{0, 0})
	f.Add([]byte{255, 255, 255, 255, 1})
	f.Add([]byte{})
	l, _ := fuzzListener(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		b = b[:min(len(b), 32<<10)]
		a, err := (&Dialer{Device: "mem0"}).Dial(t.Context(), Network, l.Addr().String())
		assert.NilError(t, err)
		defer a.Close()
		c, err := l.AcceptConn()
		assert.NilError(t, err)
		defer c.Close()
		_, err = a.Write(b)
		assert.NilError(t, err)
		assert.NilError(t, a.CloseWrite())
		m := NewMessages(c)
		buf := make([]byte, 1<<10)
		for {
			n, err := m.RecvMsg(t.Context(), buf)
			var long *MsgTooLongError
			switch {
			case err == io.EOF:
				assert.Equal(t, len(b), 0)
				return
			case errors.As(err, &long):
				assert.Assert(t, long.Len > len(buf) && uint32(long.Len) == binary.BigEndian.Uint32(b))
				return
			case err != nil:
				assert.ErrorIs(t, err, io.ErrUnexpectedEOF)
				assert.Assert(t, len(b) < 4 || int(binary.BigEndian.Uint32(b)) > len(b)-4)
				return
			}
			assert.Equal(t, n, int(binary.BigEndian.Uint32(b)))
			assert.Assert(t, bytes.Equal(buf[:n], b[4:4+n]))
			b = b[4+n:]
		}
	})
}
