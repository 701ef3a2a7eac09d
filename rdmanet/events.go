package rdmanet

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"github.com/godat/godat/udat"
)

// events implements handler for a connection.
type events struct{ *Conn }

func asHandler(c *Conn) handler { return events{c} }

func (c events) handle(ev *udat.Event) {
	c.mu.Lock()
	c.handling = true
	switch ev.Number {
	case udat.EventDTOCompletion, udat.EventRMRBindCompletion:
		c.completed(ev)
	case udat.EventConnectionEstablished:
		c.established(ev)
	default:
		c.disconnected(ev)
	}
	c.handling = false
	ready := c.isReady
	c.isReady = nil
	c.mu.Unlock()
	if ready != nil {
		ready()
	}
}

// retryExceeded is the device's status of a request that was retried until the device gave up,
// because the peer's device did not answer (IBV_WC_RETRY_EXC_ERR).
const retryExceeded = 12

// completed handles a completion. It accepts received data even after a request has failed, because
// the device may report the failed request before the data when a peer sends its last byte and
// disconnects.
func (c events) completed(ev *udat.Event) {
	receive := false
	switch ev.Operation {
	case udat.DTOReceive, udat.DTOReceiveInv, udat.DTOReceiveImm, udat.DTOReceiveWriteImm:
		receive = true
	}
	switch {
	case ev.Status == udat.DTOErrFlushed: // the event that the connection has ended comes next
	case ev.Status == udat.DTOErrTransport && ev.RawStatus == retryExceeded:
		c.fail(c.unlessAnswered(errDeadPeer))
	case ev.Status == udat.DTOErrRemoteAccess:
		c.fail(c.unlessAnswered(fmt.Errorf("%w: %w", ErrAccess, syscall.ECONNRESET)))
	case ev.Status != udat.DTOSuccess:
		c.fail(c.unlessAnswered(fmt.Errorf("%v: %w", ev.Status, syscall.ECONNRESET)))
	case receive && (c.state != stateDead || !c.closed):
		c.arrived(ev)
	case c.state != stateDead:
		c.sent(ev)
	}
}

// established handles the event that the connection is established. It opens a dialed connection,
// unless its Dial has given up, and sends the first message. Dial returns when the listener has
// answered this message; until then the listener may give up the connection. An accepted connection
// waits for this first message, because on iWARP the end that has connected must send first.
func (c events) established(ev *udat.Event) {
	if c.state != stateConnecting { // Dial has given up, or the first message came before this event
		return
	}
	if p, err := c.ep.Query(); err == nil && p.RemoteAddr.IsValid() {
		c.local = c.cfg.addr(Addr{addrPort(p.LocalAddr, p.LocalPortQual)})
		c.remote = c.cfg.addr(Addr{addrPort(p.RemoteAddr, p.RemotePortQual)})
		c.certificates = p.PeerCertificates
	}
	if c.out.accepted {
		return
	}
	h, err := decodeHello(ev.PrivateData())
	if err != nil {
		c.fail(fmt.Errorf("rdmanet: %w", err))
		return
	}
	c.meet(h)
	c.owe(kindCredit)
	c.state = stateOpen
	c.push() // Dial returns when the listener answers
}

// disconnected handles the events of a connection that could not be established, or that has ended.
func (c events) disconnected(ev *udat.Event) {
	cause := ev.Err()
	if c.state != stateConnecting {
		c.fail(c.unlessAnswered(ended(cause)))
		return
	}
	errno := syscall.ECONNREFUSED
	switch ev.Number {
	case udat.EventConnectionTimedOut:
		errno = syscall.ETIMEDOUT
	case udat.EventConnectionUnreachable:
		errno = syscall.EHOSTUNREACH
		if errors.Is(cause, syscall.ETIMEDOUT) {
			errno = syscall.ETIMEDOUT
		}
	}
	for _, own := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.ENOBUFS,
		syscall.EADDRNOTAVAIL} {
		if errors.Is(cause, own) { // a limit of this host: the device tcp needs a socket and a port for each connection
			errno = own
		}
	}
	err := withErrno(cause, errno)
	if why, busy := decodeRefusal(ev.PrivateData()); ev.Number == udat.EventConnectionPeerRejected && why != "" {
		err = fmt.Errorf("%w: the peer says %q", err, why)
		if busy {
			err = errBusy{err}
		}
	} else if mayPass(ev.Number, cause) {
		err = errBusy{err}
	}
	c.fail(err)
}

// ended returns the error of a connection that has ended. The parameter cause is the error of the
// last event, or nil. As over TCP, the error is ETIMEDOUT or EHOSTUNREACH if the peer has vanished,
// and ECONNRESET otherwise.
func ended(cause error) error {
	switch {
	case errors.Is(cause, syscall.ETIMEDOUT):
		return timeoutError{cause}
	case errors.Is(cause, syscall.EHOSTUNREACH):
		return cause
	}
	return withErrno(cause, syscall.ECONNRESET)
}

// mayPass reports whether a connection could not be established because the listener is busy. The
// cause is EAGAIN if the listener has no room for the request, EINVAL if it has given up the
// connection, and ETIMEDOUT if the device has given up waiting for an answer, which takes 10 s on
// soft-iWARP. A net.OpError with EINVAL has another cause: this host's TCP cannot connect to the
// address.
func mayPass(what udat.EventNumber, cause error) bool {
	here := new(net.OpError)
	return errors.Is(cause, syscall.EAGAIN) || errors.Is(cause, syscall.EINVAL) && !errors.As(cause, &here) ||
		what == udat.EventConnectionUnreachable && errors.Is(cause, syscall.ETIMEDOUT)
}

// unlessAnswered returns the error of a connection that has ended. If the connection ended before
// the listener answered the first message, the error is errBusy: the listener has given up the
// connection, and another Dial may succeed. mu is held.
func (c events) unlessAnswered(err error) error {
	if c.ready != nil {
		return errBusy{err}
	}
	return err
}

// errBusy is the error if the listener has too many requests. Another Dial may succeed.
type errBusy struct{ error }

func (e errBusy) Unwrap() error { return e.error }

func addrPort(a netip.Addr, port uint64) netip.AddrPort {
	return netip.AddrPortFrom(a.Unmap(), uint16(port))
}
