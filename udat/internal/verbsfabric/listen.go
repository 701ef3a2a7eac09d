package verbsfabric

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"syscall"

	"github.com/godat/godat/cverbs"
	"github.com/godat/godat/udat/internal/fabric"
)

// listener accepts requests for one port, on all addresses that the device uses. Of link-local ones
// it takes the device's own only.
type listener struct {
	dev     *device
	on      func(fabric.Request) // nil: the listener for pings, which rejects all requests
	backlog int
	addr    netip.AddrPort

	mu     sync.Mutex
	ids    []*cverbs.CMID
	closed bool
}

// kernelBacklog is the number of requests that the kernel queues for a listener until the event
// goroutine reads them. It bounds a burst, not unanswered requests. It is the kernel's maximum
// (net.rdma_ucm.max_backlog).
const kernelBacklog = 1024

func (d *device) Listen(port uint16, on func(fabric.Request)) (fabric.Listener, error) {
	if on == nil {
		return nil, invalid("the handler is nil")
	}
	if !d.info.Addr.IsValid() {
		return nil, fmt.Errorf("%w: %s has no IP address to listen on", fabric.ErrAddrInvalid, d.info.Name)
	}
	if err := d.reserve(); err != nil {
		return nil, err
	}
	l := &listener{dev: d, on: on, backlog: kernelBacklog}
	if err := l.listen(port); err != nil {
		d.release()
		return nil, wrapAddr(err)
	}
	return l, nil
}

func (l *listener) listen(port uint16) error {
	// A port free on one address may be taken on another.
	for tries := 0; ; tries++ {
		err := l.listenOnce(port)
		if err == nil || port != 0 || tries == 10 || !errors.Is(err, syscall.EADDRINUSE) {
			return err
		}
	}
}

func (l *listener) listenOnce(port uint16) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, a := range l.dev.addrs {
		if i > 0 && a.IsLinkLocalUnicast() {
			continue
		}
		id, err := l.bind(a, port)
		switch {
		case err == nil && i == 0:
			port = id.LocalAddr().Port() // the same for all
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
			// The address is unusable now (for example a tentative IPv6 address); the device's own
			// still works.
		}
	}
	return nil
}

func (l *listener) bind(addr netip.Addr, port uint16) (*cverbs.CMID, error) {
	id, err := l.dev.ch.CreateID(cverbs.PortSpaceTCP)
	if err != nil {
		return nil, err
	}
	id.SetData(l)
	if tos := l.dev.opts.Path.TOS; tos != nil {
		if err := id.SetTOS(*tos); err != nil {
			return nil, errors.Join(err, id.Close())
		}
	}
	if err = id.BindAddr(netip.AddrPortFrom(addr, port)); err == nil {
		err = id.Listen(l.backlog)
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
	l.dev.release()
	return wrap(err)
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

// handle handles events of the listening ids; only the device's removal matters.
func (l *listener) handle(ev cverbs.CMEvent) {
	if ev.Type == cverbs.CMEventDeviceRemoval {
		l.closeIDs() // the kernel waits for it
	}
}

func (l *listener) isClosed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed
}

// arrive passes a connection request to its listener's handler, or rejects it.
func (d *device) arrive(ev cverbs.CMEvent) {
	id := ev.ID
	var l *listener
	if ev.ListenID != nil {
		l, _ = ev.ListenID.Data().(*listener)
	}
	// A queue pair of this device can only answer a request that came in on it.
	if l == nil || l.on == nil || id.Device() != d.device || id.Port() != d.num || l.isClosed() {
		id.Reject(d.pong(l, ev))
		d.destroyID(id)
		return
	}
	c := &conn{
		dev: d, id: id, state: stArrived, peerQPN: ev.QPNum, local: id.LocalAddr(), remote: id.RemoteAddr(),
		in: clampDepth(ev.ResponderResources, d.attrs.MaxReadIn), out: clampDepth(ev.InitiatorDepth, d.attrs.MaxReadOut),
	}
	id.SetData(c)
	d.mu.Lock()
	d.requests[c] = struct{}{}
	d.mu.Unlock()
	n, port := d.toldOptions(id)
	r := &request{c: c}
	r.private, r.padded = unpack(ev.PrivateData, n, d.iwarp)
	c.told, c.pingPort = n >= 0, port
	l.on(r)
}

var errAnswered = fmt.Errorf("%w: the request has been answered", fabric.ErrClosed)

// clampDepth limits a peer's depth to this device's.
func clampDepth(n uint8, limit int) uint8 { return uint8(min(int(n), max(limit, 0), 255)) }

// request is a connection request without an answer yet.
type request struct {
	c       *conn
	private []byte
	padded  bool // private's length is not known
}

func (r *request) LocalAddr() netip.AddrPort   { return r.c.LocalAddr() }
func (r *request) RemoteAddr() netip.AddrPort  { return r.c.RemoteAddr() }
func (r *request) Private() ([]byte, bool)     { return r.private, r.padded }
func (r *request) ReadDepths() (in, out uint8) { return r.c.ReadDepths() }

// answer marks the request as answered. The caller holds the connection's lock.
func (r *request) answer() {
	d := r.c.dev
	d.mu.Lock()
	delete(d.requests, r.c)
	d.mu.Unlock()
}

// Accept moves qp to RTS and sends the reply.
func (r *request) Accept(q fabric.QP, p fabric.AcceptParams, on func(fabric.ConnEvent)) (fabric.Conn, error) {
	c, d := r.c, r.c.dev
	qp, err := d.ownQP(q)
	if err != nil {
		return nil, err
	}
	if on == nil {
		return nil, invalid("the handler is nil")
	}
	if len(p.Private) > maxAcceptData {
		return nil, invalid("%d bytes of private data, an accept carries at most %d", len(p.Private), maxAcceptData)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state != stArrived && c.state != stLost {
		return nil, errAnswered
	}
	if err := d.reserve(); err != nil {
		return nil, err
	}
	if err := qp.claim(c); err != nil {
		d.release()
		return nil, err
	}
	moved, cause := false, c.lost
	if cause == nil {
		in, out := min(c.in, p.ReadIn), min(c.out, p.ReadOut)
		moved, cause = qp.connect(c.id, in, out)
		if cause != nil && !moved && !peerGone(cause) {
			qp.unclaim()
			d.release()
			return nil, wrap(cause)
		}
		c.in, c.out = in, out
	}
	c.qp, c.on = qp, on
	if cause == nil {
		c.state = stAccepted // before the call: the peer's answer may be faster than its return
		if c.told {
			cause = d.tellOptions(c.id, p.Private)
		}
		if cause == nil {
			cause = c.id.Accept(c.param(p.Private))
		}
	}
	r.answer()
	d.addConn(c)
	if cause != nil {
		// Too late for an error: the peer has given up, or the queue pair has left INIT.
		for _, e := range c.end(fabric.EventFailed, cause) {
			c.tellLater(e)
		}
	}
	return c, nil
}

// peerGone reports whether an error means that the request's id has left its state.
func peerGone(err error) bool {
	var e *cverbs.Error
	return errors.As(err, &e) && e.Verb == "rdma_init_qp_attr"
}

// Reject rejects the request.
func (r *request) Reject(private []byte, byConsumer bool) error {
	c := r.c
	if len(private) > maxRejectData {
		return invalid("%d bytes of private data, a reject carries at most %d", len(private), maxRejectData)
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
	r.answer() // last: a device that closes waits for requests that it knows
	return nil
}
