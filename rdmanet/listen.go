package rdmanet

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/godat/godat/udat"
)

// ListenConfig has the settings of a Listener and of the connections that it accepts. The zero
// value is ready to use. Fields without a comment have the same meaning as in [Dialer].
type ListenConfig struct {
	// Device is the RDMA device: its name ("rxe0", "mlx5_0"), one of its addresses, "tcp" for RDMA
	// over TCP, or "mem0", which accepts connections from this process only. If Device is empty, the
	// listen address selects the device. A loopback address selects the first device. Any other
	// address selects the device that has this address. If "host:port" has no host, the listener uses
	// all devices. If Device is empty on a host without RDMA devices, the listener uses mem0 for
	// addresses of this host, unless Fallback is set.
	//
	// On "tcp" the listener uses only the listen address. On other devices it uses all addresses of
	// the device. mem0 accepts any listen address, also one that this host does not have, because it
	// uses no network.
	Device                  string
	Path                    Path
	Zone                    *Zone
	ReadBuffer, WriteBuffer int
	KeepAlive               time.Duration
	TLS                     *tls.Config // needs a certificate; ClientAuth says which peers may connect
	// Backlog is the largest number of connections that wait for Accept. It is also the largest number
	// of requests that wait for an answer. It can be 1 to 65,536, and 0 means 4096. In addition,
	// connections may wait for the first message of their peers: at most a quarter of Backlog, or 4 if
	// a quarter is less. The listener refuses all further requests, and a [Dialer] tries again.
	Backlog int
	// Accept, unless nil, decides which peers may connect. It is called with the address and port of
	// each peer that requests a connection, before anything is allocated for the peer. If it returns
	// an error, the peer's Dial fails with ECONNREFUSED. One goroutine of the device makes the calls,
	// so Accept must not block. The address proves nothing about who the peer is; TLS does.
	Accept   func(peer netip.AddrPort) error
	TCPAddrs bool
	Logger   *slog.Logger
	// Fallback, unless nil, allows ListenNet to use TCP if no RDMA device has the address
	// ([ErrNoDevice]). ListenNet calls Fallback with the reason before it uses TCP. If Fallback is
	// set, mem0 is used only if Device names it.
	Fallback func(reason error)
}

// Listen listens on "host:port" of the network "rdma", with the settings of the zero ListenConfig:
// see [ListenConfig.Listen].
func Listen(network, address string) (*Listener, error) {
	return new(ListenConfig).Listen(context.Background(), network, address)
}

// Listen listens on "host:port" of the network "rdma". The networks "tcp", "tcp4" and "tcp6" listen
// by RDMA, too, as in [Dialer.Dial]. Port 0 selects a free port. If the host has several addresses,
// Listen uses the first one of IPv4, or else the first one, like package net. The context only
// limits the time to look up the address. If the port is in use, the error wraps
// syscall.EADDRINUSE. If this host does not have the address, the error on "tcp" wraps
// syscall.EADDRNOTAVAIL.
func (lc *ListenConfig) Listen(ctx context.Context, network, address string) (l *Listener, err error) {
	var local netip.AddrPort
	var cfg config
	defer func() {
		if err != nil {
			op := &net.OpError{Op: "listen", Net: network, Err: err}
			if local.IsValid() {
				op.Addr = cfg.addr(Addr{local})
			}
			l, err = nil, op
		}
	}()
	cfg, err = newConfig(lc.ReadBuffer, lc.WriteBuffer, lc.KeepAlive, lc.TCPAddrs, lc.Logger)
	if err != nil {
		return nil, err
	}
	backlog := lc.Backlog
	if backlog < 0 || backlog > maxBacklog {
		return nil, fmt.Errorf("rdmanet: Backlog is %d, must be from 0 to %d", backlog, maxBacklog)
	}
	if backlog == 0 {
		backlog = defaultBacklog
	}
	addrs, err := resolve(ctx, network, address)
	if err != nil {
		return nil, err
	}
	local = addrs[max(slices.IndexFunc(addrs, func(a netip.AddrPort) bool { return a.Addr().Is4() }), 0)]
	device, err := cfg.useZone(lc.Zone, lc.Device, lc.Path.with(lc.TLS))
	if err != nil {
		return nil, err
	}
	devices, err := devicesFor(device, local.Addr(), lc.Fallback != nil)
	if err != nil {
		return nil, err
	}
	if device == "" && devices[0] == memDevice {
		cfg.log.Info("rdmanet: no RDMA device here: the listener serves only this process, by mem0; "+tcpAdvice,
			"address", local)
	}
	if lc.Zone != nil && devices[0] != device {
		return nil, fmt.Errorf("rdmanet: with a Zone on %s a listener has all addresses, not %v alone: use one on %s: %w",
			device, local.Addr(), devices[0], syscall.EINVAL)
	}
	cfg.accept = lc.Accept
	l = &Listener{cfg: cfg, admission: admission{backlog: backlog}}
	l.changed.L = &l.mu
	port := udat.ConnQual(local.Port())
	for _, name := range devices {
		p, err := l.listenOn(name, port)
		if err != nil {
			l.Close()
			return nil, listenError(err)
		}
		l.points = append(l.points, p)
		port = p.psp.Qual() // use the same port on all devices
	}
	for _, p := range l.points {
		p.adapter.onFailure(p.psp, func(err error) {
			if errors.Is(err, udat.ErrInsufficientResources) { // requests wait at the service point
				l.starved(err)
			} else {
				l.fail(p, err)
			}
		})
		go l.serve(p)
	}
	return l, nil
}

// ListenNet is [ListenConfig.Listen] for programs that need a [net.Listener]: a [*Listener], or a
// listener of package net after a call of Fallback. Only ListenNet uses Fallback.
func (lc *ListenConfig) ListenNet(ctx context.Context, network, address string) (net.Listener, error) {
	l, err := lc.Listen(ctx, network, address)
	switch {
	case err == nil:
		return l, nil
	case lc.Fallback == nil || !errors.Is(err, ErrNoDevice):
		return nil, err
	}
	lc.Fallback(err)
	tcp := net.ListenConfig{KeepAlive: lc.KeepAlive}
	if network == Network {
		network = "tcp"
	}
	l2, err := tcp.Listen(ctx, network, address)
	if err == nil && lc.Accept != nil {
		l2 = filtered{l2, lc.Accept}
	}
	if err == nil && lc.TLS != nil {
		l2 = tls.NewListener(l2, lc.TLS)
	}
	return l2, err
}

// filtered is a listener of package net with the filter of ListenConfig.Accept.
type filtered struct {
	net.Listener
	accept func(netip.AddrPort) error
}

func (l filtered) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		peer := c.RemoteAddr().(*net.TCPAddr).AddrPort()
		if l.accept(netip.AddrPortFrom(peer.Addr().Unmap(), peer.Port())) == nil {
			return c, nil
		}
		c.Close()
	}
}

// listenError adds the errno that package net would return.
func listenError(err error) error {
	switch {
	case errors.Is(err, udat.ErrConnQualInUse), errors.Is(err, syscall.EADDRINUSE):
		return withErrno(err, syscall.EADDRINUSE)
	case errors.Is(err, udat.ErrConnQualUnavailable):
		return withErrno(err, syscall.EACCES)
	}
	return err
}

func (l *Listener) listenOn(device string, port udat.ConnQual) (*point, error) {
	a, err := openAdapter(device, l.cfg.path, l.cfg.keepAlive)
	if err != nil {
		return nil, err
	}
	p := &point{adapter: a, pool: &dispatchers{adapter: a}}
	if err := p.listen(port, l.backlog, udat.WithAccept(l.cfg.accept)); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// point is the service point of a Listener on one device.
type point struct {
	adapter *adapter
	pool    *dispatchers
	d       *dispatcher // the pool's first dispatcher, which stays until close
	evd     *udat.EVD   // receives the connection requests
	psp     *udat.PSP
	failed  bool // guarded by Listener.mu
}

func (p *point) listen(port udat.ConnQual, backlog int, filter udat.ListenOption) (err error) {
	if p.d, err = p.pool.get(false); err != nil {
		return err
	}
	// This queue is longer than the backlog, because requests that find it full are refused without a
	// reason and are not counted.
	if p.evd, err = p.adapter.CreateEVD(min(backlog+64, p.adapter.queue), udat.EVDCR, nil); err != nil {
		return err
	}
	if port == 0 {
		_, p.psp, err = p.adapter.CreatePSPAny(p.evd, udat.PSPConsumer, filter)
	} else {
		p.psp, err = p.adapter.CreatePSP(port, p.evd, udat.PSPConsumer, filter)
	}
	return err
}

// close stops listening. It refuses the requests that are still in the queue.
func (p *point) close() {
	p.adapter.onFailure(p.psp, nil)
	p.psp.Free()
	p.evd.SetUnwaitable() // makes serve return
	for {
		ev, err := p.evd.Dequeue()
		if err != nil {
			break
		}
		ev.CR.Reject(encodeRefusal(refusedFor, refusedClosed))
	}
	p.evd.Free()
	if p.d != nil {
		p.pool.put(p.d)
	}
	p.adapter.close()
}

const refusedClosed = "the listener has been closed"
