package rdmanet_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/rdmanet"
)

// zone makes a zone on a device, or skips the test if the device has no windows.
func zone(t *testing.T, dev string) *rdmanet.Zone {
	t.Helper()
	z, err := rdmanet.NewZone(dev, rdmanet.Path{})
	if errors.Is(err, errors.ErrUnsupported) {
		assert.ErrorContains(t, err, dev)
		t.Skip(err)
	}
	assert.NilError(t, err)
	t.Cleanup(func() { z.Close() })
	return z
}

// joinMany makes n connections to a listener; join's ends are closed when the test ends.
func joinMany(t *testing.T, dev string, l *rdmanet.Listener, n int) (clients, servers []*rdmanet.Conn) {
	d := rdmanet.Dialer{Device: dev, ReadBuffer: 4096, WriteBuffer: 4096}
	for range n {
		c, err := d.Dial(t.Context(), "rdma", l.Addr().String())
		assert.NilError(t, err)
		s, err := l.AcceptConn()
		assert.NilError(t, err)
		t.Cleanup(func() { c.Close(); s.Close() })
		clients, servers = append(clients, c), append(servers, s)
	}
	return clients, servers
}

// listenIn listens in a zone.
func listenIn(t *testing.T, z *rdmanet.Zone) *rdmanet.Listener {
	lc := rdmanet.ListenConfig{Zone: z, ReadBuffer: 4096, WriteBuffer: 4096}
	l, err := lc.Listen(t.Context(), "rdma", ":0")
	assert.NilError(t, err)
	t.Cleanup(func() { l.Close() })
	return l
}

// echoes reports whether two ends of a connection still exchange data.
func echoes(t *testing.T, c, s *rdmanet.Conn) {
	t.Helper()
	_, err := c.Write([]byte("on"))
	assert.NilError(t, err)
	p := make([]byte, 2)
	_, err = io.ReadFull(s, p)
	assert.NilError(t, err)
	assert.Equal(t, string(p), "on")
}

// TestZoneTable has a table of 16 MiB that is registered once, and 1,000 clients that may each
// write one part of it and read another. Then every second grant is revoked: the clients of these
// grants lose their connections when they read, and the others can still read.
func TestZoneTable(t *testing.T) {
	const part = 16 << 10
	onEach(t, func(t *testing.T, dev string) {
		n := 1000
		if testing.Short() {
			n = 50
		}
		z := zone(t, dev)
		table := make([]byte, 16<<20)
		m, err := z.Register(table)
		assert.NilError(t, err)
		defer m.Close()
		clients, servers := joinMany(t, dev, listenIn(t, z), n)
		reads, writes := make([]*rdmanet.Grant, n), make([]*rdmanet.Grant, n)
		for i, s := range servers {
			writes[i], err = s.Grant(t.Context(), m, i*part, part, rdmanet.PeerWrites)
			if errors.Is(err, errors.ErrUnsupported) {
				t.Skip(err)
			}
			assert.NilError(t, err)
			reads[i], err = s.Grant(t.Context(), m, (i+1)%n*part, part, rdmanet.PeerReads) // what the next one writes
			assert.NilError(t, err)
		}
		near := make([]*rdmanet.Region, n)
		each := func(do func(i int) error) {
			t.Helper()
			var all sync.WaitGroup
			for first := range 8 {
				all.Go(func() {
					for i := first; i < n; i += 8 {
						if err := do(i); err != nil {
							t.Errorf("client %d: %v", i, err)
							return
						}
					}
				})
			}
			all.Wait()
			if t.Failed() {
				t.FailNow()
			}
		}
		each(func(i int) (err error) {
			if near[i], err = clients[i].NewRegion(pattern(part, byte(i)), 0); err != nil {
				return err
			}
			return clients[i].WriteRemote(t.Context(), writes[i].Remote(), near[i], 0)
		})
		read := func(i int) error {
			clear(near[i].Bytes())
			if err := clients[i].ReadRemote(t.Context(), near[i], 0, reads[i].Remote()); err != nil {
				return err
			}
			if want := pattern(part, byte((i+1)%n)); !bytes.Equal(near[i].Bytes(), want) {
				return errors.New("other bytes")
			}
			return nil
		}
		each(read)
		for i := 0; i < n; i += 2 {
			assert.NilError(t, reads[i].Revoke())
			assert.ErrorIs(t, reads[i].Revoke(), net.ErrClosed)
		}
		each(func(i int) error {
			if err := read(i); (err != nil) != (i%2 == 0) {
				return fmt.Errorf("read after the revocations: %w", err)
			}
			return nil
		})
		for i := 1; i < n; i += 2 {
			echoes(t, clients[i], servers[i])
		}
	})
}

// TestGrantRights has clients that may read, write, or read a part, and one outside the zone: each
// that does more loses its connection, and no other does.
func TestGrantRights(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		z := zone(t, dev)
		m, err := z.Register(pattern(8192, 5))
		assert.NilError(t, err)
		defer m.Close()
		l := listenIn(t, z)
		outside, err := (&rdmanet.ListenConfig{Device: dev}).Listen(t.Context(), "rdma", ":0") // without TLS, as the zone
		assert.NilError(t, err)
		defer outside.Close()
		witness, witnessed := joinMany(t, dev, l, 1)
		seen, err := witnessed[0].Grant(t.Context(), m, 0, 8192, rdmanet.PeerReads)
		assert.NilError(t, err)
		part := 4096
		readable, err := witnessed[0].Grant(t.Context(), m, 0, part, rdmanet.PeerReads)
		if errors.Is(err, errors.ErrUnsupported) {
			part, readable = 8192, seen
		} else {
			assert.NilError(t, err)
		}
		for name, try := range map[string]struct {
			l      *rdmanet.Listener
			access rdmanet.Access
			do     func(c *rdmanet.Conn, r *rdmanet.Region, granted rdmanet.Remote) error
		}{
			"a reader writes": {l, rdmanet.PeerReads, func(c *rdmanet.Conn, r *rdmanet.Region, granted rdmanet.Remote) error {
				return c.WriteRemote(t.Context(), granted, r, 0)
			}},
			"a writer reads": {l, rdmanet.PeerWrites, func(c *rdmanet.Conn, r *rdmanet.Region, granted rdmanet.Remote) error {
				return c.ReadRemote(t.Context(), r, 0, granted)
			}},
			"beyond its part": {l, rdmanet.PeerReads, func(c *rdmanet.Conn, r *rdmanet.Region, granted rdmanet.Remote) error {
				return c.ReadRemote(t.Context(), r, 0, longer(t, granted))
			}},
			"outside the zone": {outside, 0, func(c *rdmanet.Conn, r *rdmanet.Region, _ rdmanet.Remote) error {
				return c.ReadRemote(t.Context(), r, 0, readable.Remote())
			}},
		} {
			clients, servers := joinMany(t, dev, try.l, 1)
			var granted rdmanet.Remote
			if try.access != 0 {
				g, err := servers[0].Grant(t.Context(), m, 0, part, try.access)
				assert.NilError(t, err, name)
				granted = g.Remote()
			}
			r := region(t, clients[0], 16<<10, 0)
			assert.Assert(t, try.do(clients[0], r, granted) != nil, name)
			assert.Assert(t, bytes.Equal(r.Bytes(), make([]byte, 16<<10)), name)
			assert.NilError(t, servers[0].SetReadDeadline(time.Now().Add(patience)))
			_, err := servers[0].Read(make([]byte, 1))
			assert.Assert(t, err != nil && !errors.Is(err, syscall.ETIMEDOUT), "%s: %v", name, err)

			near := region(t, witness[0], 8192, 0)
			assert.NilError(t, witness[0].ReadRemote(t.Context(), near, 0, seen.Remote()), name)
			assert.Assert(t, bytes.Equal(near.Bytes(), pattern(8192, 5)), name)
		}
	})
}

// longer returns the Remote of one byte more than r.
func longer(t *testing.T, r rdmanet.Remote) rdmanet.Remote {
	b, err := r.MarshalBinary()
	assert.NilError(t, err)
	length := binary.BigEndian.AppendUint64(nil, r.Len())
	at := bytes.Index(b, length)
	assert.Assert(t, at >= 0)
	b[at+7]++
	var q rdmanet.Remote
	assert.NilError(t, q.UnmarshalBinary(b))
	assert.Equal(t, q.Len(), r.Len()+1)
	return q
}

// TestZoneEnds closes zone, memory, connection and grant in many orders. What is in use stays until
// its last user has gone, nothing new can be created, and nothing is left.
func TestZoneEnds(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		for first := range 4 {
			for second := range 4 {
				z := zone(t, dev)
				l := listenIn(t, z)
				m, err := z.Register(make([]byte, 4096))
				assert.NilError(t, err)
				clients, servers := joinMany(t, dev, l, 1)
				g, err := servers[0].Grant(t.Context(), m, 0, 4096, rdmanet.PeerReads)
				assert.NilError(t, err)
				near := region(t, clients[0], 4096, 0)
				ends := []func() error{z.Close, m.Close, g.Revoke, servers[0].Close}
				closed := map[int]bool{}
				for i := range 4 {
					k := []int{first, second, i, i}[min(i, 2)]
					for closed[k] {
						k = (k + 1) % 4
					}
					closed[k] = true
					assert.NilError(t, ends[k](), "%d", k)
					if !closed[2] && !closed[3] { // neither revoked nor without connection
						assert.NilError(t, clients[0].ReadRemote(t.Context(), near, 0, g.Remote()), "after %v", closed)
					}
					if closed[0] {
						_, err = z.Register(make([]byte, 4096))
						assert.ErrorIs(t, err, net.ErrClosed)
					}
					if closed[1] {
						_, err = servers[0].Grant(t.Context(), m, 0, 4096, rdmanet.PeerReads)
						assert.ErrorIs(t, err, net.ErrClosed)
					}
					if closed[3] && !closed[2] {
						closed[2] = true // the connection's end was that of its grants
						g.Revoke()
					}
					if len(closed) == 4 {
						break
					}
				}
			}
		}
	})
}

// TestGrantEnds: the error of a grant that cannot be made gives the reason. A grant whose
// connection has ended cannot be revoked again.
func TestGrantEnds(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		z := zone(t, dev)
		m, err := z.Register(make([]byte, 4096))
		assert.NilError(t, err)
		_, servers := joinMany(t, dev, listenIn(t, z), 1)
		s := servers[0]
		g, err := s.Grant(t.Context(), m, 0, 4096, rdmanet.PeerReads)
		assert.NilError(t, err)
		assert.NilError(t, s.SetDeadline(time.Unix(1, 0))) // of the stream alone
		over, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = s.Grant(over, m, 0, 4096, rdmanet.PeerReads)
		assert.ErrorIs(t, err, context.Canceled)
		_, err = s.Grant(t.Context(), m, 0, 4096, rdmanet.PeerReads)
		assert.NilError(t, err)
		assert.NilError(t, s.SetLinger(0))
		assert.NilError(t, s.Close())
		_, err = s.Grant(t.Context(), m, 0, 4096, rdmanet.PeerReads)
		assert.ErrorIs(t, err, net.ErrClosed)
		assert.ErrorIs(t, g.Revoke(), net.ErrClosed)
		assert.NilError(t, m.Close())
		assert.NilError(t, z.Close())
	})
}

// TestZoneRefuses makes invalid grants, and connections in a zone of another device or path.
func TestZoneRefuses(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		z, other := zone(t, dev), zone(t, dev)
		m, err := z.Register(make([]byte, 4096))
		assert.NilError(t, err)
		defer m.Close()
		foreign, err := other.Register(make([]byte, 4096))
		assert.NilError(t, err)
		defer foreign.Close()
		clients, servers := joinMany(t, dev, listenIn(t, z), 1)
		for _, try := range []struct {
			c      *rdmanet.Conn
			m      *rdmanet.Memory
			at, n  int
			access rdmanet.Access
		}{
			{servers[0], m, 0, 4097, rdmanet.PeerReads},
			{servers[0], m, 1, 4096, rdmanet.PeerReads},
			{servers[0], m, -1, 1, rdmanet.PeerReads},
			{servers[0], m, 0, 0, rdmanet.PeerReads},
			{servers[0], m, 0, 1, 0},
			{servers[0], m, 0, 8, rdmanet.PeerAtomics},
			{servers[0], m, 0, -1, rdmanet.PeerReads},
			{servers[0], nil, 0, 1, rdmanet.PeerReads},
			{servers[0], foreign, 0, 4096, rdmanet.PeerReads},
			{clients[0], m, 0, 4096, rdmanet.PeerReads},
		} {
			_, err := try.c.Grant(t.Context(), try.m, try.at, try.n, try.access)
			assert.ErrorIs(t, err, syscall.EINVAL, "%+v", try)
		}
		echoes(t, clients[0], servers[0])
		_, err = (&rdmanet.Dialer{Device: "other", Zone: z}).Dial(t.Context(), "rdma", "127.0.0.1:1")
		assert.ErrorIs(t, err, syscall.EINVAL)
		tos := 8
		lc := rdmanet.ListenConfig{Path: rdmanet.Path{TOS: &tos}, Zone: z}
		_, err = lc.Listen(t.Context(), "rdma", ":0")
		assert.ErrorIs(t, err, syscall.EINVAL)
		for _, keep := range []time.Duration{-1, 5 * time.Second} {
			lc := rdmanet.ListenConfig{KeepAlive: keep, Zone: z}
			_, err = lc.Listen(t.Context(), "rdma", ":0")
			assert.ErrorIs(t, err, syscall.EINVAL)
			_, err = (&rdmanet.Dialer{KeepAlive: keep, Zone: z}).Dial(t.Context(), "rdma", "127.0.0.1:1")
			assert.ErrorIs(t, err, syscall.EINVAL)
		}
	})
}

// TestListenInClosedZone: a Listener whose zone is closed ends, and refuses, at the next request.
func TestListenInClosedZone(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		z := zone(t, dev)
		l := listenIn(t, z)
		assert.NilError(t, z.Close())
		_, err := (&rdmanet.Dialer{Device: dev, Timeout: patience}).Dial(t.Context(), "rdma", l.Addr().String())
		assert.ErrorIs(t, err, syscall.ECONNREFUSED)
		assert.Assert(t, !errors.Is(err, context.DeadlineExceeded), err)
		for range 2 {
			_, err = l.Accept()
			assert.ErrorIs(t, err, net.ErrClosed)
			var temporary interface{ Temporary() bool }
			assert.Assert(t, errors.As(err, &temporary) && !temporary.Temporary(), err)
		}
		assert.Assert(t, l.Stats().Failed > 0)
	})
}
