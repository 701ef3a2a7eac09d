package rdmanet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"

	"github.com/godat/godat/udat"
)

// Grant is the right of the peer of one connection to read or write part of a [Memory]. It ends
// when it is revoked or the connection is closed. All methods are safe for concurrent use.
type Grant struct {
	c      *Conn
	memory *Memory
	window *udat.RMR
	remote Remote
}

// Grant gives the peer the right to read or write (or both) the n bytes of m that begin at the
// offset off. The number n must be positive, and the connection and m must be in the same [Zone].
// Grant waits until the device has bound a memory window or ctx has ended, with the rules of
// [Batch.Start]. A connection may have any number of grants, and they may overlap. With PeerAtomics
// the error is syscall.EINVAL, because memory windows do not support atomics. On soft-RoCE a window
// always covers the whole memory, so a grant of a part of m fails with errors.ErrUnsupported.
func (c *Conn) Grant(ctx context.Context, m *Memory, off, n int, access Access) (*Grant, error) {
	g, err := c.grant(ctx, m, off, n, access)
	if err != nil {
		return nil, c.opError("grant", err)
	}
	return g, nil
}

func (c *Conn) grant(ctx context.Context, m *Memory, at, n int, access Access) (*Grant, error) {
	switch {
	case !c.ok() || m == nil || m.zone != c.cfg.zone:
		return nil, fmt.Errorf("connection and memory are not in one Zone: %w", syscall.EINVAL)
	case access == 0 || access&^(PeerReads|PeerWrites) != 0:
		return nil, fmt.Errorf("access %#x, must be PeerReads, PeerWrites or both: %w", access, syscall.EINVAL)
	case n <= 0 || at < 0 || at > len(m.buf) || n > len(m.buf)-at:
		return nil, fmt.Errorf("%d bytes from %d on of memory of %d: %w", n, at, len(m.buf), syscall.EINVAL)
	case n < len(m.buf) && !m.zone.exact:
		return nil, fmt.Errorf("part of a memory: a window of device %s opens all of it: %w", c.Device(),
			errors.ErrUnsupported)
	}
	if err := m.enter(); err != nil {
		return nil, err
	}
	g := &Grant{c: c, memory: m}
	priv, _ := access.rights(c.pool.adapter) // cannot fail without PeerAtomics
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pin()
	defer c.unpin()
	err := cmp.Or(ctx.Err(), c.useError())
	if err == nil {
		err = c.unlocked(func() (err error) { g.window, err = c.pz.CreateRMR(); return })
	}
	if err == nil {
		err = g.bind(ctx, m.lmr.Triplet(at, n), priv&^privatePriv)
	}
	if err != nil {
		c.unlocked(func() error { return m.takeBack(g.window) })
		return nil, err
	}
	g.remote = Remote{g.window.RMRTriplet()}
	if c.grants == nil {
		c.grants = make(map[*Grant]struct{})
	}
	c.grants[g] = struct{}{}
	return g, nil
}

// bind binds the window to the triplet's memory, and waits until the device has bound it; Conn.mu
// is held.
func (g *Grant) bind(ctx context.Context, triplet udat.LMRTriplet, priv udat.MemPriv) error {
	c := g.c
	p := &Pending{c: c}
	err := p.start(ctx, func() error {
		if _, err := p.room(); err != nil {
			return err
		}
		cookie, flags := udat.Cookie(c.out.requests), c.flags(true)
		c.count()
		if _, err := g.window.Bind(triplet, priv, c.ep, cookie, flags); err != nil {
			c.fail(fmt.Errorf("%w: %w", syscall.ECONNRESET, err))
			return c.err
		}
		p.last = c.out.requests
		return nil
	})
	if err == nil {
		p.await()
		err = p.err
	}
	return err
}

// Remote returns the Remote that identifies the granted memory to the peer. The program sends it to
// the peer in a message. It is valid until the grant is revoked.
func (g *Grant) Remote() Remote { return g.remote }

// Revoke ends the grant. When Revoke has returned, the peer can no longer access the memory by this
// grant. If the peer tries, its connection breaks. Other grants remain valid.
func (g *Grant) Revoke() error {
	c := g.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.grants[g]; !ok || c.released {
		return c.opError("revoke", net.ErrClosed)
	}
	delete(c.grants, g)
	return c.opError("revoke", c.unlocked(func() error { return g.memory.takeBack(g.window) }))
}
