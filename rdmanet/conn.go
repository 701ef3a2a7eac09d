package rdmanet

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/godat/godat/udat"
)

// Conn is a stream between two ends. It implements [net.Conn], [io.ReaderFrom] and [io.WriterTo];
// [Dial] and [Listener.Accept] return one.
type Conn struct {
	cfg    config
	pool   *dispatchers
	d      *dispatcher
	ep     *udat.EP
	pz     *udat.PZ
	ring   *udat.LMR // the peer writes the stream into it
	own    *udat.LMR // the ring of what is to be sent, and the messages
	local  Addr
	remote Addr
	peer   hello
	reqs   []uint64 // of each request in flight: outgoing.freed once it has completed
	recvs  []udat.Recv
	ready  func(*Conn, error) // is called, without locks, when the connection is open or has failed; then nil

	rmu     sync.Mutex           // one Read at a time
	wmu     sync.Mutex           // one Write at a time
	regions map[*Region]struct{} // guarded by wmu

	mu       sync.Mutex
	state    state
	err      error // why the state is dead
	closed   bool  // by Close
	peerGone bool  // the peer has closed: it reads no more
	handling bool  // the leader handles an event of the connection
	readable waiters
	writable waiters
	ended    chan struct{} // closed when the state becomes dead
	released bool
	in       incoming
	out      outgoing
	readEnd  deadline
	writeEnd deadline
	alive    keepAlive
	linger   *time.Timer // bounds the end of a closed connection, and of its beginning
}

type state uint8

const (
	stateConnecting state = iota
	stateOpen
	stateDead
)

// config is what a Dialer or a ListenConfig says of a connection, with the defaults filled in.
type config struct {
	readBuffer, writeBuffer int
	keepAlive               time.Duration
	linger                  time.Duration
}

const (
	defaultBuffer    = 128 << 10
	defaultKeepAlive = 15 * time.Second
	defaultLinger    = 5 * time.Second
	handshakeTime    = 30 * time.Second
)

// newConfig fills in the defaults and rounds the sizes up to powers of two.
func newConfig(readBuffer, writeBuffer int, keepAlive time.Duration) (config, error) {
	c := config{keepAlive: keepAlive, linger: defaultLinger}
	for _, b := range []struct {
		name string
		in   int
		out  *int
	}{{"ReadBuffer", readBuffer, &c.readBuffer}, {"WriteBuffer", writeBuffer, &c.writeBuffer}} {
		if b.in < 0 || b.in > maxRing {
			return c, fmt.Errorf("rdmanet: %s is %d bytes, must be from 0 to %d", b.name, b.in, maxRing)
		}
		if b.in == 0 {
			b.in = defaultBuffer
		}
		*b.out = minRing
		for *b.out < b.in {
			*b.out *= 2
		}
	}
	if keepAlive == 0 {
		c.keepAlive = defaultKeepAlive
	}
	return c, nil
}

// The layout of Conn.own: the ring of what is to be sent, a place for each control message in
// flight, a place for each receive.
const messageStride = 32

func (c *Conn) sendPlace(seq uint64) int { return c.cfg.writeBuffer + int(seq%requests)*messageStride }

func (c *Conn) recvPlace(slot int) int {
	return c.cfg.writeBuffer + (requests+slot)*messageStride
}

// requests is the number of requests that a connection may have in flight.
const requests = 32

// newConn makes an endpoint with its memory and posts its receives.
func newConn(pool *dispatchers, cfg config) (*Conn, error) {
	c := &Conn{cfg: cfg, pool: pool, ended: make(chan struct{}), reqs: make([]uint64, requests)}
	c.readable.cond.L, c.writable.cond.L = &c.mu, &c.mu
	c.in.window = uint64(cfg.readBuffer)
	c.in.told = c.in.window // the hello says so
	pool.adapter.use()
	if err := c.create(); err != nil {
		c.free()
		return nil, err
	}
	return c, nil
}

func (c *Conn) create() (err error) {
	ia := c.pool.adapter
	if c.pz, err = ia.CreatePZ(); err != nil {
		return err
	}
	const private = udat.PrivLocalRead | udat.PrivLocalWrite
	if c.ring, err = ia.AllocLMR(c.pz, c.cfg.readBuffer, private|udat.PrivRemoteWrite); err != nil {
		return err
	}
	size := c.cfg.writeBuffer + (requests+defaultSlots)*messageStride
	if c.own, err = ia.AllocLMR(c.pz, size, private); err != nil {
		return err
	}
	if err := c.createEP(); err != nil {
		return err
	}
	c.recvs = make([]udat.Recv, defaultSlots)
	for i := range c.recvs {
		c.recvs[i] = udat.Recv{IOV: []udat.LMRTriplet{c.own.Triplet(c.recvPlace(i), controlSize)}, Cookie: udat.Cookie(i)}
	}
	_, err = c.ep.PostRecvBatch(c.recvs)
	return err
}

// createEP makes the endpoint on a dispatcher that has room for it.
func (c *Conn) createEP() error {
	attr := udat.EPAttr{MaxRecvDTOs: defaultSlots, MaxRequestDTOs: requests, MaxRequestIOV: 1, MaxRecvIOV: 1}
	for _, fresh := range []bool{false, true} {
		d, err := c.pool.get(fresh)
		if err != nil {
			return err
		}
		ep, err := c.pool.adapter.CreateEP(c.pz, d.evd, d.evd, d.evd, &attr)
		if err == nil {
			c.d, c.ep = d, ep
			d.add(c)
			return nil
		}
		c.pool.put(d)
		if fresh || !errors.Is(err, udat.ErrInsufficientResources) {
			return err
		}
	}
	return nil
}

// free gives back what the connection has; no call uses its memory.
func (c *Conn) free() {
	if c.ep != nil {
		c.d.remove(c)
		c.ep.Free()
	}
	for r := range c.regions {
		r.lmr.Free()
	}
	for _, l := range []*udat.LMR{c.ring, c.own} {
		if l != nil {
			l.Free()
		}
	}
	if c.pz != nil {
		c.pz.Free()
	}
	if c.d != nil {
		c.pool.put(c.d)
	}
	c.pool.adapter.close()
}

func (c *Conn) hello() hello {
	r := c.ring.RMRTriplet(0, c.cfg.readBuffer)
	return hello{
		immediate: c.pool.adapter.immediate, slots: defaultSlots,
		ringAddr: r.TargetAddress, ringKey: r.RMRContext, ringSize: c.cfg.readBuffer,
	}
}

// meet takes the peer's hello.
func (c *Conn) meet(h hello) {
	c.peer = h
	c.out.limit, c.out.window = uint64(h.ringSize), uint64(h.ringSize)
	c.out.imm = h.immediate && c.pool.adapter.immediate
}

// handle takes an event of the connection.
func (c *Conn) handle(ev *udat.Event) {
	c.mu.Lock()
	c.handling = true
	switch ev.Number {
	case udat.EventDTOCompletion:
		c.completed(ev)
	case udat.EventConnectionEstablished:
		c.established(ev)
	default:
		c.disconnected(ev)
	}
	c.handling = false
	c.mu.Unlock()
}

func (c *Conn) completed(ev *udat.Event) {
	switch {
	case ev.Status == udat.DTOErrFlushed: // the event of the connection follows
	case ev.Status != udat.DTOSuccess:
		c.fail(fmt.Errorf("%v: %w", ev.Status, syscall.ECONNRESET))
	case c.state == stateDead:
	case ev.Operation <= udat.DTORDMARead || ev.Operation == udat.DTORDMAWriteImm:
		c.sent(ev)
	default:
		c.arrived(ev)
	}
}

// established opens a dialed connection. An accepted one waits for the first message: on iWARP the
// end that has connected must be the first to send.
func (c *Conn) established(ev *udat.Event) {
	p, err := c.ep.Query()
	if err == nil {
		c.local = Addr{addrPort(p.LocalAddr, p.LocalPortQual)}
		c.remote = Addr{addrPort(p.RemoteAddr, p.RemotePortQual)}
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
	c.out.owed |= 1 << kindCredit
	c.open()
	c.push()
}

func (c *Conn) open() {
	c.state = stateOpen
	c.alive.start(c)
	c.report(nil)
}

// report calls ready, once, in a goroutine of its own; mu is held.
func (c *Conn) report(err error) {
	if ready := c.ready; ready != nil {
		c.ready = nil
		if c.linger != nil {
			c.linger.Stop()
		}
		go ready(c, err)
	}
}

// disconnected takes the event that there is no connection, or no longer.
func (c *Conn) disconnected(ev *udat.Event) {
	cause := ev.Err()
	var errno syscall.Errno
	if c.state == stateConnecting {
		errno = syscall.ECONNREFUSED
		switch ev.Number {
		case udat.EventConnectionTimedOut:
			errno = syscall.ETIMEDOUT
		case udat.EventConnectionUnreachable:
			errno = syscall.EHOSTUNREACH
		}
	} else {
		errno = syscall.ECONNRESET
	}
	switch {
	case cause == nil:
		cause = errno
	case !errors.Is(cause, errno):
		cause = fmt.Errorf("%w: %w", errno, cause)
	}
	if c.state == stateConnecting && len(ev.PrivateData()) > 0 && ev.Number == udat.EventConnectionPeerRejected {
		cause = fmt.Errorf("%w: %.100q", cause, ev.PrivateData())
	}
	c.fail(cause)
}

// fail ends the connection; mu is held. err is what calls return from now on, once they have
// returned the data that has come.
func (c *Conn) fail(err error) {
	if c.state != stateDead {
		c.state, c.err = stateDead, err
		close(c.ended)
		c.ep.Disconnect(udat.CloseAbrupt)
		c.alive.stop()
		c.unhold()
		c.report(err)
	}
	c.wakeAll()
	if c.closed {
		c.release()
	}
}

func (c *Conn) wakeAll() {
	c.wake(&c.readable)
	c.wake(&c.writable)
}

// release frees the connection once no call uses it; mu is held and the state is dead.
func (c *Conn) release() {
	if c.released {
		return
	}
	c.released = true
	if c.linger != nil {
		c.linger.Stop()
	}
	c.readEnd.set(c, &c.readable, time.Time{})
	c.writeEnd.set(c, &c.writable, time.Time{})
	go func() {
		c.rmu.Lock()
		c.wmu.Lock()
		c.free()
		c.wmu.Unlock()
		c.rmu.Unlock()
	}()
}

// Close closes the connection: Reads and Writes that are blocked return net.ErrClosed. Close waits,
// for up to 5 seconds, until what was written has reached the peer's memory; the connection of a
// peer that does not read it within that time is broken. Data that has come and was not read is
// dropped.
func (c *Conn) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return c.opError("close", net.ErrClosed)
	}
	c.closed = true
	c.wakeAll()
	switch {
	case c.state == stateDead:
		c.release()
	case c.state == stateConnecting || c.peerGone && c.out.posted == c.out.appended:
		c.fail(net.ErrClosed)
	default:
		c.out.owed |= 1 << kindClose
		c.linger = time.AfterFunc(c.cfg.linger, func() {
			c.mu.Lock()
			c.fail(os.ErrDeadlineExceeded)
			c.mu.Unlock()
		})
		c.push()
	}
	c.mu.Unlock()
	c.d.block()
	<-c.ended
	c.d.unblock(1)
	return nil
}

// CloseWrite ends the stream to the peer, which reads io.EOF after the data written before. Reads
// of this end go on.
func (c *Conn) CloseWrite() error {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.writeError(); err != nil {
		return c.opError("close", err)
	}
	c.out.fin = true
	c.out.owed |= 1 << kindFin
	c.push()
	return nil
}

// LocalAddr is the address of this end, an [Addr].
func (c *Conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr is the address of the peer, an [Addr].
func (c *Conn) RemoteAddr() net.Addr { return c.remote }

// Device is the name of the RDMA device, as it was opened: a name ("rxe0", "mem0") or an address.
func (c *Conn) Device() string { return c.pool.adapter.key }

// opError wraps the error of a call, except io.EOF.
func (c *Conn) opError(op string, err error) error {
	if err == nil || err == io.EOF {
		return err
	}
	return &net.OpError{Op: op, Net: Network, Source: c.local, Addr: c.remote, Err: err}
}
