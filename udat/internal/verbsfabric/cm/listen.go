package cm

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"syscall"

	"github.com/godat/godat/cverbs"
	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/verbsfabric/errmap"
)

// listener accepts requests for one port, on all addresses that the device uses. It listens on a
// link-local address only if that is the first address, the device's own.
type listener struct {
	m      *Manager
	accept fabric.Filter
	on     func(fabric.Request)
	addr   netip.AddrPort

	mu     sync.Mutex
	ids    []*cverbs.CMID
	closed bool
}

// kernelBacklog is the number of requests that the kernel queues for a listener until the event
// goroutine reads them. It limits only such requests, not all requests without an answer. It is the
// kernel's maximum (net.rdma_ucm.max_backlog).
const kernelBacklog = 1024

func (m *Manager) Listen(port uint16, accept fabric.Filter, on func(fabric.Request)) (fabric.Listener, error) {
	if on == nil {
		return nil, errmap.Invalid("the handler is nil")
	}
	if !m.port.Attr.Info.Addr.IsValid() {
		return nil, fmt.Errorf("%w: %s has no IP address to listen on", fabric.ErrAddrInvalid, m.port.Attr.Info.Name)
	}
	if err := m.reserve(); err != nil {
		return nil, err
	}
	l := &listener{m: m, accept: accept, on: on}
	if err := l.listen(port); err != nil {
		m.release()
		return nil, errmap.WrapAddr(err)
	}
	return l, nil
}

func (l *listener) listen(port uint16) error {
	// A port that is free on one address may be in use on another.
	for tries := 0; ; tries++ {
		err := l.listenOnce(port)
		if port != 0 || tries == 10 || !errors.Is(err, syscall.EADDRINUSE) {
			return err
		}
	}
}

func (l *listener) listenOnce(port uint16) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, a := range l.m.dev.Addrs() {
		if i > 0 && a.IsLinkLocalUnicast() {
			continue
		}
		id, err := l.bind(a, port)
		switch {
		case err == nil && i == 0:
			port = id.LocalAddr().Port() // the same port for all addresses
			l.addr = netip.AddrPortFrom(a, port)
			fallthrough
		case err == nil:
			l.ids = append(l.ids, id)
		case i == 0 || errors.Is(err, syscall.EADDRINUSE):
			for _, id := range l.ids {
				id.Close()
			}
			l.ids = nil
			return err
		default:
			// The address is unusable now (for example a tentative IPv6 address). The device's own address
			// still works.
		}
	}
	return nil
}

func (l *listener) bind(addr netip.Addr, port uint16) (*cverbs.CMID, error) {
	id, err := l.m.ch.CreateID(cverbs.PortSpaceTCP)
	if err != nil {
		return nil, err
	}
	id.SetData(l)
	if tos := l.m.port.Options.Path.TOS; tos != nil {
		if err := id.SetTOS(*tos); err != nil {
			return nil, errors.Join(err, id.Close())
		}
	}
	if err = id.BindAddr(netip.AddrPortFrom(addr, port)); err == nil {
		err = id.Listen(kernelBacklog)
	}
	if err != nil {
		return nil, errors.Join(err, id.Close())
	}
	return id, nil
}

func (l *listener) Addr() netip.AddrPort { return l.addr }

func (l *listener) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return fabric.ErrClosed
	}
	l.closed = true
	l.mu.Unlock()
	err := l.closeIDs()
	l.m.release()
	return errmap.Wrap(err)
}

func (l *listener) closeIDs() error {
	l.mu.Lock()
	ids := l.ids
	l.ids = nil
	l.mu.Unlock()
	var err error
	for _, id := range ids {
		err = errors.Join(err, id.Close())
	}
	return err
}

// Handle handles events of the listening ids; only the device's removal matters.
func (l *listener) Handle(ev cverbs.CMEvent) {
	if ev.Type == cverbs.CMEventDeviceRemoval {
		l.closeIDs() // the kernel waits until the ids are closed
	}
}

func (l *listener) isClosed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed
}

// arrive passes a connection request to the handler, or rejects it.
func (l *listener) arrive(ev cverbs.CMEvent) {
	id, m := ev.ID, l.m
	// A queue pair of this device can only answer a request that came in on this port.
	if id.Device() != m.port.Device || id.Port() != m.port.Num || l.isClosed() {
		m.refuse(id, nil)
		return
	}
	if !l.accept.Accepts(id.RemoteAddr()) {
		m.refuse(id, []byte("the listener accepts no connection from this address"))
		return
	}
	c := &Conn{
		m: m, id: id, state: stArrived, local: id.LocalAddr(), remote: id.RemoteAddr(),
		in:  clampDepth(ev.ResponderResources, m.port.Attr.MaxReadIn),
		out: clampDepth(ev.InitiatorDepth, m.port.Attr.MaxReadOut),
	}
	id.SetData(c)
	m.asked(c)
	n := toldLength(id, m.port.IWARP)
	r := &Request{Conn: c}
	r.private, r.padded = unpack(ev.PrivateData, n, m.port.IWARP)
	c.told = n >= 0
	l.on(r)
}

var errAnswered = fmt.Errorf("%w: the request has been answered", fabric.ErrClosed)

// clampDepth limits a peer's read depth to the limit of this device.
func clampDepth(n uint8, limit int) uint8 { return uint8(min(int(n), max(limit, 0), 255)) }

// Request is a connection request without an answer yet.
type Request struct {
	Conn    *Conn
	private []byte
	padded  bool // the length of private is not known
}

func (r *Request) LocalAddr() netip.AddrPort   { return r.Conn.LocalAddr() }
func (r *Request) RemoteAddr() netip.AddrPort  { return r.Conn.RemoteAddr() }
func (r *Request) Private() ([]byte, bool)     { return r.private, r.padded }
func (r *Request) ReadDepths() (in, out uint8) { return r.Conn.ReadDepths() }

// Accept moves qp to RTS and sends the reply.
func (r *Request) Accept(q fabric.QP, p fabric.AcceptParams, on func(fabric.ConnEvent)) (fabric.Conn, error) {
	c, m := r.Conn, r.Conn.m
	qp, err := m.dev.OwnQP(q)
	if err != nil {
		return nil, err
	}
	if on == nil {
		return nil, errmap.Invalid("the handler is nil")
	}
	if limit := m.port.Attr.MaxAcceptData; len(p.Private) > limit {
		return nil, errmap.Invalid("%d bytes of private data, an accept carries at most %d", len(p.Private), limit)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state != stArrived && c.state != stLost {
		return nil, errAnswered
	}
	if err := m.reserve(); err != nil {
		return nil, err
	}
	if err := qp.Claim(c.dataCame); err != nil {
		m.release()
		return nil, err
	}
	moved, cause := false, c.lost
	if cause == nil {
		in, out := min(c.in, p.ReadIn), min(c.out, p.ReadOut)
		moved, cause = qp.Connect(c.id, in, out)
		if cause != nil && !moved && !peerGone(cause) {
			qp.Unclaim()
			m.release()
			return nil, errmap.Wrap(cause)
		}
		c.in, c.out = in, out
	}
	c.qp, c.on = qp, on
	if cause == nil {
		c.state = stAccepted // set before the call of Accept, because the peer's answer may come before the call returns
		if c.told {
			cause = tellLength(c.id, m.port.IWARP, p.Private)
		}
		if cause == nil {
			cause = c.id.Accept(c.param(p.Private))
		}
	}
	c.m.answered(c)
	m.add(c)
	if cause != nil {
		// It is too late to return an error, because the peer has given up, or because the queue
		// pair has left INIT.
		for _, e := range c.end(fabric.EventFailed, cause) {
			c.tellLater(e)
		}
	}
	return c, nil
}

// peerGone reports whether an error of qp.Connect means that the peer has given up. The id of the
// request can then no longer be accepted.
func peerGone(err error) bool {
	var e *cverbs.Error
	return errors.As(err, &e) && e.Verb == "rdma_init_qp_attr"
}

// Reject rejects the request.
func (r *Request) Reject(private []byte, byConsumer bool) error {
	c := r.Conn
	if limit := c.m.port.Attr.MaxRejectData; len(private) > limit {
		return errmap.Invalid("%d bytes of private data, a reject carries at most %d", len(private), limit)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state != stArrived && c.state != stLost {
		return errAnswered
	}
	if byConsumer {
		private = packReject(private, c.told)
	}
	if c.state == stArrived {
		c.id.Reject(private) // a failure means that the peer has given up meanwhile
	}
	c.state = stOver
	c.destroy()
	c.m.answered(c) // last, so that Manager.Close finds the request and waits for c.mu
	return nil
}
