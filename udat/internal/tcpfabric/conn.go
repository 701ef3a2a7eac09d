package tcpfabric

import (
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"

	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/softnic"
	"github.com/godat/godat/udat/internal/tcpfabric/iwarp"
)

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
	l.polled = [2]*hotSet{ofReceives: d.setOf(recv), ofSends: d.setOf(send)}
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
		c.QP.Lack(foreign, errForeign)
	}
	d.HW.Mu.Lock()
	d.links[l] = struct{}{}
	d.HW.Mu.Unlock()
	l.live.Store(true)
	if !c.QP.Connect(a.in, a.out) {
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

// foreign is the set of the operations that a peer of another library does not support.
var foreign = softnic.Opcodes(fabric.OpWriteImm, fabric.OpSendImm, fabric.OpCmpSwap, fabric.OpFetchAdd)

// PeerCertificates implements fabric.Authenticated.
func (c *conn) PeerCertificates() []*x509.Certificate {
	if p := c.shown.Load(); p != nil {
		return *p
	}
	return nil
}
