package engine

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/godat/godat/internal/perf/result"
)

// lobbySize is the default of Lobby.Size.
const lobbySize = 256

// Lobby keeps the connections whose clients have not sent a hello yet, oldest first. If it is full,
// Enter closes the oldest connection, so that silent clients do not keep others out. The methods
// may be called concurrently.
type Lobby struct {
	Size int // largest number of connections; 0: 256

	mu    sync.Mutex
	conns []net.Conn
}

// Enter adds a connection.
func (l *Lobby) Enter(conn net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.conns) == cmp.Or(l.Size, lobbySize) {
		l.conns[0].Close()
		l.conns = slices.Delete(l.conns, 0, 1)
	}
	l.conns = append(l.conns, conn)
}

// Leave removes a connection, if it is in the lobby.
func (l *Lobby) Leave(conn net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.conns, conn); i >= 0 {
		l.conns = slices.Delete(l.conns, i, i+1)
	}
}

func (l *Lobby) closeAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, conn := range l.conns {
		conn.Close()
	}
}

// seats limits the number of clients that a server serves at the same time.
type seats struct {
	mu    sync.Mutex
	most  int
	taken map[*seat]struct{}
}

// seat is the right of one client to be served.
type seat struct {
	all   *seats
	end   func(error) // ends the client's conversation
	since time.Time   // when the client became idle; zero while it measures
	group uint64      // clients with the same number measure together; 0: alone
	other bool        // a client of another group has measured during the current measurement
}

// idleGrace is how long a client must be idle before another client can take its seat.
const idleGrace = 5 * time.Second

// errGaveWay is the error of a client that has lost its seat.
var errGaveWay = fmt.Errorf("this server is full, and the client measured nothing for %v: its place went to "+
	"another one",
	idleGrace)

// take returns a seat. If all seats are taken, it takes the seat of the client that has been idle
// longest, and ends that client's conversation. It returns an error if no client has been idle for
// idleGrace.
func (s *seats) take(end func(error), group uint64) (*seat, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.taken) >= s.most {
		var longest *seat
		for one := range s.taken {
			if !one.since.IsZero() && (longest == nil || one.since.Before(longest.since)) {
				longest = one
			}
		}
		if longest == nil || time.Since(longest.since) < idleGrace {
			return nil, fmt.Errorf("this server is full: %s (--max-clients)", result.Count(s.most, "client"))
		}
		delete(s.taken, longest)
		longest.end(errGaveWay)
	}
	one := &seat{all: s, end: end, since: time.Now(), group: group}
	s.taken[one] = struct{}{}
	return one, nil
}

// leave gives the seat back. It does nothing if another client has taken the seat. A nil seat, of a
// server without a limit, is allowed.
func (x *seat) leave() {
	if x == nil {
		return
	}
	x.all.mu.Lock()
	defer x.all.mu.Unlock()
	delete(x.all.taken, x)
}

// measures is called when the client begins a measurement (yes is true) and when the client becomes
// idle (yes is false).
func (x *seat) measures(yes bool) {
	if x == nil {
		return
	}
	x.all.mu.Lock()
	defer x.all.mu.Unlock()
	x.since, x.other = time.Time{}, false
	if !yes {
		x.since = time.Now()
		return
	}
	for one := range x.all.taken {
		if one != x && one.since.IsZero() && (x.group == 0 || one.group != x.group) {
			one.other, x.other = true, true
		}
	}
}

// disturbed reports whether a client of another group has measured during the current measurement.
func (x *seat) disturbed() bool {
	if x == nil {
		return false
	}
	x.all.mu.Lock()
	defer x.all.mu.Unlock()
	return x.other
}

func (s *seats) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.taken)
}

var errShutdown = errors.New("the server is shutting down")
