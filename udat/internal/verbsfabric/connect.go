package verbsfabric

import (
	"errors"
	"fmt"
	"net/netip"
	"syscall"

	"github.com/godat/godat/cverbs"
	"github.com/godat/godat/udat/internal/fabric"
)

// This file starts connections: it chooses the local address, resolves the peer's and sends the
// request.

// Connect starts connecting qp.
func (d *device) Connect(q fabric.QP, p fabric.ConnectParams, on func(fabric.ConnEvent)) (fabric.Conn, error) {
	qp, err := d.ownQP(q)
	if err != nil {
		return nil, err
	}
	if on == nil {
		return nil, invalid("the handler is nil")
	}
	if len(p.Private) > maxConnData {
		return nil, invalid("%d bytes of private data, a connect carries at most %d", len(p.Private), maxConnData)
	}
	if int(p.ReadIn) > d.attrs.MaxReadIn || int(p.ReadOut) > d.attrs.MaxReadOut {
		return nil, invalid("read depths %d in and %d out, this device has at most %d and %d",
			p.ReadIn, p.ReadOut, d.attrs.MaxReadIn, d.attrs.MaxReadOut)
	}
	to := netip.AddrPortFrom(p.Remote.Addr().Unmap(), p.Remote.Port())
	if a := to.Addr(); !a.IsValid() || a.IsUnspecified() || a.IsMulticast() || to.Port() == 0 {
		return nil, fmt.Errorf("%w: remote address %v", fabric.ErrAddrInvalid, p.Remote)
	}
	c := &conn{
		dev: d, qp: qp, active: true, on: on, remote: to,
		private: append([]byte(nil), p.Private...),
		in:      p.ReadIn, out: p.ReadOut,
	}
	if err := d.reserve(); err != nil {
		return nil, err
	}
	if err := qp.claim(c); err != nil {
		d.release()
		return nil, err
	}
	if err := c.start(); err != nil {
		qp.unclaim()
		d.release()
		return nil, err
	}
	return c, nil
}

// start creates the id and resolves the address.
func (c *conn) start() error {
	d := c.dev
	c.mu.Lock()
	defer c.mu.Unlock()
	src, ok := d.sourceFor(c.remote.Addr())
	if !ok {
		c.local = netip.AddrPortFrom(d.info.Addr, 0)
		c.giveUp(fmt.Errorf("verbs: %s has no address of the family of %v", d.info.Name, c.remote.Addr()))
		return nil
	}
	c.local = netip.AddrPortFrom(src, 0)
	err := c.resolve()
	switch {
	case err == nil:
		d.addConn(c)
	case unreachable(err):
		c.giveUp(err)
	default:
		return wrapAddr(err)
	}
	return nil
}

// resolve makes the id and has it choose a local port and resolve the address. The caller holds the
// lock.
func (c *conn) resolve() error {
	id, err := c.dev.ch.CreateID(cverbs.PortSpaceTCP)
	if err != nil {
		return err
	}
	id.SetData(c)
	if tos := c.dev.opts.Path.TOS; tos != nil {
		err = id.SetTOS(*tos)
	}
	if err == nil {
		err = id.ResolveAddr(netip.AddrPortFrom(c.local.Addr(), 0), c.remote, c.dev.opts.CMWait)
	}
	if err != nil {
		id.Close()
		return err
	}
	c.id = id
	return nil
}

// giveUp ends an attempt that found no path; the handler receives the event later.
func (c *conn) giveUp(cause error) {
	c.state, c.destroyed = stOver, true
	c.qp.unclaim()
	c.dev.addConn(c)
	c.tellLater(fabric.ConnEvent{Kind: fabric.EventUnreachable, Err: cause})
}

// requestLater sends the request: iWARP drivers may wait for the peer's TCP in the call. The caller
// holds the lock.
func (c *conn) requestLater() {
	param := c.param(c.private)
	c.later(func() error { return c.id.Connect(param) }, func(err error) {
		if err == nil || c.state != stRequested || c.anotherPort(err) {
			return
		}
		for _, e := range c.end(connectFailure(err)) {
			c.tellLater(e)
		}
	})
}

// maxPorts is how many times an attempt takes another local port.
const maxPorts = 4

// anotherPort begins the attempt anew if its request failed with err because the local port is in
// use. On iWARP that is a TCP port, but rdma_cm does not ask TCP when it chooses one. The next id
// chooses while the former still has its port, so it takes another. The caller holds the lock.
func (c *conn) anotherPort(err error) bool {
	former := c.id
	inUse := errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EADDRINUSE)
	if !inUse || c.ports == maxPorts || c.resolve() != nil {
		return false
	}
	c.ports++
	c.state = stAddr
	c.dev.destroyID(former)
	return true
}

// connectFailure returns the outcome of a request that could not be sent. iWARP drivers may connect
// TCP during the call and so return its failure.
func connectFailure(err error) (fabric.ConnEventKind, error) {
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return fabric.EventRejected, fmt.Errorf("nobody listens there: %w", err)
	case errors.Is(err, syscall.ECONNRESET):
		return fabric.EventRejected, err
	case unreachable(err):
		return fabric.EventUnreachable, err
	}
	return fabric.EventFailed, err
}
