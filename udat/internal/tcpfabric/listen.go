package tcpfabric

import (
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
)

// Limits of a listener for TCP connections that have not sent a request: for all of them, and for
// those from one address. When a limit is reached, the listener closes the oldest such connection.
const (
	maxHalfOpen = 4096
	maxOfSource = maxHalfOpen / 8 * 7
)

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

	mu       sync.Mutex
	halfOpen []*net.TCPConn // the oldest first
	ofSource map[netip.Addr]int
	ended    bool
}

// Listen accepts requests on the device's address, or on all addresses.
func (d *Device) Listen(port uint16, accept fabric.Filter, on func(fabric.Request)) (fabric.Listener, error) {
	l := &listener{dev: d, ofSource: make(map[netip.Addr]int)}
	l.Accept = accept
	bind := func() (err error) {
		l.tcp, err = d.listenTCP(port)
		switch {
		case err == nil:
			l.At = netip.AddrPortFrom(d.host(), addrOf(l.tcp.Addr()).Port())
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
	return net.ListenTCP("tcp", at)
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
	case l.ofSource[source] >= maxOfSource:
		l.forget(slices.IndexFunc(l.halfOpen, func(other *net.TCPConn) bool {
			return addrOf(other.RemoteAddr()).Addr() == source
		})).Close() // this ends the greet of that connection
	case len(l.halfOpen) >= maxHalfOpen:
		l.forget(0).Close()
	}
	l.halfOpen = append(l.halfOpen, tcp)
	l.ofSource[source]++
}

// forget removes connection i from the list halfOpen and returns it; mu is held.
func (l *listener) forget(i int) *net.TCPConn {
	tcp := l.halfOpen[i]
	l.halfOpen = slices.Delete(l.halfOpen, i, i+1)
	source := addrOf(tcp.RemoteAddr()).Addr()
	if l.ofSource[source]--; l.ofSource[source] == 0 {
		delete(l.ofSource, source)
	}
	return tcp
}

// greet reads the request that comes on a TCP connection, and queues the request for the handler.
func (l *listener) greet(tcp *net.TCPConn) {
	s, err := readSetup(tcp, false, requestLimit)
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
	r := &request{dev: d, tcp: tcp, setup: s}
	r.Request = softnic.Request{Lis: &l.Listener, Local: addrOf(tcp.LocalAddr()), Remote: addrOf(tcp.RemoteAddr()),
		Data: s.Private, In: uint8(a.MaxReadIn), Out: uint8(a.MaxReadOut), Refuse: r.refuse}
	if s.Enhanced {
		r.In, r.Out = uint8(min(uint16(a.MaxReadIn), s.Out)), uint8(min(uint16(a.MaxReadOut), s.In))
	}
	switch {
	case s.Outdated:
		r.refuse([]byte(errOutdated.Error()), false)
		return
	case s.Markers:
		r.refuse(nil, false)
		return
	}
	d.Events.AddMessage(0, func() { r.Arrive(r) })
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
	l.halfOpen = nil
	clear(l.ofSource)
}
