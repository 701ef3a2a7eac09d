package rdmanet

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http/httptrace"
	"net/netip"
	"syscall"
	"time"

	"github.com/godat/godat/udat"
)

// Dialer has the settings for dialing connections. The zero value is ready to use.
type Dialer struct {
	// Device is the RDMA device: its name ("rxe0", "mlx5_0"), one of its addresses, "tcp" for RDMA
	// over TCP, or "mem0", which connects within this process. If Device is empty, the route to the
	// peer selects the device. On a host without RDMA devices, Dial then uses mem0 for addresses of
	// this host, and fails for other addresses. If Fallback is set, it fails for both.
	//
	// If the peer's address is a loopback address, Dial connects to the address of the device, except
	// on TCP. If "host:port" has no host, Dial connects to the address of the device, or to the
	// loopback address if the device is "tcp".
	Device string
	// LocalAddr, unless nil, selects the device by its address: an [Addr], *net.TCPAddr or
	// *net.IPAddr, whose port is ignored. Device must then be empty.
	LocalAddr net.Addr
	// Path has the settings of the connections' packets, such as the type of service.
	Path Path
	// Zone, unless nil, is the protection zone of the connections, which then share its [Memory].
	// Device and Path must be unset, or equal to those of the zone, and KeepAlive must be unset.
	Zone *Zone
	// ReadBuffer and WriteBuffer are the sizes in bytes of the rings for received data and for data to
	// send. They are rounded up to a power of two; the limit is 1 GiB. The value 0 means 128 KiB, or
	// 512 KiB on TCP. A connection begins with small rings. Once a stream needs more than 2 KiB, the
	// connection registers a ring of the full size, which locks the ring's memory. A stream is fastest
	// if the buffers are at least four times as large as its largest message.
	ReadBuffer, WriteBuffer int
	// KeepAlive is the interval of the device's keep-alive: see udat.WithKeepAlive. If the peer's host
	// has vanished, an idle connection is broken within 5 intervals. The value 0 means 10 seconds, and
	// a negative value disables the keep-alive. The limits are a second and an hour. Connections with
	// different intervals open the device separately.
	KeepAlive time.Duration
	// TLS, unless nil, encrypts and authenticates the connection from its first byte to its last:
	// stream, messages and remote memory. It is for the device "tcp" and for Fallback. If its
	// ServerName is empty, the peer's certificate must have the host of the address that is dialed.
	// The connections of one configuration and host share what they can, so use one configuration for
	// all, and do not change it. A connection in a Zone has no TLS.
	TLS *tls.Config
	// Timeout is the time limit of Dial, for all addresses of the host together. The value 0 means 30
	// seconds.
	Timeout time.Duration
	// TCPAddrs makes LocalAddr and RemoteAddr return *net.TCPAddr on every device, for programs that
	// panic without this type. On the device "tcp" they return it without TCPAddrs, too.
	TCPAddrs bool
	// Logger receives problems that no call can return: bytes lost after Close, or a ring that
	// could not be registered. If it is nil, slog.Default() is used.
	Logger *slog.Logger
	// Fallback, unless nil, allows DialContext to use TCP if no RDMA device reaches the peer's address
	// (the error is [ErrNoDevice]). DialContext first calls Fallback with the reason, and then makes a
	// TCP connection of package net. A peer accepts it only if its Listen has fallen back too.
	// DialContext does not use TCP after other errors, such as a refusal by the peer. If Fallback is
	// set, mem0 is used only if Device names it.
	Fallback func(reason error)
}

// Dial connects to "host:port" on the network "rdma", with the settings of the zero Dialer: see
// [Dialer.Dial].
func Dial(ctx context.Context, network, address string) (*Conn, error) {
	return new(Dialer).Dial(ctx, network, address)
}

// DialContext is [Dialer.Dial] for programs that need a [net.Conn], such as http.Transport. Only
// DialContext uses Fallback.
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
	if local, err := d.local(); err == nil {
		tcp.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(local, 0))
	}
	if network == Network {
		network = "tcp"
	}
	if d.TLS != nil {
		return (&tls.Dialer{NetDialer: &tcp, Config: d.TLS}).DialContext(ctx, network, address)
	}
	return tcp.DialContext(ctx, network, address)
}

// Dial connects to "host:port" on the network "rdma". The networks "tcp", "tcp4" and "tcp6", which
// programs of package net name, connect by RDMA all the same; "tcp4" and "tcp6" select an address
// family. If the host has several addresses, Dial tries them in order, each with a share of the
// time, and after 300 ms those of the other family, too. It calls the ConnectStart and ConnectDone
// hooks of an httptrace.ClientTrace in ctx, for two families from two goroutines. If the peer
// refuses because it has too many requests, or if the device gives up waiting for an answer, Dial
// tries again until its time is over. The error is a [*net.OpError]. It wraps
// syscall.ECONNREFUSED, ETIMEDOUT, EHOSTUNREACH, EMFILE or EADDRNOTAVAIL (no local port is free),
// [ErrNoDevice], or the error of ctx. If the time is over, it wraps context.DeadlineExceeded.
func (d *Dialer) Dial(ctx context.Context, network, address string) (*Conn, error) {
	timeout := d.Timeout
	if timeout <= 0 {
		timeout = dialTime
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	cfg, device, err := d.config()
	if host, _, err := net.SplitHostPort(address); err == nil && d.TLS != nil {
		cfg.path.server = cmp.Or(host, "localhost")
	}
	var addrs []netip.AddrPort
	if err == nil {
		addrs, err = resolve(ctx, network, address)
	}
	if len(addrs) > 0 && addrs[0].Port() == 0 {
		err = fmt.Errorf("port 0: %w", syscall.ECONNREFUSED)
	}
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, dialError(network, nil, err)
	}
	return d.dialEach(ctx, network, cfg, device, addrs)
}

// secondFamily is the time after which the addresses of the other family are tried, too, as by
// net.Dialer (RFC 8305).
const secondFamily = 300 * time.Millisecond

// dialEach tries the addresses of the first one's family in order. It tries those of the other
// family at the same time, from when the first family has failed, or after secondFamily. It returns
// the first connection, and gives up the other. If all fail, the error is that of the first family,
// unless only the other's is not ErrNoDevice, and names the other.
func (d *Dialer) dialEach(ctx context.Context, network string, cfg config, device string,
	addrs []netip.AddrPort) (*Conn, error) {
	var families [2][]netip.AddrPort
	for _, a := range addrs {
		i := 0
		if a.Addr().Is4() != addrs[0].Addr().Is4() {
			i = 1
		}
		families[i] = append(families[i], a)
	}
	if len(families[1]) == 0 {
		r := d.dialFamily(ctx, network, cfg, device, addrs)
		if r.err != nil {
			return nil, dialFailure(network, cfg, r, dialed{})
		}
		return r.c, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results, over := make(chan dialed), make(chan struct{})
	defer close(over)
	race := func(family int) {
		r := d.dialFamily(ctx, network, cfg, device, families[family])
		r.family = family
		select {
		case results <- r:
		case <-over:
			if r.c != nil {
				r.c.abort(net.ErrClosed)
			}
		}
	}
	go race(0)
	late := time.NewTimer(secondFamily)
	defer late.Stop()
	var failed [2]dialed
	for begun, ended := 1, 0; ; {
		select {
		case r := <-results:
			if r.err == nil {
				return r.c, nil
			}
			failed[r.family] = r
			ended++
		case <-late.C:
		}
		switch {
		case begun == 1 && ctx.Err() == nil:
			begun++
			go race(1)
		case begun == ended:
			return nil, dialFailure(network, cfg, failed[0], failed[1])
		}
	}
}

// dialFailure returns the error of Dial. The second attempt has no error if it was not made.
func dialFailure(network string, cfg config, first, second dialed) error {
	if errors.Is(first.err, ErrNoDevice) && second.err != nil && !errors.Is(second.err, ErrNoDevice) {
		first, second = second, first
	}
	err := first.err
	if second.err != nil {
		err = fmt.Errorf("%w; %v: %v", err, second.to, second.err)
	}
	return dialError(network, cfg.addr(Addr{first.to}), err)
}

// dialed is the result of the attempts of a family: a connection, or the error of the address to.
type dialed struct {
	family int
	c      *Conn
	to     netip.AddrPort
	err    error
}

// dialFamily tries the addresses in order until one has a connection. If all fail, the error is the
// first one that is not ErrNoDevice, or the first one.
func (d *Dialer) dialFamily(ctx context.Context, network string, cfg config, device string,
	addrs []netip.AddrPort) (first dialed) {
	trace := httptrace.ContextClientTrace(ctx)
	for i, to := range addrs {
		if trace != nil && trace.ConnectStart != nil {
			trace.ConnectStart(network, to.String())
		}
		c, err := d.dialUntilTaken(ctx, len(addrs)-i, cfg, device, to)
		if trace != nil && trace.ConnectDone != nil {
			trace.ConnectDone(network, to.String(), err)
		}
		if err == nil {
			return dialed{c: c}
		}
		if first.err == nil || errors.Is(first.err, ErrNoDevice) && !errors.Is(err, ErrNoDevice) {
			first = dialed{to: to, err: err}
		}
		if ctx.Err() != nil {
			break
		}
	}
	return first
}

func dialError(network string, to net.Addr, err error) error {
	if errors.Is(err, syscall.ETIMEDOUT) || errors.Is(err, context.DeadlineExceeded) {
		err = lateError{timeoutError{err}}
	}
	return &net.OpError{Op: "dial", Net: network, Addr: to, Err: err}
}

// config returns the settings of the connection and the device that the Dialer selects. The device
// is "" if the Dialer selects none.
func (d *Dialer) config() (cfg config, device string, err error) {
	cfg, err = newConfig(d.ReadBuffer, d.WriteBuffer, d.KeepAlive, d.TCPAddrs, d.Logger)
	if err == nil {
		device, err = cfg.useZone(d.Zone, d.Device, d.Path.with(d.TLS))
	}
	if err != nil || d.LocalAddr == nil {
		return cfg, device, err
	}
	if device != "" {
		return cfg, "", fmt.Errorf("rdmanet: LocalAddr is %v and Device %q, only one may be set", d.LocalAddr, device)
	}
	a, err := d.local()
	if err != nil {
		return cfg, "", err
	}
	devices, err := devicesFor("", a, d.Fallback != nil)
	if err != nil {
		return cfg, "", err
	}
	return cfg, devices[0], nil
}

// local returns the address of LocalAddr.
func (d *Dialer) local() (a netip.Addr, err error) {
	switch l := d.LocalAddr.(type) {
	case Addr:
		a = l.Addr()
	case *net.TCPAddr:
		a = l.AddrPort().Addr()
	case *net.IPAddr:
		if l != nil {
			a, _ = netip.AddrFromSlice(l.IP)
			a = a.WithZone(l.Zone)
		}
	}
	if !a.IsValid() || a.IsUnspecified() {
		return a, fmt.Errorf("rdmanet: LocalAddr is %v (%T), must be an Addr, *net.TCPAddr or *net.IPAddr "+
			"with an address", d.LocalAddr, d.LocalAddr)
	}
	return a.Unmap(), nil
}

// leastShare is the least time that Dial gives to each of several addresses, unless less time is
// left.
const leastShare = 2 * time.Second

// dialUntilTaken connects to an address, and tries again while the peer is busy. The parameter left
// is the number of addresses that share the remaining time.
func (d *Dialer) dialUntilTaken(ctx context.Context, left int, cfg config, device string,
	to netip.AddrPort) (*Conn, error) {
	if end, ok := ctx.Deadline(); ok && left > 1 {
		rest := time.Until(end)
		share, cancel := context.WithTimeout(ctx, max(rest/time.Duration(left), min(leastShare, rest)))
		defer cancel()
		ctx = share
	}
	var refused error // the latest refusal
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		c, err := d.dial(ctx, cfg, device, to)
		busy := errBusy{}
		switch {
		case err == nil:
			return c, nil
		case errors.As(err, &busy):
			refused = err
		case refused == nil:
			return nil, err
		case ctx.Err() != nil || errors.Is(err, syscall.ETIMEDOUT):
			return nil, fmt.Errorf("%w; tried until %w", refused, err)
		default:
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%w; tried until %w", refused, ctx.Err())
		case <-time.After(pause/2 + rand.N(pause)):
		}
	}
}

// dialing limits the number of endpoints that are created at the same time, because registering
// memory blocks a thread.
var dialing = make(chan struct{}, 16)

func (d *Dialer) dial(ctx context.Context, cfg config, device string, to netip.AddrPort) (*Conn, error) {
	name, err := deviceTo(device, to.Addr(), d.Fallback != nil)
	if err != nil {
		return nil, err
	}
	a, err := openAdapter(name, cfg.path, cfg.keepAlive)
	if err != nil {
		return nil, err
	}
	defer a.close()
	to = netip.AddrPortFrom(a.target(to.Addr()), to.Port())
	select {
	case dialing <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	c, err := newConn(a.dials, cfg, asHandler)
	<-dialing
	if err != nil {
		return nil, err
	}
	c.remote = cfg.addr(Addr{to})
	opened := make(chan error, 1)
	c.ready = func(_ *Conn, err error) { opened <- err }
	deadline, _ := ctx.Deadline()
	timeout := max(time.Until(deadline), time.Millisecond)
	timeout -= min(timeout/8, time.Second/2) // so that the event with the reason comes before ctx ends
	early := time.Now().Add(timeout)
	err = c.ep.Connect(to.Addr(), udat.ConnQual(to.Port()), timeout, c.hello().encode(), udat.QoSBestEffort,
		udat.ConnectDefault)
	if err == nil && c.awaitReady(ctx) {
		if err = <-opened; errors.Is(err, syscall.ETIMEDOUT) && !time.Now().Before(early) {
			<-ctx.Done()
		}
	} else if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		c.abort(err)
		if device == "" && name == memDevice {
			err = fmt.Errorf("%w (no RDMA device here, so Dial used mem0; %s)", err, tcpAdvice)
		}
		return nil, err
	}
	return c, nil
}

// awaitReady waits until report has been called, or ctx has ended; then it returns false.
func (c *Conn) awaitReady(ctx context.Context) bool {
	defer context.AfterFunc(ctx, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.wake(&c.readable)
	})()
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.ready != nil && ctx.Err() == nil {
		c.waitYielding(&c.readable, false)
	}
	return c.ready == nil
}
