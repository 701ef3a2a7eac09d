package rdmanet

import (
	"context"
	"errors"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/godat/godat/udat"
)

// Listener accepts connections. It implements [net.Listener]. All methods are safe for concurrent
// use.
type Listener struct {
	cfg    config
	points []*point

	mu      sync.Mutex
	changed sync.Cond // for AcceptConn
	admission
	queue    []*Conn // wait for Accept, oldest first
	workers  int
	timer    *time.Timer // calls look
	due      time.Time   // when timer fires; zero: it is stopped
	failed   error       // why this host could not make a connection: AcceptConn returns it once
	gone     error       // why there are no more connections
	closed   bool
	deadline deadline
	stats    ListenerStats
}

// ListenerStats are the figures of a Listener.
type ListenerStats struct {
	Accepted   uint64 // connections that Accept has returned
	Refused    uint64 // requests that were refused: too many, or no peer of this package
	Failed     uint64 // connections that failed before Accept, here or at the peer
	GivenUp    uint64 // connections whose peer was silent and that gave way, or were late
	Waiting    int    // connections that wait for Accept now
	InMaking   int    // connections without the peer's first message now
	Unanswered int    // requests that wait for an answer now
}

// Stats returns the Listener's figures.
func (l *Listener) Stats() ListenerStats {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.stats
	s.Waiting, s.InMaking, s.Unanswered = len(l.queue), l.making.Len(), l.pending.Len()
	return s
}

// acceptWorkers is the number of connections that are made at the same time: registering memory
// blocks a thread.
const acceptWorkers = 8

// serve takes the connection requests of one device until the Listener is closed.
func (l *Listener) serve(p *point) {
	for {
		ev, _, err := p.evd.Wait(udat.Infinite, 1)
		if err != nil {
			l.fail(p, err)
			return
		}
		if q, err := ev.CR.Query(); err == nil {
			local := Addr{addrPort(ev.LocalAddr(), uint64(ev.ConnQual()))}
			l.request(&request{point: p, cr: ev.CR, local: local, from: q.RemoteAddr})
		}
	}
}

func (l *Listener) request(r *request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		r.cr.Reject(encodeRefusal(refusedFor, refusedClosed))
	case !l.ask(r):
		l.stats.Refused++
		r.cr.Reject(encodeRefusal(refusedBusy, "too many connection requests wait"))
	default:
		l.work()
	}
}

// work makes connections of the requests that may be answered; mu is held.
func (l *Listener) work() {
	if !l.closed && l.workers < min(acceptWorkers, l.pending.Len()) {
		l.workers++
		go l.makeAll()
	}
}

// makeAll makes connections until no request may be answered.
func (l *Listener) makeAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer func() { l.workers-- }()
	for !l.closed {
		r, m, victim, wait := l.next(len(l.queue), time.Now())
		if r == nil {
			l.remind(wait)
			return
		}
		if victim != nil {
			l.giveUp(victim)
		}
		l.remind(helloTime)
		l.mu.Unlock()
		c, err := l.accept(r, m)
		l.mu.Lock()
		m.since = time.Now()
		switch m.conn = c; {
		case c == nil:
			l.made(m)
			l.hasFailed(err)
		case m.gone:
			go c.abort(context.DeadlineExceeded)
		}
	}
}

// accept accepts a request with a new connection; ready has the outcome. Without a connection the
// request has been refused.
func (l *Listener) accept(r *request, m *making) (*Conn, error) {
	q, err := r.cr.Query()
	if err != nil {
		return nil, err
	}
	h, err := decodeHello(q.PrivateData)
	if err != nil {
		r.cr.Reject(encodeRefusal(refusedFor, err.Error()))
		return nil, err
	}
	c, err := newConn(r.point.pool, l.cfg, asHandler)
	if err != nil {
		r.cr.Reject(encodeRefusal(refusedBusy, cannotMake+innermost(err)))
		return nil, acceptError{err}
	}
	c.local, c.remote = l.cfg.addr(r.local), l.cfg.addr(Addr{addrPort(q.RemoteAddr, q.RemotePortQual)})
	c.meet(h)
	c.out.accepted = true
	c.ready = func(c *Conn, err error) { l.ready(m, c, err) }
	c.d.block() // until ready
	if err := r.cr.Accept(c.ep, c.hello().encode()); err != nil {
		if errors.Is(err, udat.ErrInsufficientResources) { // the request is still there
			r.cr.Reject(encodeRefusal(refusedBusy, cannotMake+innermost(err)))
			err = acceptError{err}
		}
		c.abort(err)
	}
	return c, nil
}

const cannotMake = "it cannot make a connection: "

// innermost is the last cause of an error: there is little room in a refusal.
func innermost(err error) string {
	for {
		next := errors.Unwrap(err)
		if all, ok := err.(interface{ Unwrap() []error }); ok {
			next = all.Unwrap()[len(all.Unwrap())-1]
		}
		if next == nil {
			return err.Error()
		}
		if _, ok := next.(syscall.Errno); ok { // an errno alone says too little: keep the text around it
			text := err.Error()
			return text[max(0, len(text)-(maxRefusal-refusalHead)*3/4):]
		}
		err = next
	}
}

// acceptError is the error of a connection that this host could not make. Servers that know
// temporary errors go on after it.
type acceptError struct{ error }

func (acceptError) Temporary() bool { return true }

func (acceptError) Timeout() bool { return false }

func (e acceptError) Unwrap() error { return e.error }

// hasFailed counts a connection that has failed before Accept. AcceptConn returns the error if this
// host is its cause. mu is held.
func (l *Listener) hasFailed(err error) {
	l.stats.Failed++
	if here := (acceptError{}); errors.As(err, &here) {
		l.failed = err
		l.changed.Signal()
	}
}

// ready takes a connection that has had its first message, or has failed.
func (l *Listener) ready(m *making, c *Conn, err error) {
	c.d.unblock(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.made(m)
	switch {
	case err != nil:
		if !m.gone {
			l.hasFailed(err)
		}
		go c.abort(err)
	case m.gone || l.closed:
		go c.abort(net.ErrClosed)
	default:
		c.answer()
		l.queue = append(l.queue, c)
		l.changed.Signal()
	}
	l.work()
}

// giveUp ends a connection whose peer is silent; it has been taken out of the making. mu is held.
func (l *Listener) giveUp(m *making) {
	l.stats.GivenUp++
	m.gone = true
	if m.conn != nil {
		go m.conn.abort(context.DeadlineExceeded)
	}
}

// remind has look called after d, or sooner if that is due already; mu is held.
func (l *Listener) remind(d time.Duration) {
	due := time.Now().Add(d)
	switch {
	case d == 0 || !l.due.IsZero() && !due.Before(l.due):
		return
	case l.timer == nil:
		l.timer = time.AfterFunc(d, l.look)
	default:
		l.timer.Reset(d)
	}
	l.due = due
}

// look gives up connections whose first message is late, and answers requests that waited for a
// place.
func (l *Listener) look() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.due = time.Time{}
	late, wait := l.late(time.Now())
	for _, m := range late {
		l.giveUp(m)
	}
	l.remind(wait)
	l.work()
}

// fail takes the news that a device brings no more requests. If none does, Accept says so.
func (l *Listener) fail(p *point, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	p.failed = true
	for _, p := range l.points {
		if !p.failed {
			l.cfg.log.Warn("rdmanet: a device brings no more connections", "device", p.adapter.key.name, "err", err)
			return
		}
	}
	l.gone = err
	l.changed.Broadcast()
}

// Accept returns the next connection, a [*Conn]. After Close its error is net.ErrClosed, after the
// deadline os.ErrDeadlineExceeded. An error that is Temporary says that this host could not make a
// connection, for want of locked memory for instance: the peer tries again, and so may Accept.
func (l *Listener) Accept() (net.Conn, error) {
	c, err := l.AcceptConn()
	if err != nil {
		return nil, err
	}
	return c, nil
}

// AcceptConn is Accept for those who want a [*Conn].
func (l *Listener) AcceptConn() (*Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		var err error
		switch {
		case l.closed:
			err = net.ErrClosed
		case l.deadline.passed:
			err = os.ErrDeadlineExceeded
		case len(l.queue) > 0:
			c := l.queue[0]
			l.queue = slices.Delete(l.queue, 0, 1)
			l.stats.Accepted++
			l.work()
			return c, nil
		case l.failed != nil:
			err, l.failed = l.failed, nil
		case l.gone != nil:
			err = l.gone
		default:
			l.changed.Wait()
			continue
		}
		return nil, &net.OpError{Op: "accept", Net: Network, Addr: l.Addr(), Err: err}
	}
}

// SetDeadline sets when Accept gives up; the zero time is never. It also ends calls that are
// blocked.
func (l *Listener) SetDeadline(t time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return &net.OpError{Op: "set", Net: Network, Addr: l.Addr(), Err: net.ErrClosed}
	}
	l.deadline.set(&l.mu, t, l.changed.Broadcast)
	return nil
}

// Addr is the address on which the Listener listens, an [Addr], or a *net.TCPAddr with
// [ListenConfig].TCPAddrs. If it listens on several devices it is that of the first.
func (l *Listener) Addr() net.Addr {
	if len(l.points) == 0 {
		return l.cfg.addr(Addr{})
	}
	p := l.points[0]
	return l.cfg.addr(Addr{addrPort(p.adapter.Addr(), uint64(p.psp.Qual()))})
}

// Close stops listening. Connections that Accept has returned stay; those that wait for it are
// closed, and requests without an answer are refused.
func (l *Listener) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return &net.OpError{Op: "close", Net: Network, Addr: l.Addr(), Err: net.ErrClosed}
	}
	l.closed = true
	l.changed.Broadcast()
	l.deadline.set(&l.mu, time.Time{}, nil)
	if l.timer != nil {
		l.timer.Stop()
	}
	requests, making := l.rest()
	conns := l.queue
	l.queue = nil
	for _, m := range making {
		l.giveUp(m)
	}
	l.mu.Unlock()
	for _, r := range requests {
		r.cr.Reject(encodeRefusal(refusedFor, refusedClosed))
	}
	for _, c := range conns {
		c.abort(net.ErrClosed)
	}
	for _, p := range l.points {
		p.close()
	}
	return nil
}
