package rdmanet

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/godat/godat/udat"
)

// ListenConfig has the settings of a Listener and of the connections that it accepts; the zero
// value is good. The fields are those of [Dialer].
type ListenConfig struct {
	// Device is the RDMA device: a name ("rxe0", "mlx5_0"), one of its addresses, or "mem0", which
	// accepts connections of this process. Empty: the device that has the address; for an address
	// without a host, all addresses of all devices. On a host without RDMA devices that is mem0.
	Device                  string
	ReadBuffer, WriteBuffer int
	KeepAlive               time.Duration
	// Fallback, unless nil, allows TCP if no RDMA device has the address ([ErrNoDevice]). It is called
	// with the reason before TCP is used.
	Fallback func(reason error)
}

// backlog is the number of connections that may wait for Accept, and that may be in the making.
const backlog = 1024

// Listener accepts connections. It implements [net.Listener].
type Listener struct {
	cfg    config
	points []point
	queue  chan *Conn

	mu     sync.Mutex
	making int
	closed bool
}

// point is the service point of a Listener on one device.
type point struct {
	adapter *adapter
	pool    *dispatchers
	d       *dispatcher
	psp     *udat.PSP
}

// Listen listens on "host:port" of the network "rdma", with the settings of the zero ListenConfig;
// port 0 is any that is free.
func Listen(network, address string) (*Listener, error) {
	return new(ListenConfig).listen(context.Background(), network, address)
}

// Listen listens on "host:port" of the network "rdma". The result is a [*Listener], unless Fallback
// has been called. ctx bounds the look-up of the address.
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
	cfg, err := newConfig(lc.ReadBuffer, lc.WriteBuffer, lc.KeepAlive)
	if err != nil {
		return nil, err
	}
	addrs, err := resolve(ctx, network, address)
	if err != nil {
		return nil, err
	}
	local = addrs[0]
	devices, err := devicesFor(lc.Device, local.Addr())
	if err != nil {
		return nil, err
	}
	l = &Listener{cfg: cfg, queue: make(chan *Conn, backlog)}
	port := udat.ConnQual(local.Port())
	for _, name := range devices {
		p, err := l.listenOn(name, port)
		if err != nil {
			l.Close()
			return nil, err
		}
		l.points = append(l.points, p)
		port = p.psp.Qual() // the same on all devices
	}
	return l, nil
}

func (l *Listener) listenOn(device string, port udat.ConnQual) (p point, err error) {
	if p.adapter, err = openAdapter(device); err != nil {
		return p, err
	}
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	p.pool = &dispatchers{adapter: p.adapter}
	p.pool.request = func(ev *udat.Event) { l.request(p.pool, ev) }
	if p.d, err = p.pool.get(false); err != nil {
		return p, err
	}
	if port == 0 {
		_, p.psp, err = p.adapter.CreatePSPAny(p.d.evd, udat.PSPConsumer)
	} else {
		p.psp, err = p.adapter.CreatePSP(port, p.d.evd, udat.PSPConsumer)
	}
	return p, err
}

func (p *point) close() {
	if p.psp != nil {
		p.psp.Free()
	}
	if p.d != nil {
		p.pool.put(p.d)
	}
	p.adapter.close()
}

// request takes a connection request. Registering memory takes long: that is done beside the
// dispatcher.
func (l *Listener) request(pool *dispatchers, ev *udat.Event) {
	cr, local, port := ev.CR, ev.LocalAddr(), ev.ConnQual()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.making >= backlog {
		cr.Reject([]byte("too many connections in the making"))
		return
	}
	l.making++
	go func() {
		if err := l.accept(pool, cr, Addr{addrPort(local, uint64(port))}); err != nil {
			cr.Reject([]byte(err.Error()[:min(len(err.Error()), 100)]))
			l.mu.Lock()
			l.making--
			l.mu.Unlock()
		}
	}()
}

// accept checks a request and accepts it; offer has the outcome.
func (l *Listener) accept(pool *dispatchers, cr *udat.CR, local Addr) error {
	q, err := cr.Query()
	if err != nil {
		return err
	}
	h, err := decodeHello(q.PrivateData)
	if err != nil {
		return err
	}
	c, err := newConn(pool, l.cfg)
	if err != nil {
		return err
	}
	c.local, c.remote = local, Addr{addrPort(q.RemoteAddr, q.RemotePortQual)}
	c.meet(h)
	c.out.accepted = true
	c.ready = l.offer
	c.d.block() // until offer
	c.linger = time.AfterFunc(handshakeTime, func() { c.abort(context.DeadlineExceeded) })
	if err := cr.Accept(c.ep, c.hello().encode()); err != nil {
		c.ready = func(*Conn, error) {}
		c.d.unblock(1)
		c.abort(err)
		return err
	}
	return nil
}

// offer hands an open connection to Accept, or drops one that has failed.
func (l *Listener) offer(c *Conn, err error) {
	c.d.unblock(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.making--
	if err == nil && !l.closed {
		select {
		case l.queue <- c:
			return
		default:
		}
	}
	c.abort(net.ErrClosed)
}

// Accept returns the next connection, a [*Conn]. After Close it returns net.ErrClosed.
func (l *Listener) Accept() (net.Conn, error) {
	c, err := l.AcceptConn()
	if err != nil {
		return nil, err
	}
	return c, nil
}

// AcceptConn is Accept for those who want a [*Conn].
func (l *Listener) AcceptConn() (*Conn, error) {
	c, ok := <-l.queue
	if !ok {
		return nil, &net.OpError{Op: "accept", Net: Network, Addr: l.Addr(), Err: net.ErrClosed}
	}
	return c, nil
}

// Addr is the address on which the Listener listens, an [Addr]. If it listens on several devices it
// is that of the first.
func (l *Listener) Addr() net.Addr {
	if len(l.points) == 0 {
		return Addr{}
	}
	p := l.points[0]
	return Addr{addrPort(p.adapter.Addr(), uint64(p.psp.Qual()))}
}

// Close stops listening. Connections that Accept has returned stay; those that wait for it are
// closed.
func (l *Listener) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return &net.OpError{Op: "close", Net: Network, Addr: l.Addr(), Err: net.ErrClosed}
	}
	l.closed = true
	close(l.queue)
	l.mu.Unlock()
	for c := range l.queue {
		c.abort(net.ErrClosed)
	}
	for i := range l.points {
		l.points[i].close()
	}
	return nil
}
