package tcpfabric

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/softnic"
	"github.com/godat/godat/udat/internal/tcpfabric/iwarp"
)

// maxStrangers bounds, for a listener, the TCP connections that have not sent a request, and the
// requests that have no answer. Where the process may have few open files, a quarter of them is the
// bound. One address may have seven eighths of the bound. When there are too many TCP connections,
// the listener closes the oldest; when there are too many requests, it rejects the new one.
const maxStrangers = 4096

func strangers(openFiles uint64) (all, ofSource int) {
	all = int(min(maxStrangers, max(openFiles/4, 8)))
	return all, all / 8 * 7
}

// How often a listener without file descriptors tries again to accept, and reports the lack.
const (
	acceptAgain = 10 * time.Millisecond
	reportAgain = time.Second
)

// listener is a TCP listener, with the TCP connections that it has accepted and that have not sent
// a request yet.
type listener struct {
	softnic.Listener
	dev *Device
	tcp *net.TCPListener

	all, ofSource int // bounds

	mu       sync.Mutex
	halfOpen []*net.TCPConn // TCP connections without a request, the oldest first
	silent   sources        // of halfOpen
	asked    sources        // of the requests without an answer
	ended    bool
}

// sources counts by address.
type sources struct {
	of  map[netip.Addr]int
	all int
}

func (s *sources) add(a netip.Addr, n int) {
	if s.of == nil {
		s.of = make(map[netip.Addr]int)
	}
	s.all += n
	if s.of[a] += n; s.of[a] == 0 {
		delete(s.of, a)
	}
}

// Listen accepts requests on the device's address, or on all addresses.
func (d *Device) Listen(port uint16, accept fabric.Filter, on func(fabric.Request)) (fabric.Listener, error) {
	if err := canServe(d.Opts.TLS); err != nil {
		return nil, err
	}
	l := &listener{dev: d}
	l.all, l.ofSource = strangers(openFiles())
	l.Accept = accept
	bind := func() (err error) {
		l.tcp, err = d.listenTCP(port)
		switch {
		case err == nil:
			l.At = netip.AddrPortFrom(d.host(), addrOf(l.tcp.Addr()).Port())
		case port == 0 && isOf(err, syscall.EADDRINUSE):
			return fmt.Errorf("%w: %w: %w", fabric.ErrAddrInUse, fabric.ErrNoPort, syscall.EADDRINUSE)
		case isOf(err, syscall.EADDRINUSE):
			return fmt.Errorf("port %d: %w", port, fabric.ErrAddrInUse)
		case isOf(err, syscall.EACCES):
			err = errors.Join(err, fabric.ErrAddrDenied)
		}
		return short(err)
	}
	if err := d.Device.Listen(&l.Listener, on, bind, l.end); err != nil {
		return nil, err
	}
	go l.loop()
	return l, nil
}

func (d *Device) listenTCP(port uint16) (*net.TCPListener, error) {
	at := &net.TCPAddr{Port: int(port)}
	if d.at.IsValid() {
		at = net.TCPAddrFromAddrPort(netip.AddrPortFrom(d.at, port))
	}
	listen := net.ListenConfig{KeepAlive: -1, Control: d.control}
	ln, err := listen.Listen(context.Background(), "tcp", at.String())
	if err != nil {
		return nil, err
	}
	return ln.(*net.TCPListener), nil
}

// control sets the device's type of service on a socket, and on Linux the keep-alive. Connections
// inherit those of a listener.
func (d *Device) control(_, _ string, raw syscall.RawConn) error {
	setKeepAlive(raw, d.keepAlive())
	if d.Opts.Path.TOS == nil {
		return nil
	}
	return setTOS(raw, int(*d.Opts.Path.TOS))
}

// controlDial sets what control sets, on a socket that connects, and leaves the choice of the local
// port to connect: connections to different peers then share ports, as if no address was bound.
func (d *Device) controlDial(network, address string, raw syscall.RawConn) error {
	if d.at.IsValid() {
		bindNoPort(raw)
	}
	return d.control(network, address, raw)
}

func (l *listener) loop() {
	var reported time.Time
	for {
		tcp, err := l.tcp.AcceptTCP()
		switch {
		case err == nil && !l.Accept.Accepts(addrOf(tcp.RemoteAddr())):
			tcp.Close()
		case err == nil:
			l.admit(tcp)
			go l.greet(tcp)
		case errors.Is(err, net.ErrClosed):
			return
		default:
			err = short(err)
			if errors.Is(err, fabric.ErrResources) && time.Since(reported) >= reportAgain {
				reported = time.Now()
				l.dev.Report(fabric.AsyncEvent{Kind: fabric.AsyncListenerStarved, Listener: l, Err: err})
			}
			time.Sleep(acceptAgain)
		}
	}
}

// admit adds a TCP connection to those that have not sent a request.
func (l *listener) admit(tcp *net.TCPConn) {
	source := addrOf(tcp.RemoteAddr()).Addr()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		tcp.Close()
		return
	}
	switch {
	case l.silent.of[source] >= l.ofSource:
		l.forget(slices.IndexFunc(l.halfOpen, func(other *net.TCPConn) bool {
			return addrOf(other.RemoteAddr()).Addr() == source
		})).Close() // this ends the greet of that connection
	case len(l.halfOpen) >= l.all:
		l.forget(0).Close()
	}
	l.halfOpen = append(l.halfOpen, tcp)
	l.silent.add(source, 1)
}

// forget removes connection i from the list halfOpen and returns it; mu is held.
func (l *listener) forget(i int) *net.TCPConn {
	tcp := l.halfOpen[i]
	l.halfOpen = slices.Delete(l.halfOpen, i, i+1)
	l.silent.add(addrOf(tcp.RemoteAddr()).Addr(), -1)
	return tcp
}

// ask counts a request of this source. It returns false if there are too many.
func (l *listener) ask(source netip.Addr) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.asked.all >= l.all || l.asked.of[source] >= l.ofSource {
		return false
	}
	l.asked.add(source, 1)
	return true
}

// answer is called once for each request that ask has counted.
func (l *listener) answer(source netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked.add(source, -1)
}

// greet reads the request that comes on a TCP connection, and queues the request for the handler.
func (l *listener) greet(tcp *net.TCPConn) {
	var s iwarp.Setup
	until := time.Now().Add(requestLimit) // for both
	over, err := l.dev.encrypt(context.Background(), tcp, false, time.Until(until))
	if err == nil {
		s, err = readSetup(over, false, time.Until(until))
	}
	l.mu.Lock()
	i := slices.Index(l.halfOpen, tcp)
	if i >= 0 {
		l.forget(i)
	}
	ended := l.ended
	l.mu.Unlock()
	if err != nil || i < 0 || ended {
		tcp.Close()
		return
	}
	d := l.dev
	a := &d.HW.Attr
	r := &request{dev: d, lis: l, tcp: over, setup: s}
	r.Request = softnic.Request{Lis: &l.Listener, Local: addrOf(tcp.LocalAddr()), Remote: addrOf(tcp.RemoteAddr()),
		Data: s.Private, In: uint8(a.MaxReadIn), Out: uint8(a.MaxReadOut), Refuse: r.refuse}
	if s.Enhanced {
		r.In, r.Out = uint8(min(uint16(a.MaxReadIn), s.Out)), uint8(min(uint16(a.MaxReadOut), s.In))
	}
	switch {
	case s.Outdated:
		r.refuse([]byte(errOutdated.Error()), false)
		return
	case s.Markers, !l.ask(r.Remote.Addr()):
		r.refuse(nil, false)
		return
	}
	r.counted = true
	d.Events.Attend(func() { d.Events.AddMessage(func() { r.Arrive(r) }) })
}

// end closes the TCP listener, and the TCP connections that have not sent a request.
func (l *listener) end() {
	l.tcp.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	for _, tcp := range l.halfOpen {
		tcp.Close()
	}
	l.halfOpen, l.silent = nil, sources{}
}

// request is a connection request at the passive end.
type request struct {
	softnic.Request
	dev     *Device
	lis     *listener
	tcp     stream
	setup   iwarp.Setup
	counted bool // by listener.ask
}

func (r *request) refuse(private []byte, byConsumer bool) {
	if byConsumer && !r.setup.Extended {
		private = append([]byte(rejectMarker), private...)
	}
	s := iwarp.Setup{Reply: true, Revision: r.setup.Revision, Reject: true, CRC: r.setup.CRC, Private: private,
		Extended: r.setup.Extended, Busy: !byConsumer, Enhanced: r.setup.Enhanced}
	writeSetup(r.tcp, &s) // an error means that the peer has gone
	r.tcp.Close()
	if r.counted {
		r.lis.answer(r.Remote.Addr())
	}
}

func (r *request) Accept(q fabric.QP, p fabric.AcceptParams, on func(fabric.ConnEvent)) (fabric.Conn, error) {
	c := &conn{dev: r.dev}
	mu := &r.dev.HW.Mu
	mu.Lock()
	if err := r.Take(&c.Conn, q, p, on); err != nil {
		mu.Unlock()
		return nil, err
	}
	l := linkOf(c.QP)
	c.Depart = l.depart
	r.Answered()
	a := agreed{own: r.setup.Extended, crc: r.setup.CRC || c.dev.wantsCRC(r.tcp), in: c.In, out: c.Out,
		segment: c.dev.keep(r.tcp)}
	reply, err := r.reply(&a, p.Private)
	mu.Unlock()
	if err == nil {
		a.first = reply
		err = c.start(r.tcp, a)
	}
	if err != nil {
		mu.Lock()
		defer mu.Unlock()
		c.Drop()
		if !errors.Is(err, fabric.ErrQPState) {
			r.Remains()
		} else {
			r.lis.answer(r.Remote.Addr())
		}
		return nil, softnic.Failed("accept", err)
	}
	r.lis.answer(r.Remote.Addr())
	defer l.open()
	mu.Lock()
	defer mu.Unlock()
	if c.State == softnic.Accepting {
		c.Expire(replyLimit, fabric.EventFailed)
		if !a.own && !r.setup.PeerToPeer { // no ready message follows
			l.waitFirst()
			c.Establish(nil)
		}
	}
	return c, nil
}

func (r *request) reply(a *agreed, private []byte) ([]byte, error) {
	s := iwarp.Setup{Reply: true, Revision: r.setup.Revision, CRC: a.crc, Extended: a.own, Private: private}
	if r.setup.Enhanced {
		s.Enhanced, s.In, s.Out = true, uint16(a.in), uint16(a.out)
		s.PeerToPeer = r.setup.PeerToPeer && (r.setup.ReadyWrite || r.setup.ReadyRead)
		s.ReadyWrite = s.PeerToPeer && r.setup.ReadyWrite
		s.ReadyRead = s.PeerToPeer && !s.ReadyWrite
	}
	return s.Append(nil)
}

// PeerCertificates implements fabric.Authenticated.
func (r *request) PeerCertificates() []*x509.Certificate { return certificates(r.tcp) }
