package rdmanet

import (
	"container/list"
	"net/netip"
	"time"

	"github.com/godat/godat/udat"
)

// admission decides which connection requests of a Listener are answered, and when. Strangers may
// send requests and never the first message: each costs the memory of a connection until it is
// given up. So only some connections are in the making at a time, and no source has more than half
// of them. When there is no room, the oldest of them is given up for the next request, once it has
// had its time.
// Listener.mu guards all of it.
type admission struct {
	backlog int
	pending list.List          // *request: without an answer, oldest first
	making  list.List          // *making, oldest first
	waiting map[netip.Addr]int // of pending, by source
	halves  map[netip.Addr]int // of making
}

// request is a connection request without an answer.
type request struct {
	point *point
	cr    *udat.CR
	local Addr
	from  netip.Addr
}

// making is a connection that has no first message yet; conn is nil until there is one.
type making struct {
	conn  *Conn
	from  netip.Addr
	since time.Time
	at    *list.Element // nil: it has been made, or given up
	gone  bool          // given up
}

const (
	// defaultBacklog is the number of connections that may wait for an answer, and for Accept.
	defaultBacklog = 4096
	maxBacklog     = 1 << 16
	// graceTime is how long a connection has for its first message while requests wait for its place.
	// The more of them wait, the shorter is the time, down to graceLeast.
	graceTime  = time.Second
	graceLeast = 200 * time.Millisecond
	// helloTime is the longest that any connection may wait for its first message.
	helloTime = 15 * time.Second
)

// most is the number of connections that may be in the making.
func (a *admission) most() int { return max(a.backlog/4, 4) }

// ask takes a request, or refuses it: too many wait, or too many of its source.
func (a *admission) ask(r *request) bool {
	if a.pending.Len() >= a.backlog || a.waiting[r.from] >= max(a.backlog*7/8, 1) {
		return false
	}
	a.pending.PushBack(r)
	count(&a.waiting, r.from, 1)
	return true
}

// next takes the oldest request that may be answered now, and counts it as in the making; open is
// the number of connections that wait for Accept. victim, unless nil, is the connection that gives
// way for it. If no request may be answered now, wait is the time until one may be; 0 means that
// this needs a change, not time.
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

// room reports whether one more of a source may be in the making; if not, victim is the oldest that
// stands in its way.
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

// made removes a connection that has been made or given up from those in the making.
func (a *admission) made(m *making) {
	if m.at != nil {
		a.making.Remove(m.at)
		m.at = nil
		count(&a.halves, m.from, -1)
	}
}

// late removes and returns the connections that have waited for their first message for helloTime;
// wait is the time until the next one is late.
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

// rest removes and returns all requests and connections.
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

// count adds n to the counter of k, which it deletes when it is zero.
func count(m *map[netip.Addr]int, k netip.Addr, n int) {
	if *m == nil {
		*m = make(map[netip.Addr]int)
	}
	if (*m)[k] += n; (*m)[k] == 0 {
		delete(*m, k)
	}
}
