package cm

import (
	"errors"
	"fmt"
	"net/netip"
	"syscall"

	"github.com/godat/godat/cverbs"
	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/verbsfabric/errmap"
)

// This file starts connections: it chooses the local address, resolves the peer's address and sends
// the request.

// Connect starts connecting qp.
func (m *Manager) Connect(q fabric.QP, p fabric.ConnectParams, on func(fabric.ConnEvent)) (fabric.Conn, error) {
	qp, err := m.dev.OwnQP(q)
	if err != nil {
		return nil, err
	}
	if on == nil {
		return nil, errmap.Invalid("the handler is nil")
	}
	if limit := m.port.Attr.MaxConnData; len(p.Private) > limit {
		return nil, errmap.Invalid("%d bytes of private data, a connect carries at most %d", len(p.Private), limit)
	}
	if int(p.ReadIn) > m.port.Attr.MaxReadIn || int(p.ReadOut) > m.port.Attr.MaxReadOut {
		return nil, errmap.Invalid("read depths %d in and %d out, this device has at most %d and %d",
			p.ReadIn, p.ReadOut, m.port.Attr.MaxReadIn, m.port.Attr.MaxReadOut)
	}
	to := netip.AddrPortFrom(p.Remote.Addr().Unmap(), p.Remote.Port())
	if a := to.Addr(); !a.IsValid() || a.IsUnspecified() || a.IsMulticast() || to.Port() == 0 {
		return nil, fmt.Errorf("%w: remote address %v", fabric.ErrAddrInvalid, p.Remote)
	}
	c := &Conn{
		m: m, qp: qp, active: true, on: on, remote: to,
		private: append([]byte(nil), p.Private...),
		in:      p.ReadIn, out: p.ReadOut,
	}
	if err := m.reserve(); err != nil {
		return nil, err
	}
	if err := qp.Claim(c.dataCame); err != nil {
		m.release()
		return nil, err
	}
	if err := c.start(); err != nil {
		qp.Unclaim()
		m.release()
		return nil, err
	}
	return c, nil
}

// start creates the id and resolves the address.
func (c *Conn) start() error {
	m := c.m
	c.mu.Lock()
	defer c.mu.Unlock()
	src, ok := m.dev.SourceFor(c.remote.Addr())
	if !ok {
		c.local = netip.AddrPortFrom(m.port.Attr.Info.Addr, 0)
		c.giveUp(fmt.Errorf("verbs: %s has no address of the family of %v", m.port.Attr.Info.Name, c.remote.Addr()))
		return nil
	}
	c.local = netip.AddrPortFrom(src, 0)
	err := c.resolve()
	switch {
	case err == nil:
		m.add(c)
	case errors.Is(err, syscall.EADDRNOTAVAIL): // the device has the address src
		c.giveUp(fmt.Errorf("%w: %w", fabric.ErrNoPort, err))
	case errmap.Unreachable(err):
		c.giveUp(err)
	default:
		return errmap.WrapAddr(err)
	}
	return nil
}

// resolve creates the id, and starts to resolve the peer's address. rdma_cm also chooses a local
// port. The caller holds the lock.
func (c *Conn) resolve() error {
	id, err := c.m.ch.CreateID(cverbs.PortSpaceTCP)
	if err != nil {
		return err
	}
	id.SetData(c)
	if tos := c.m.port.Options.Path.TOS; tos != nil {
		err = id.SetTOS(*tos)
	}
	if err == nil {
		err = id.ResolveAddr(netip.AddrPortFrom(c.local.Addr(), 0), c.remote, c.m.port.Options.CMWait)
	}
	if err != nil {
		id.Close()
		return err
	}
	c.id = id
	return nil
}

// giveUp ends an attempt for which there is no path. The event goroutine then passes
// EventUnreachable to the handler.
func (c *Conn) giveUp(cause error) {
	c.state, c.destroyed = stOver, true
	c.qp.Unclaim()
	c.m.add(c)
	c.tellLater(fabric.ConnEvent{Kind: fabric.EventUnreachable, Err: cause})
}

// requestLater sends the request in a new goroutine, because iWARP drivers may wait during the call
// until TCP is connected. The caller holds the lock.
func (c *Conn) requestLater() {
	param := c.param(c.private)
	c.callLater(func() error { return c.id.Connect(param) }, func(err error) {
		if err == nil || c.state != stRequested || c.anotherPort(err) {
			return
		}
		for _, e := range c.end(connectFailure(err)) {
			c.tellLater(e)
		}
	})
}

// maxPorts is how many times an attempt is repeated with another local port.
const maxPorts = 4

// If the request failed with err because the local port is in use, anotherPort starts the attempt
// again and returns true. It does so at most maxPorts times. Otherwise it returns false. On iWARP
// the port is a TCP port, but rdma_cm chooses the port without asking TCP. The new id gets another
// port, because the former id still occupies the first one. The caller holds the lock.
func (c *Conn) anotherPort(err error) bool {
	former := c.id
	inUse := errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EADDRINUSE)
	if !inUse || c.ports == maxPorts || c.resolve() != nil {
		return false
	}
	c.ports++
	c.state = stAddr
	c.m.destroy(former)
	return true
}

// connectFailure returns the kind and the error of the event for a request that could not be sent.
// The parameter err may be an error of TCP, because iWARP drivers may connect TCP during the call.
func connectFailure(err error) (fabric.ConnEventKind, error) {
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return fabric.EventRejected, fmt.Errorf("nobody listens there: %w", err)
	case errors.Is(err, syscall.ECONNRESET):
		return fabric.EventRejected, err
	case errmap.Unreachable(err):
		return fabric.EventUnreachable, err
	}
	return fabric.EventFailed, err
}
