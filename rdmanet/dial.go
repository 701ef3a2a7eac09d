package rdmanet

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"syscall"
	"time"

	"github.com/godat/godat/udat"
)

// Dialer has the settings of a connection that is dialed; the zero value is good.
type Dialer struct {
	// Device is the RDMA device: a name ("rxe0", "mlx5_0"), one of its addresses, or "mem0", which
	// connects within this process. Empty: the device that the route to the peer leaves by. On a host
	// without RDMA devices that is mem0 for addresses of this host; for others Dial fails.
	Device string
	// ReadBuffer and WriteBuffer are the sizes of the rings in which what has come, and what is to be
	// sent, waits: in bytes, rounded up to a power of two, at most 1 GiB. 0 is 128 KiB. Both are
	// locked in memory. A stream is fastest with four times its largest message or more.
	ReadBuffer, WriteBuffer int
	// KeepAlive is the time without a message from the peer after which it is probed. After three
	// probes without an answer the connection is broken. 0 is 15 seconds; a negative one disables it.
	KeepAlive time.Duration
	// Timeout bounds Dial; 0 is 30 seconds.
	Timeout time.Duration
	// Fallback, unless nil, allows TCP if no RDMA device reaches the address ([ErrNoDevice]). It is
	// called with the reason before TCP is used. The connection is then one of package net: only a
	// Listener that has fallen back too accepts it. A peer that refuses is no reason.
	Fallback func(reason error)
}

// Dial connects to "host:port" on the network "rdma", with the settings of the zero Dialer. It ends
// with ctx.
func Dial(ctx context.Context, network, address string) (*Conn, error) {
	return new(Dialer).Dial(ctx, network, address)
}

// DialContext is Dial for those who want a [net.Conn], such as http.Transport. It alone uses
// Fallback.
func (d *Dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := d.Dial(ctx, network, address)
	switch {
	case err == nil:
		return c, nil
	case d.Fallback == nil || !errors.Is(err, ErrNoDevice):
		return nil, err
	}
	d.Fallback(err)
	tcp := net.Dialer{Timeout: d.Timeout, KeepAlive: d.KeepAlive}
	return tcp.DialContext(ctx, "tcp", address)
}

// Dial connects to "host:port" on the network "rdma". If the host has several addresses they are
// tried in order. The error is a [*net.OpError] with syscall.ECONNREFUSED, ETIMEDOUT or
// EHOSTUNREACH, [ErrNoDevice], or the error of ctx in its chain.
func (d *Dialer) Dial(ctx context.Context, network, address string) (*Conn, error) {
	timeout := d.Timeout
	if timeout <= 0 {
		timeout = handshakeTime
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	cfg, err := newConfig(d.ReadBuffer, d.WriteBuffer, d.KeepAlive)
	var addrs []netip.AddrPort
	if err == nil {
		addrs, err = resolve(ctx, network, address)
	}
	if err == nil {
		err = ctx.Err()
	}
	fail := func(to net.Addr, err error) (*Conn, error) {
		if errors.Is(err, syscall.ETIMEDOUT) {
			err = timeoutError{err}
		}
		return nil, &net.OpError{Op: "dial", Net: network, Addr: to, Err: err}
	}
	if err != nil {
		return fail(nil, err)
	}
	for i, to := range addrs {
		c, err := d.dial(ctx, cfg, to)
		if err == nil {
			return c, nil
		}
		if i == len(addrs)-1 || ctx.Err() != nil {
			return fail(Addr{to}, err)
		}
	}
	panic("no address")
}

func (d *Dialer) dial(ctx context.Context, cfg config, to netip.AddrPort) (*Conn, error) {
	name, err := deviceTo(d.Device, to.Addr())
	if err != nil {
		return nil, err
	}
	a, err := openAdapter(name)
	if err != nil {
		return nil, err
	}
	defer a.close()
	if to.Addr().IsUnspecified() || to.Addr().IsLoopback() || name == memDevice && isOwn(to.Addr()) {
		to = netip.AddrPortFrom(a.Addr(), to.Port())
	}
	c, err := newConn(a.dials, cfg)
	if err != nil {
		return nil, err
	}
	opened := make(chan error, 1)
	c.ready = func(_ *Conn, err error) { opened <- err }
	c.d.block() // until it is open
	defer c.d.unblock(1)
	deadline, _ := ctx.Deadline()
	timeout := max(time.Until(deadline), time.Millisecond)
	timeout -= min(timeout/8, time.Second/2) // its event has the reason, and comes before ctx ends
	err = c.ep.Connect(to.Addr(), udat.ConnQual(to.Port()), timeout, c.hello().encode(), udat.QoSBestEffort,
		udat.ConnectDefault)
	if err == nil {
		select {
		case err = <-opened:
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	if err != nil {
		c.abort(err)
		return nil, err
	}
	return c, nil
}

// abort ends a connection that no caller has.
func (c *Conn) abort(err error) {
	c.mu.Lock()
	c.closed = true
	c.fail(err)
	c.mu.Unlock()
}

func addrPort(a netip.Addr, port uint64) netip.AddrPort {
	return netip.AddrPortFrom(a.Unmap(), uint16(port))
}

// timeoutError is an error that [net.Error] reports as a timeout.
type timeoutError struct{ error }

func (timeoutError) Timeout() bool { return true }

func (e timeoutError) Unwrap() error { return e.error }
