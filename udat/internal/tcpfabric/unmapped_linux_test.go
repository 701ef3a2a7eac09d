//go:build !portablesocket

package tcpfabric

import (
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/softnic"
)

// TestUnmapped: a connection ends if memory that must be sent has no pages any more, because its
// file was truncated. The end that has the memory does not wait for the peer to disconnect, so its
// error names its own memory as the reason. The request ends at either end.
func TestUnmapped(t *testing.T) {
	for what, reads := range map[string]bool{"the peer reads it": true, "a request has it": false} {
		t.Run(what, func(t *testing.T) {
			v := newVictim(t)
			i := v.joins(v.listener.Addr())
			s := v.session()
			s.expect(fabric.EventEstablished)
			assert.Equal(t, nextOf(t, i.events).Kind, fabric.EventEstablished)
			mem, truncate := mapped(t)
			mr, err := v.pd.RegMR(mem, fabric.LocalWrite|fabric.RemoteRead)
			assert.NilError(t, err)
			truncate()
			owner, peer := s.events, i.events
			if reads {
				i.post(fabric.SendWR{Opcode: fabric.OpRead, RKey: mr.RKey(), RemoteAddr: addressOf(mem)}, roomSize)
			} else {
				owner, peer = peer, owner
				i.mem, mr, i.mr = mem, i.mr, mr
				i.post(fabric.SendWR{Opcode: fabric.OpWrite, RKey: v.mr.RKey(), RemoteAddr: v.at(0)}, roomSize)
			}
			ev := nextOf(t, owner)
			assert.Equal(t, ev.Kind, fabric.EventFailed)
			assert.ErrorIs(t, ev.Err, unix.EFAULT)
			assert.ErrorContains(t, ev.Err, "memory of this process")
			assert.Equal(t, nextOf(t, peer).Kind, fabric.EventDisconnected)
			assert.Assert(t, i.completes(1)[0] != fabric.StatusSuccess)
			i.close()
			assert.NilError(t, mr.Close())
		})
	}
}

// TestUnmappedPayload: payload from or to memory without pages ends its request with an error.
// It does not end the process.
func TestUnmappedPayload(t *testing.T) {
	for _, c := range []struct {
		op     fabric.Opcode
		length int
		want   fabric.Status
	}{
		{fabric.OpSend, 8, fabric.StatusLocalProt}, {fabric.OpRead, 8, fabric.StatusLocalProt},
		{fabric.OpRead, roomSize, fabric.StatusLocalProt}, {fabric.OpWrite, 8, fabric.StatusRemoteAccess},
		{fabric.OpWrite, roomSize, fabric.StatusRemoteAccess},
	} {
		v := newVictim(t)
		i := v.joins(v.listener.Addr())
		s := v.session()
		s.expect(fabric.EventEstablished)
		mem, truncate := mapped(t)
		mr, err := v.pd.RegMR(mem, fabric.LocalWrite|fabric.RemoteWrite)
		assert.NilError(t, err)
		truncate()
		wr := fabric.SendWR{Opcode: c.op, RKey: v.mr.RKey(), RemoteAddr: v.at(0)}
		if c.op == fabric.OpWrite {
			wr.RKey, wr.RemoteAddr = mr.RKey(), addressOf(mem)
		} else {
			i.mem, mr, i.mr = mem, i.mr, mr
		}
		i.post(wr, c.length)
		assert.Equal(t, i.completes(1)[0], c.want, "%v, %d bytes", c.op, c.length)
		inline := []fabric.SendWR{{Opcode: fabric.OpSend, Flags: fabric.Inline, NumSGE: 1}}
		_, err = s.qp.PostSend(inline, []fabric.SGE{{Addr: addressOf(mem), Length: 8}})
		assert.Assert(t, err != nil)
		i.close()
		assert.NilError(t, mr.Close())
	}
}

// mapped returns the mapping of a file, and a function that truncates the file.
func mapped(t *testing.T) (mem []byte, truncate func()) {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "memory"))
	assert.NilError(t, err)
	assert.NilError(t, file.Truncate(roomSize))
	mem, err = unix.Mmap(int(file.Fd()), 0, roomSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	assert.NilError(t, err)
	t.Cleanup(func() { assert.NilError(t, unix.Munmap(mem)) })
	return mem, func() {
		assert.NilError(t, file.Truncate(0))
		assert.NilError(t, file.Close())
	}
}

// TestClosedWindow: while the peer's window is closed TCP does not give up the connection, as long
// as the peer's host answers: its user timeout is off.
func TestClosedWindow(t *testing.T) {
	v := newVictim(t)
	d := v.dev.(*Device)
	for _, reads := range []bool{true, false} {
		p, s := v.joined()
		l := linkOf(s.qp.(*softnic.QP))
		fd := l.sock.(*sock).fd
		timeout := func() time.Duration {
			n, err := unix.GetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT)
			assert.NilError(t, err)
			return time.Duration(n) * time.Millisecond
		}
		windowIs := func(want bool) {
			within(t, "the window does not change", func() bool {
				data, closed, silent := undelivered(uintptr(fd))
				return data == want && closed == want && (silent > 0) == want
			})
		}
		l.inTurn(func() {
			for err := error(nil); err == nil; {
				_, err = l.sock.write([][]byte{make([]byte, 1<<16)})
			}
		})
		l.unacked.Store(true)
		windowIs(true)
		d.check(closedLimit)
		assert.Equal(t, timeout(), time.Duration(0))
		if reads {
			go io.Copy(io.Discard, p.Conn)
			windowIs(false)
			d.check(0)
			assert.Assert(t, !l.unacked.Load())
			p.Close()
			s.over()
			continue
		}
		d.check(0) // as if that had been long enough
		ev := s.next()
		assert.Equal(t, ev.Kind, fabric.EventUnreachable)
		assert.ErrorIs(t, ev.Err, unix.ETIMEDOUT)
		p.Close()
	}
}
