package rdmanet

import (
	"context"
	"crypto/x509"
	"encoding/binary"
	"io"
	"net"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/godat/godat/udat"
)

// Conn is a connection: a stream of bytes in each direction. [Dial] and [Listener.Accept] return
// one. It implements [net.Conn], [io.ReaderFrom] and [io.WriterTo]. The calls of a nil *Conn and of
// the zero Conn return syscall.EINVAL.
type Conn struct {
	cfg    config
	pool   *dispatchers
	d      *dispatcher
	ep     *udat.EP
	pz     *udat.PZ
	own    *udat.LMR // buffers of control messages, and the first send ring
	local  net.Addr
	remote net.Addr
	peer   hello

	certificates []*x509.Certificate // of the peer

	reqs [requests]uint64 // for each request in flight, the value of outgoing.freed after its completion

	rmu sync.Mutex // one Read at a time
	wmu sync.Mutex // one Write at a time

	mu       sync.Mutex
	state    state
	err      error              // the reason for stateDead
	ready    func(*Conn, error) // called once, without locks, when the connection is open or has failed
	isReady  func()             // calls ready; handle must call it after the event
	closed   bool               // Close was called
	peerGone bool               // the peer has closed or has answered Close: it reads no more
	wasted   bool               // the bytes of a Write were discarded because the peer has closed
	handling bool               // the leader handles an event of the connection
	readable waiters
	writable waiters
	pins     int // number of users of the memory, not counting Read and Write
	released bool
	regions  map[*Region]struct{}
	grants   map[*Grant]struct{}
	in       incoming
	out      outgoing
	readEnd  deadline
	writeEnd deadline
	linger   linger
}

type state uint8

const (
	stateConnecting state = iota
	stateOpen
	stateLeaving // the peer has answered Close: this end sends nothing more
	stateDead
)

// freeing limits how many connections are freed at the same time, and growing limits how many rings
// are registered at the same time. Each of these operations blocks a thread, and Go never ends a
// thread. Without the limits, 1,000 connections that end at once would leave 1,000 threads.
var freeing, growing = make(chan struct{}, 32), make(chan struct{}, 16)

// free frees the connection's resources. No call may use its memory any more.
func (c *Conn) free() {
	if c.ep != nil {
		c.d.remove(c.ep)
		c.ep.Free()
	}
	for r := range c.regions {
		r.lmr.Free()
	}
	for _, l := range []*udat.LMR{c.in.ring.cur.lmr, c.in.ring.old.lmr, c.in.larger.lmr, c.out.ring.cur.lmr, c.own} {
		l.Free() // Free does nothing if l is nil or has been freed already
	}
	for g := range c.grants {
		g.memory.takeBack(g.window)
	}
	switch {
	case c.pz == nil:
	case c.cfg.zone == nil:
		c.pz.Free()
	default:
		c.cfg.zone.leave()
	}
	if c.d != nil {
		c.pool.put(c.d)
	}
	c.pool.adapter.close()
}

func (c *Conn) hello() hello {
	m := c.in.ring.cur
	r := m.lmr.RMRTriplet(m.base, int(m.size))
	return hello{
		immediate: c.pool.adapter.immediate, slots: defaultSlots,
		ring: remoteRing{addr: r.TargetAddress, key: r.RMRContext, size: int(m.size)},
	}
}

// meet stores the peer's hello and sets the limits that follow from it.
func (c *Conn) meet(h hello) {
	c.peer = h
	c.out.limit, c.out.window = uint64(h.ring.size), uint64(h.ring.size)
	c.out.imm = h.immediate && c.pool.adapter.immediate
	c.out.piece = c.pool.adapter.piece
}

// report calls the function c.ready once, without locks. If the leader is handling an event of this
// connection, the leader calls the function after it has handled the event, so that connections
// become ready in the order of their events. Otherwise a new goroutine calls it. mu is held.
func (c *Conn) report(err error) {
	ready := c.ready
	if ready == nil {
		return
	}
	c.ready = nil
	c.wake(&c.readable)
	if c.handling {
		c.isReady = func() { ready(c, err) }
	} else {
		go ready(c, err)
	}
}

// fail ends the connection; mu is held. From now on, each call returns the error err, but Reads
// first return the data that has arrived.
func (c *Conn) fail(err error) {
	if c.state != stateDead {
		c.state, c.err = stateDead, err
		c.ep.Disconnect(udat.CloseAbrupt)
		c.unhold()
		if c.linger.running {
			c.endLinger()
		}
		c.report(err)
		c.finish()
	}
	c.wakeAll()
	c.release()
}

// endLinger ends the lingering that Close has begun, and logs how many bytes were lost; mu is held.
func (c *Conn) endLinger() {
	if c.linger.blocks {
		c.d.unblock(1)
	}
	if !c.peerGone {
		c.linger.lost = c.out.appended - c.out.freed // bytes that perhaps have not reached the peer's memory
	}
	c.linger.end()
	if lost := c.linger.lost; lost > 0 {
		go c.cfg.log.Warn("rdmanet: bytes that were written before Close have not reached the peer", "bytes", lost,
			"local", c.local, "remote", c.remote, "err", c.err)
	}
}

// broken ends the connection because its dispatcher delivers no more events.
func (c *Conn) broken(err error) {
	c.mu.Lock()
	c.fail(err)
	c.mu.Unlock()
}

// abort ends and closes a connection that was not returned to the program.
func (c *Conn) abort(err error) {
	c.mu.Lock()
	c.closed = true
	c.fail(err)
	c.mu.Unlock()
}

// finish stores the results of completed atomics, and ends the batches that have completed. If the
// connection is dead it ends all batches. mu is held.
func (c *Conn) finish() {
	out := &c.out
	for len(out.words) > 0 && out.words[0].seq < out.done {
		w := out.words[0]
		*w.old = binary.NativeEndian.Uint64(c.own.Bytes()[sendPlace(w.seq):])
		out.words = out.words[1:]
	}
	for len(out.pending) > 0 {
		p := out.pending[0]
		succeeded := out.done >= p.lastPosted()
		if !succeeded && c.state != stateDead {
			return
		}
		out.pending = out.pending[1:]
		var err error
		if !succeeded {
			err = c.err
		}
		p.end(err)
	}
}

// unhold records that no data is held back any more, because all of it has been sent or will never
// be sent. The dispatcher then no longer counts the connection as blocked.
func (c *Conn) unhold() {
	if c.out.held {
		c.out.held = false
		c.d.unblock(1)
	}
}

// release frees the connection if it is dead and closed and no call uses it; mu is held.
func (c *Conn) release() {
	if c.releases() {
		go c.freeAfter()
	}
}

// releases reports whether the caller must free the connection now; mu is held.
func (c *Conn) releases() bool {
	if c.released || !c.closed || c.state != stateDead || c.pins > 0 {
		return false
	}
	c.released = true
	c.readEnd.set(&c.mu, time.Time{}, nil)
	c.writeEnd.set(&c.mu, time.Time{}, nil)
	return true
}

// freeAfter frees the connection after the Read and the Write that run.
func (c *Conn) freeAfter() {
	c.rmu.Lock()
	c.wmu.Lock()
	freeing <- struct{}{}
	c.free()
	<-freeing
	c.wmu.Unlock()
	c.rmu.Unlock()
}

// pin keeps the connection's memory valid until unpin; mu is held.
func (c *Conn) pin() { c.pins++ }

func (c *Conn) unpin() {
	c.pins--
	c.release()
}

// unlocked calls f, which may take long, without mu, for which a dispatcher with all its
// connections may wait. mu is held.
func (c *Conn) unlocked(f func() error) error {
	c.pin()
	defer c.unpin()
	c.mu.Unlock()
	defer c.mu.Lock()
	return f()
}

// freeLater is like unlocked, in the background. It ends a registration.
func (c *Conn) freeLater(l *udat.LMR) {
	c.pin()
	go func() {
		freeing <- struct{}{}
		l.Free()
		<-freeing
		c.mu.Lock()
		defer c.mu.Unlock()
		c.unpin()
	}()
}

// waiters are the calls that wait for the state of a connection to change. Conn.mu guards them.
type waiters struct {
	cond  sync.Cond
	n     int // number of calls that wait on cond
	leads int // number of calls that wait as the dispatcher's leader; 2 while one takes over from the other
}

// wait waits until w is woken. It may return early. The caller holds c.mu, and wait releases it
// while it waits.
func (c *Conn) wait(w *waiters) { c.waitYielding(w, true) }

// waitYielding is like wait. The parameter yields selects whether a call that becomes the leader
// first yields its processor to other goroutines. If no other goroutine is ready to run, yielding
// costs a futex call and wakes a thread for nothing.
func (c *Conn) waitYielding(w *waiters, yields bool) {
	if !c.d.leadOrBlock() {
		w.n++
		w.cond.Wait()
		return
	}
	w.leads++
	c.mu.Unlock()
	if yields {
		runtime.Gosched() // lets a goroutine that this one has woken run before this one spins
	}
	c.d.poll()
	c.d.leave()
	c.mu.Lock()
	w.leads--
}

// waitContext is like waitYielding, and also returns when ctx ends.
func (c *Conn) waitContext(ctx context.Context, w *waiters, yields bool) {
	if ctx.Done() != nil {
		defer context.AfterFunc(ctx, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.wake(w)
		})()
	}
	c.waitYielding(w, yields)
}

// wake makes the calls that wait on w check the connection's state again; c.mu is held.
func (c *Conn) wake(w *waiters) {
	if w.n > 0 {
		c.d.unblock(w.n)
		w.n = 0
		w.cond.Broadcast()
	}
	if w.leads > 0 && !c.handling { // while handling, the caller is the leader, which checks its state afterwards
		c.d.rouse()
	}
}

func (c *Conn) wakeAll() {
	c.wake(&c.readable)
	c.wake(&c.writable)
}

// LocalAddr returns the address of this end: a *net.TCPAddr on the device "tcp" and with
// [Dialer].TCPAddrs, and an [Addr] otherwise.
func (c *Conn) LocalAddr() net.Addr {
	if !c.ok() {
		return nil
	}
	return c.local
}

// RemoteAddr returns the address of the peer. Its type is the same as that of LocalAddr.
func (c *Conn) RemoteAddr() net.Addr {
	if !c.ok() {
		return nil
	}
	return c.remote
}

// Device returns the name by which the RDMA device was opened: a name ("rxe0", "mem0") or an
// address.
func (c *Conn) Device() string {
	if !c.ok() {
		return ""
	}
	return c.pool.adapter.key.name
}

// PeerCertificates returns the certificates that the peer has shown with TLS, its own first, or nil
// without TLS.
func (c *Conn) PeerCertificates() []*x509.Certificate {
	if !c.ok() {
		return nil
	}
	return c.certificates
}

// ok reports whether Dial or Accept has returned the connection.
func (c *Conn) ok() bool { return c != nil && c.pool != nil }

// enter locks mu. It returns an error, and does not lock, if the connection is closed or invalid.
func (c *Conn) enter(op string) error {
	if !c.ok() {
		return syscall.EINVAL
	}
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return c.opError(op, net.ErrClosed)
	}
	return nil
}

// opError wraps an error in a net.OpError. It returns nil and io.EOF unchanged.
func (c *Conn) opError(op string, err error) error {
	if err == nil || err == io.EOF {
		return err
	}
	return &net.OpError{Op: op, Net: Network, Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: err}
}

// afterFunc makes a timer that calls f after the time d, with c.mu held. The function that it
// returns stops the timer.
func (c *Conn) afterFunc(d time.Duration, f func()) (stop func() bool) {
	return time.AfterFunc(d, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		f()
	}).Stop
}
