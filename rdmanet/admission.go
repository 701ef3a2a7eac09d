package rdmanet

import (
	"container/list"
	"net/netip"
	"time"

	"github.com/godat/godat/udat"
)

// admission decides which connection requests of a Listener are answered, and when. A connection is
// in the making from the answer until the peer's first message. A hostile peer may never send this
// message, so that the connection's memory is in use for nothing. Therefore the number of
// connections in the making is limited, and one source address may have at most half of them. When
// the limit is reached, the next request replaces the oldest of these connections, if the peer of
// that connection has had enough time to send: see graceTime. Listener.mu guards an admission.
type admission struct {
	backlog int
	pending list.List          // *request: not answered, oldest first
	making  list.List          // *making, oldest first
	waiting map[netip.Addr]int // number of pending requests, by source
	halves  map[netip.Addr]int // number of connections in the making, by source
}

// request is a connection request that has not been answered.
type request struct {
	point *point
	cr    *udat.CR
	local Addr
	from  netip.Addr
}

// making is a connection whose peer has not sent its first message. conn is nil until the
// connection has been created.
type making struct {
	conn  *Conn
	from  netip.Addr
	since time.Time
	at    *list.Element // element of admission.making; nil: no longer in the making
	gone  bool          // the connection has been given up
}

const (
	// defaultBacklog is the default of ListenConfig.Backlog.
	defaultBacklog = 4096
	maxBacklog     = 1 << 16
	// graceTime is how long a connection in the making is safe from being replaced by a waiting
	// request. The more requests wait, the shorter this time is, down to graceLeast.
	graceTime  = time.Second
	graceLeast = 200 * time.Millisecond
	// helloTime is how long a connection waits for its first message. After that the listener gives up
	// the connection, even if no request waits.
	helloTime = 15 * time.Second
)

// The method most returns the largest number of connections in the making.
func (a *admission) most() int { return max(a.backlog/4, 4) }

// ask adds a request to the pending ones. It returns false if too many requests are pending, or if
// too many of them come from the same source address.
func (a *admission) ask(r *request) bool {
	if a.pending.Len() >= a.backlog || a.waiting[r.from] >= max(a.backlog*7/8, 1) {
		return false
	}
	a.pending.PushBack(r)
	count(&a.waiting, r.from, 1)
	return true
}

// next removes and returns the oldest request that may be answered now. It also returns a new entry
// m for the request's connection, which is in the making from now on. The parameter open is the
// number of connections that wait for Accept. The result victim, unless nil, is the connection that
// the new one replaces: the caller must give it up. If no request may be answered now, r is nil,
// and the result wait is the time after which one may be answered, or 0 if no request may be
// answered before another event, such as a call of Accept.
func (a *admission) next(open int, now time.Time) (r *request, m, victim *making, wait time.Duration) {
	if open+a.making.Len() >= a.backlog+a.most() {
		return nil, nil, nil, 0
	}
	grace := max(graceTime/time.Duration(1+a.pending.Len()/a.most()), graceLeast)
	for e := a.pending.Front(); e != nil; e = e.Next() {
		r := e.Value.(*request)
		victim, room := a.room(r.from)
		if !room {
			left := grace - now.Sub(victim.since)
			if left > 0 {
				if wait == 0 || left < wait {
					wait = left
				}
				continue
			}
			a.made(victim)
		}
		a.pending.Remove(e)
		count(&a.waiting, r.from, -1)
		m := &making{from: r.from, since: now}
		m.at = a.making.PushBack(m)
		count(&a.halves, r.from, 1)
		return r, m, victim, 0
	}
	return nil, nil, nil, wait
}

// room reports whether there may be one more connection in the making from the given source
// address. If not, the result victim is the oldest connection that the new one may replace.
func (a *admission) room(from netip.Addr) (victim *making, ok bool) {
	own := a.halves[from] >= a.most()/2
	if !own && a.making.Len() < a.most() {
		return nil, true
	}
	for e := a.making.Front(); e != nil; e = e.Next() {
		if m := e.Value.(*making); !own || m.from == from {
			return m, false
		}
	}
	return nil, true
}

// made records that a connection is no longer in the making.
func (a *admission) made(m *making) {
	if m.at != nil {
		a.making.Remove(m.at)
		m.at = nil
		count(&a.halves, m.from, -1)
	}
}

// The method late removes the connections that have been in the making for helloTime, and returns
// them. The result wait is the time until the oldest remaining connection reaches helloTime, or 0
// if none remains.
func (a *admission) late(now time.Time) (late []*making, wait time.Duration) {
	for e := a.making.Front(); e != nil; e = a.making.Front() {
		m := e.Value.(*making)
		if left := helloTime - now.Sub(m.since); left > 0 {
			return late, left
		}
		a.made(m)
		late = append(late, m)
	}
	return late, 0
}

// The method rest removes and returns all pending requests and all connections in the making.
func (a *admission) rest() (requests []*request, connections []*making) {
	for e := a.pending.Front(); e != nil; e = e.Next() {
		requests = append(requests, e.Value.(*request))
	}
	a.pending.Init()
	a.waiting = nil
	for e := a.making.Front(); e != nil; e = a.making.Front() {
		connections = append(connections, e.Value.(*making))
		a.made(e.Value.(*making))
	}
	return requests, connections
}

// count adds n to the counter of k. It deletes the counter if it becomes zero.
func count(m *map[netip.Addr]int, k netip.Addr, n int) {
	if *m == nil {
		*m = make(map[netip.Addr]int)
	}
	if (*m)[k] += n; (*m)[k] == 0 {
		delete(*m, k)
	}
}
