package rdmanet

import (
	"context"
	"errors"
	"net"
	"os"
	"slices"
	"strings"
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
	changed sync.Cond // AcceptConn waits on it
	admission
	queue    []*Conn // connections that wait for Accept, oldest first
	workers  int
	timer    *time.Timer // calls Listener.checkLate
	due      time.Time   // when timer fires; zero: it is stopped
	failed   error       // why this host could not create a connection; AcceptConn returns it once
	gone     error       // why there will be no more connections
	closed   bool
	deadline deadline
	stats    ListenerStats
}

// ListenerStats are the figures of a Listener.
type ListenerStats struct {
	Accepted   uint64 // connections that Accept has returned
	Refused    uint64 // requests that were refused because there were too many
	Failed     uint64 // connections and requests that failed before Accept, here or at the peer
	GivenUp    uint64 // connections that were given up because the peer sent no first message
	Waiting    int    // connections that wait for Accept now
	InMaking   int    // accepted connections that wait for the peer's first message now
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

// acceptWorkers is the largest number of connections that are created at the same time. It is
// limited because registering memory blocks a thread.
const acceptWorkers = 8

// serve handles the connection requests of one device until the Listener is closed.
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
	var refusal []byte
	l.mu.Lock()
	switch {
	case l.closed:
		refusal = encodeRefusal(refusedFor, refusedClosed)
	case !l.ask(r):
		l.stats.Refused++
		refusal = encodeRefusal(refusedBusy, "too many connection requests wait")
	case r.point.adapter.soft && l.workers == 0:
		l.workers++
		l.makeAll()
	default:
		l.work()
	}
	l.mu.Unlock()
	if refusal != nil { // without mu, for which the leader of a dispatcher may wait
		r.cr.Reject(refusal)
	}
}

// work starts a worker for pending requests, unless there are enough; mu is held.
func (l *Listener) work() {
	if !l.closed && l.workers < min(acceptWorkers, l.pending.Len()) {
		l.workers++
		go func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.makeAll()
		}()
	}
}

// makeAll is a worker. It answers pending requests until none may be answered; mu is held.
func (l *Listener) makeAll() {
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

// accept creates a connection and accepts the request with it. l.ready is called when the
// connection is ready or has failed. If accept returns no connection, it has refused the request.
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
	switch {
	case errors.Is(err, net.ErrClosed): // the Listener's Zone is closed, and there can be no more connections
		r.cr.Reject(encodeRefusal(refusedFor, refusedClosed))
		l.fail(r.point, err)
		return nil, err
	case err != nil:
		r.cr.Reject(encodeRefusal(refusedBusy, cannotMake+innermost(err)))
		return nil, acceptError{err}
	}
	c.local, c.remote = l.cfg.addr(r.local), l.cfg.addr(Addr{addrPort(q.RemoteAddr, q.RemotePortQual)})
	c.certificates = q.PeerCertificates
	c.meet(h)
	c.out.accepted = true
	c.ready = func(c *Conn, err error) { l.ready(m, c, err) }
	c.d.block() // until l.ready is called
	if err := r.cr.Accept(c.ep, c.hello().encode()); err != nil {
		if errors.Is(err, udat.ErrInsufficientResources) { // the request has not been answered
			r.cr.Reject(encodeRefusal(refusedBusy, cannotMake+innermost(err)))
			err = acceptError{err}
		}
		c.abort(err)
	}
	return c, nil
}

const cannotMake = "it cannot make a connection: "

// innermost returns the text of the last error in a chain, because there is little room in a
// refusal. If that text is too long and names a resource limit, innermost returns only the part
// that begins with the clause about the limit.
func innermost(err error) string {
	for {
		next := errors.Unwrap(err)
		if all, ok := err.(interface{ Unwrap() []error }); ok {
			next = all.Unwrap()[len(all.Unwrap())-1]
		}
		if _, ok := next.(syscall.Errno); next != nil && !ok { // the text of an errno alone is not enough
			err = next
			continue
		}
		text := err.Error()
		if at := strings.Index(text, "(RLIMIT_"); at >= 0 && len(text) > maxRefusal-refusalHead-len(cannotMake) {
			text = strings.TrimLeft(text[strings.LastIndexAny(text[:at], ":;(")+1:], " ")
		}
		return text
	}
}

// acceptError is the error of Accept if this host could not create a connection. It is temporary,
// so that servers that check for temporary errors continue.
type acceptError struct{ error }

func (acceptError) Temporary() bool { return true }

func (acceptError) Timeout() bool { return false }

func (e acceptError) Unwrap() error { return e.error }

// hasFailed counts a connection that has failed before Accept could return it. If this host is the
// cause, AcceptConn will return the error. mu is held.
func (l *Listener) hasFailed(err error) {
	l.stats.Failed++
	if here := (acceptError{}); errors.As(err, &here) {
		l.report(err)
	}
}

// starved makes AcceptConn return a temporary error: a device will deliver requests again when this
// host has resources for them.
func (l *Listener) starved(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.report(acceptError{err})
	}
}

// report makes AcceptConn return err once; mu is held.
func (l *Listener) report(err error) {
	l.failed = err
	l.changed.Signal()
}

// ready handles a connection whose first message has arrived, or a connection that has failed with
// err.
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

// giveUp ends a connection whose peer has sent no first message. The caller has removed it from
// those in the making. mu is held.
func (l *Listener) giveUp(m *making) {
	l.stats.GivenUp++
	m.gone = true
	if m.conn != nil {
		go m.conn.abort(context.DeadlineExceeded)
	}
}

// remind sets the timer, which calls checkLate, to fire after d. If the timer is set and fires
// sooner, or if d is 0, remind does nothing. mu is held.
func (l *Listener) remind(d time.Duration) {
	due := time.Now().Add(d)
	switch {
	case d == 0 || !l.due.IsZero() && !due.Before(l.due):
		return
	case l.timer == nil:
		l.timer = time.AfterFunc(d, l.checkLate)
	default:
		l.timer.Reset(d)
	}
	l.due = due
}

// checkLate gives up connections whose first message is late, and makes workers answer the requests
// that may now be answered.
func (l *Listener) checkLate() {
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

// fail records that a device will deliver no more requests. When all devices have failed, Accept
// returns the error.
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

// Accept returns the next connection, a [*Conn]. After Close the error is net.ErrClosed, and after
// the deadline it is os.ErrDeadlineExceeded. If the error is temporary, this host could not create
// a connection, for example because it could not lock memory or open a file. The peer's Dial waits
// or tries again, and Accept may be called again.
func (l *Listener) Accept() (net.Conn, error) {
	c, err := l.AcceptConn()
	if err != nil {
		return nil, err
	}
	return c, nil
}

// AcceptConn is like [Listener.Accept], but returns a [*Conn].
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

// SetDeadline sets the deadline of Accept. The zero time removes the deadline. A deadline also
// applies to calls that are already blocked.
func (l *Listener) SetDeadline(t time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return &net.OpError{Op: "set", Net: Network, Addr: l.Addr(), Err: net.ErrClosed}
	}
	l.deadline.set(&l.mu, t, l.changed.Broadcast)
	return nil
}

// Addr returns the address on which the Listener listens, of the type of [Conn.LocalAddr]. If it
// listens on several devices, it returns the address of the first.
func (l *Listener) Addr() net.Addr {
	if len(l.points) == 0 {
		return l.cfg.addr(Addr{})
	}
	p := l.points[0]
	return l.cfg.addr(Addr{addrPort(p.adapter.Addr(), uint64(p.psp.Qual()))})
}

// Close stops listening. Connections that Accept has returned stay open. Connections that wait for
// Accept are closed, and unanswered requests are refused.
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
