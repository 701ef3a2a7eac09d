package rdmanet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"syscall"
	"time"

	"github.com/godat/godat/udat"
)

// ListenConfig has the settings of a Listener and of the connections that it accepts; the zero
// value is good. Fields without a comment are those of [Dialer].
type ListenConfig struct {
	// Device is the RDMA device: a name ("rxe0", "mlx5_0"), one of its addresses, "tcp", or "mem0",
	// which accepts connections from this process only. If empty, the listener uses the device that
	// has the listen address, all devices for an address without a host, the first device for a
	// loopback address, and mem0 on a host without RDMA devices. With "tcp" a listener uses the listen
	// address alone, with another device all addresses of the device.
	Device                  string
	Path                    Path
	Zone                    *Zone
	ReadBuffer, WriteBuffer int
	KeepAlive               time.Duration
	// Backlog is the number of connections that may wait for Accept, and of requests that may wait
	// for an answer, from 1 to 65,536. 0 is 4096. A quarter as many may be in the making: accepted,
	// without the peer's first message. More requests are refused; a [Dialer] tries again.
	Backlog  int
	TCPAddrs bool
	Logger   *slog.Logger
	// Fallback, unless nil, allows TCP if no RDMA device has the address ([ErrNoDevice]). It is called
	// with the reason before TCP is used.
	Fallback func(reason error)
}

// Listen listens on "host:port" of the network "rdma", with the settings of the zero ListenConfig;
// port 0 is any that is free.
func Listen(network, address string) (*Listener, error) {
	return new(ListenConfig).listen(context.Background(), network, address)
}

// Listen listens on "host:port" of the network "rdma". The result is a [*Listener], unless Fallback
// has been called. ctx bounds the look-up of the address. A port that is taken is
// syscall.EADDRINUSE.
func (lc *ListenConfig) Listen(ctx context.Context, network, address string) (net.Listener, error) {
	l, err := lc.listen(ctx, network, address)
	switch {
	case err == nil:
		return l, nil
	case lc.Fallback == nil || !errors.Is(err, ErrNoDevice):
		return nil, err
	}
	lc.Fallback(err)
	tcp := net.ListenConfig{KeepAlive: lc.KeepAlive}
	return tcp.Listen(ctx, "tcp", address)
}

func (lc *ListenConfig) listen(ctx context.Context, network, address string) (l *Listener, err error) {
	var local netip.AddrPort
	defer func() {
		if err != nil {
			err = &net.OpError{Op: "listen", Net: network, Addr: Addr{local}, Err: err}
		}
	}()
	cfg, err := newConfig(lc.ReadBuffer, lc.WriteBuffer, lc.KeepAlive, lc.TCPAddrs, lc.Logger)
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
	addrs, err := resolve(ctx, network, address, false)
	if err != nil {
		return nil, err
	}
	local = addrs[0]
	device, err := cfg.in(lc.Zone, lc.Device, lc.Path)
	if err != nil {
		return nil, err
	}
	devices, err := devicesFor(device, local.Addr())
	if err != nil {
		return nil, err
	}
	if lc.Zone != nil && devices[0] != device {
		return nil, fmt.Errorf("rdmanet: with a Zone on %s a listener has all addresses, not %v alone: use one on %s: %w",
			device, local.Addr(), devices[0], syscall.EINVAL)
	}
	l = &Listener{cfg: cfg, admission: admission{backlog: backlog}}
	l.changed.L = &l.mu
	port := udat.ConnQual(local.Port())
	for _, name := range devices {
		p, err := l.listenOn(name, cfg.path, port)
		if err != nil {
			l.Close()
			return nil, listenError(err)
		}
		l.points = append(l.points, p)
		port = p.psp.Qual() // the same on all devices
	}
	for _, p := range l.points {
		p.adapter.onFailure(p, func(err error) { l.fail(p, err) })
		go l.serve(p)
	}
	return l, nil
}

// listenError adds what package net calls the error.
func listenError(err error) error {
	switch {
	case errors.Is(err, udat.ErrConnQualInUse):
		return withErrno(err, syscall.EADDRINUSE)
	case errors.Is(err, udat.ErrConnQualUnavailable):
		return withErrno(err, syscall.EACCES)
	}
	return err
}

func (l *Listener) listenOn(device string, path Path, port udat.ConnQual) (*point, error) {
	a, err := openAdapter(device, path)
	if err != nil {
		return nil, err
	}
	p := &point{adapter: a, pool: &dispatchers{adapter: a}}
	if err := p.listen(port, l.backlog); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// point is the service point of a Listener on one device.
type point struct {
	adapter *adapter
	pool    *dispatchers
	d       *dispatcher // keeps the pool's first
	evd     *udat.EVD   // of connection requests
	psp     *udat.PSP
	failed  bool // guarded by Listener.mu
}

func (p *point) listen(port udat.ConnQual, backlog int) (err error) {
	if p.d, err = p.pool.get(false); err != nil {
		return err
	}
	// Longer than the backlog: what finds this queue full is refused without reason or count.
	if p.evd, err = p.adapter.CreateEVD(backlog+64, udat.EVDCR, nil); err != nil {
		return err
	}
	if port == 0 {
		_, p.psp, err = p.adapter.CreatePSPAny(p.evd, udat.PSPConsumer)
	} else {
		p.psp, err = p.adapter.CreatePSP(port, p.evd, udat.PSPConsumer)
	}
	return err
}

// close stops listening; requests that have come and were not taken are refused.
func (p *point) close() {
	p.adapter.onFailure(p, nil)
	p.psp.Free()
	p.evd.SetUnwaitable() // serve ends
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
