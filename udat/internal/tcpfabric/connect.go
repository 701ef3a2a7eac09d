package tcpfabric

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync/atomic"
	"syscall"

	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/softnic"
	"github.com/godat/godat/udat/internal/tcpfabric/iwarp"
)

// Connect starts a connection.
func (d *Device) Connect(q fabric.QP, p fabric.ConnectParams, on func(fabric.ConnEvent)) (fabric.Conn, error) {
	c := &conn{dev: d}
	if err := d.Attempt(&c.Conn, q, p, on); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	d.HW.Mu.Lock()
	defer d.HW.Mu.Unlock()
	c.Local, c.Cancel = netip.AddrPortFrom(d.host(), 0), cancel
	if c.State != softnic.Connecting { // the device has just been removed
		cancel()
	}
	go c.attempt(ctx, slices.Clone(p.Private))
	return c, nil
}

// attempt connects, and reports the outcome to the handler.
func (c *conn) attempt(ctx context.Context, private []byte) {
	for revision := uint8(2); ; revision = 1 {
		tcp, failure := c.dial(ctx)
		if tcp == nil {
			c.Fail(softnic.Connecting, failure)
			return
		}
		// If ctx ends, the function closes the connection. It does not set a deadline instead, because
		// the set-up sets deadlines of its own.
		stop := context.AfterFunc(ctx, func() { tcp.Close() })
		reply, ev := c.ask(tcp, revision, private)
		stop()
		switch {
		case ev == nil:
			c.dev.Events.Attend(func() { c.answered(tcp, reply) })
			return
		case revision == 2 && reply.Revision == 1: // a peer that supports RFC 5044 only: try again with revision 1
			tcp.Close()
			continue
		}
		tcp.Close()
		c.Fail(softnic.Connecting, *ev)
		return
	}
}

// dial makes the TCP connection, and does the handshake of TLS on it if the device has TLS. If it
// fails, it returns nil and the event to report.
func (c *conn) dial(ctx context.Context) (stream, fabric.ConnEvent) {
	dialer := net.Dialer{Timeout: dialLimit, KeepAlive: -1, Control: c.dev.controlDial}
	if c.dev.Opts.CMWait > 0 {
		dialer.Timeout = c.dev.Opts.CMWait
	}
	if to := c.Remote.Addr(); c.dev.at.IsValid() && c.dev.at.Is4() != to.Unmap().Is4() {
		return nil, fabric.ConnEvent{Kind: fabric.EventUnreachable,
			Err: fmt.Errorf("%w: the adapter's address is %v, of the other family: open %s", fabric.ErrAddrInvalid,
				c.dev.at, anyName)}
	}
	if c.dev.at.IsValid() {
		dialer.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(c.dev.at, 0))
	}
	made, err := dialer.DialContext(ctx, "tcp", c.Remote.String())
	if err == nil {
		tcp := made.(*net.TCPConn)
		c.dev.HW.Mu.Lock()
		c.Local = addrOf(tcp.LocalAddr())
		c.dev.HW.Mu.Unlock()
		c.reached.Store(true)
		over, err := c.dev.encrypt(ctx, tcp, true, replyLimit)
		if err != nil {
			tcp.Close()
			return nil, handshakeFailed(err)
		}
		return over, fabric.ConnEvent{}
	}
	if isOf(err, syscall.ECONNREFUSED, syscall.ECONNRESET) { // reset: the listener has just closed
		return nil, fabric.ConnEvent{Kind: fabric.EventRejected, Err: fmt.Errorf("nobody listens on the port: %w", err)}
	}
	var failed net.Error
	if errors.As(err, &failed) && failed.Timeout() { // ETIMEDOUT, like the other devices: another attempt may succeed
		err = fmt.Errorf("the host does not answer: %w", syscall.ETIMEDOUT)
	}
	if isOf(err, syscall.EADDRNOTAVAIL, syscall.EADDRINUSE) && usable(c.dev.at, c.Remote) {
		return nil, fabric.ConnEvent{Kind: fabric.EventUnreachable,
			Err: fmt.Errorf("%w: %w: %w", fabric.ErrNoPort, syscall.EADDRNOTAVAIL, err)}
	}
	return nil, fabric.ConnEvent{Kind: fabric.EventUnreachable, Err: short(err)}
}

// usable reports whether this host has the address from, or, if that is invalid, an address from
// which it can connect to the address to. UDP has ports of its own, and sends nothing here.
func usable(from netip.Addr, to netip.AddrPort) bool {
	dialer := net.Dialer{}
	if from.IsValid() {
		dialer.LocalAddr = net.UDPAddrFromAddrPort(netip.AddrPortFrom(from, 0))
	}
	probe, err := dialer.Dial("udp", to.String())
	if err == nil {
		probe.Close()
	}
	return !isOf(err, syscall.EADDRNOTAVAIL)
}

// ask sends the request and reads the reply. The event is nil if the peer has accepted.
func (c *conn) ask(tcp stream, revision uint8, private []byte) (iwarp.Setup, *fabric.ConnEvent) {
	in, out := c.ReadDepths()
	s := iwarp.Setup{Revision: revision, CRC: c.dev.wantsCRC(tcp), Extended: true, Private: private}
	if revision == 2 {
		s.Enhanced, s.In, s.Out = true, uint16(in), uint16(out)
		s.PeerToPeer, s.ReadyWrite = true, true
	}
	if err := writeSetup(tcp, &s); err != nil {
		return iwarp.Setup{}, &fabric.ConnEvent{Kind: fabric.EventRejected, Err: err}
	}
	reply, err := readSetup(tcp, true, replyLimit)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return reply, &fabric.ConnEvent{Kind: fabric.EventUnreachable, Err: errNoSetup}
	case errors.Is(err, iwarp.FaultSetup):
		return reply, &fabric.ConnEvent{Kind: fabric.EventRejected, Err: fmt.Errorf("the peer's host accepted the TCP "+
			"connection, but answered with something else than the RDMA set-up: %w", err)}
	case err != nil:
		return reply, &fabric.ConnEvent{Kind: fabric.EventRejected,
			Err: fmt.Errorf("the peer has ended the set-up: %w", err)}
	case reply.Outdated:
		return reply, &fabric.ConnEvent{Kind: fabric.EventRejected, Err: errOutdated}
	case reply.Reject:
		return reply, rejected(&reply)
	case reply.Revision != revision:
		return reply, &fabric.ConnEvent{Kind: fabric.EventFailed, Err: errRevision}
	}
	if reason, err := chooses(&s, &reply); err != nil {
		writeTerminate(tcp, reply.CRC || s.CRC, reason)
		return reply, &fabric.ConnEvent{Kind: fabric.EventFailed, Err: err}
	}
	return reply, nil
}

// chooses returns an error, and the reason to tell the peer, if a reply chooses what the request
// has not offered.
func chooses(request, reply *iwarp.Setup) (iwarp.Fault, error) {
	switch {
	case reply.Markers:
		return iwarp.FaultMarker, errMarkers
	case reply.PeerToPeer && (!reply.ReadyWrite || reply.ReadyRead):
		return iwarp.FaultNoReady, errReady
	case reply.Out > request.In:
		return iwarp.FaultReadDepth, errDepth
	}
	return 0, nil
}

// A call of answered establishes the connection that the peer has accepted.
func (c *conn) answered(tcp stream, reply iwarp.Setup) {
	c.dev.HW.Mu.Lock()
	if c.State != softnic.Connecting {
		c.dev.HW.Mu.Unlock()
		tcp.Close()
		return
	}
	if reply.Enhanced {
		c.In, c.Out = uint8(min(uint16(c.In), reply.Out)), uint8(min(uint16(c.Out), reply.In))
	}
	c.Depart = linkOf(c.QP).depart // from now on Close ends the queue pair
	a := agreed{own: reply.Extended, crc: reply.CRC || c.dev.wantsCRC(tcp), in: c.In, out: c.Out, mayStart: true,
		ready: reply.PeerToPeer && reply.ReadyWrite, segment: c.dev.keep(tcp)}
	c.dev.HW.Mu.Unlock()
	if err := c.start(tcp, a); err != nil {
		tcp.Close()
		c.Fail(softnic.Connecting, fabric.ConnEvent{Kind: fabric.EventFailed, Err: softnic.Failed("connect", err)})
		return
	}
	c.dev.HW.Mu.Lock()
	if c.State == softnic.Connecting {
		c.Establish(reply.Private)
	}
	c.dev.HW.Mu.Unlock()
	linkOf(c.QP).open()
}

var (
	errMarkers  = errors.New("the peer wants markers in the stream, which this end has not")
	errRevision = errors.New("the peer has answered with another revision")
	errReady    = errors.New("the peer has chosen a ready message that was not offered")
	errDepth    = errors.New("the peer has chosen a read depth above the one that was offered")
	errOutdated = errors.New("the peer runs an older version of this library, which sends other frames over TCP: " +
		"both ends need the same")
)

// handshakeFailed returns the event for an attempt whose handshake has failed.
func handshakeFailed(err error) fabric.ConnEvent {
	if errors.Is(err, context.DeadlineExceeded) {
		return fabric.ConnEvent{Kind: fabric.EventUnreachable, Err: errNoSetup}
	}
	return fabric.ConnEvent{Kind: fabric.EventRejected, Err: err}
}

// conn is one end of a connection.
type conn struct {
	softnic.Conn
	dev     *Device
	reached atomic.Bool // the peer's host has accepted the TCP connection
	shown   atomic.Pointer[[]*x509.Certificate]
}

// errNoSetup is the error if TCP reaches the peer's host, but no program there answers the set-up.
// A kernel accepts TCP connections even for a stopped program.
var errNoSetup = errors.New("the peer's host accepted the TCP connection, but nothing there has answered the RDMA " +
	"set-up (a stopped program, or one that is not RDMA)")

// Awaits returns what a connection attempt waits for, and whether the attempt has reached the
// peer's host.
func (c *conn) Awaits() (what string, reached bool) {
	if c.reached.Load() {
		return "the answer to the connection request: " + errNoSetup.Error(), true
	}
	return c.Conn.Awaits()
}

// agreed is the result of the set-up.
type agreed struct {
	own, crc bool
	in, out  uint8
	first    []byte // what is sent first: a reply, or nothing
	mayStart bool   // this end may send at once
	ready    bool   // this end's first frame is a ready message
	segment  int    // TCP's segment size
}

// start takes over the TCP connection and connects the queue pair with it. If the queue pair is in
// error or closed, start closes the TCP connection and returns ErrQPState. After any other error
// the caller still has the TCP connection.
func (c *conn) start(tcp stream, a agreed) error {
	d, l := c.dev, linkOf(c.QP)
	l.dev, l.conn, l.own, l.crc = d, &c.Conn, a.own, a.crc
	l.asked, l.sinkKey = make([]ask, max(int(a.out), 1)), rand.Uint32()
	l.heard.segment.Store(int64(iwarp.SegmentLimit(a.segment)))
	l.heard.greeted.Store(a.mayStart && !a.own)
	send, recv := c.QP.CQs()
	l.polled = [2]*progress{ofReceives: d.progressOf(recv), ofSends: d.progressOf(send)}
	l.rx.start(a.crc)
	l.rx.fresh = true
	l.tx.start(c.QP.Sends().Depth(), a.crc)
	l.tx.pending = make([]answer, a.in)
	sock, err := d.poller.adopt(tcp, l)
	if err != nil {
		return short(err)
	}
	l.sock = sock
	if shown := certificates(tcp); shown != nil {
		c.shown.Store(&shown)
	}
	l.tx.borrow(l)
	if len(a.first) > 0 {
		l.tx.setup(a.first)
	}
	switch {
	case a.own:
		l.putControl(iwarp.ControlHello, l.helloOf().Value())
	case a.ready:
		l.frame(&iwarp.Header{Op: iwarp.OpWrite, Last: true}, part{})
	}
	if !a.own {
		c.QP.Lack(errForeign, fabric.OpWriteImm, fabric.OpSendImm, fabric.OpCmpSwap, fabric.OpFetchAdd)
	}
	d.HW.Mu.Lock()
	d.links[l] = struct{}{}
	d.HW.Mu.Unlock()
	l.uses((*progress).join)
	l.live.Store(true)
	if !c.QP.Connect(a.in, a.out) {
		l.uses((*progress).part)
		l.live.Store(false)
		sock.shut()
		d.unlist(l)
		return fabric.ErrQPState
	}
	return nil
}

// open makes the socket start to call its events. The connection must be in its new state already,
// because events may come at once.
func (l *link) open() {
	if err := l.sock.start(); err != nil {
		l.kill()
	}
	l.run()
}

var errForeign = fmt.Errorf("the peer is another iWARP device, which has neither immediate data nor atomics: %w",
	fabric.ErrNotSupported)

// PeerCertificates implements fabric.Authenticated.
func (c *conn) PeerCertificates() []*x509.Certificate {
	if p := c.shown.Load(); p != nil {
		return *p
	}
	return nil
}
