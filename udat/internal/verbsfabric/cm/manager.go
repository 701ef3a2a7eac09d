package cm

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/godat/godat/cverbs"
	"github.com/godat/godat/udat/internal/fabric"
)

// LingerTime is how long the id of a closed connection is kept if the peer does not answer the
// disconnect.
const LingerTime = 5 * time.Second

// Manager manages the connections and listeners of an open port.
type Manager struct {
	destroyer
	port *Port
	ch   *cverbs.EventChannel
	stop context.CancelFunc // ends the event goroutine
	done sync.WaitGroup

	mu       sync.Mutex // a leaf: no other lock is taken under it
	closed   bool
	removed  bool
	users    int                   // listeners and connections that their owners have not closed
	posted   []func()              // functions for the event goroutine to call, in order
	conns    map[handler]struct{}  // connections that their owners have not closed
	requests map[dropper]struct{}  // requests that nobody has answered
	retired  map[dropper]time.Time // closed connections whose peer has not answered yet, kept until this time
	reapAt   time.Time             // no later than the first time in retired; zero: none
}

// handler handles the events of its id, on the event goroutine.
type handler interface{ Handle(ev cverbs.CMEvent) }

// arriver is a handler whose id receives connection requests: a listener.
type arriver interface{ arrive(ev cverbs.CMEvent) }

// dropper is a connection that has no owner, or a request without an answer. The method drop ends
// it.
type dropper interface{ drop() }

// Shut makes the manager refuse new listeners and connections. It returns ErrInUse while there are
// listeners or connections.
func (m *Manager) Shut() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.closed:
		return fabric.ErrClosed
	case m.users > 0:
		return fmt.Errorf("%w: device %s still has %d listeners and connections", fabric.ErrInUse, m.port.Attr.Info.Name,
			m.users)
	}
	m.closed = true
	return nil
}

// Reopen undoes Shut.
func (m *Manager) Reopen() {
	m.mu.Lock()
	m.closed = false
	m.mu.Unlock()
}

// IsShut reports whether Shut has succeeded.
func (m *Manager) IsShut() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.closed
}

// Close ends the event goroutine. It destroys at once the closed connections that still wait for
// the peer's answer, and rejects unanswered requests.
func (m *Manager) Close() error {
	m.stop()
	m.done.Wait()
	m.mu.Lock() // a request may be rejected meanwhile
	left := slices.AppendSeq(slices.Collect(maps.Keys(m.requests)), maps.Keys(m.retired))
	m.mu.Unlock()
	closed := make(chan error, 1)
	go func() {
		for _, c := range left {
			c.drop()
		}
		m.calls.Wait()
		closed <- m.ch.Close()
	}()
	return atMost(closeTime, closed)
}

// ReplaceDestroy replaces the function that destroys an id. It is for tests.
func (m *Manager) ReplaceDestroy(destroy func(*cverbs.CMID) error) { m.end = destroy }

// reserve counts a listener or connection that is about to be made. It returns ErrClosed after
// Shut. Package cverbs counts all other objects.
func (m *Manager) reserve() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return fabric.ErrClosed
	}
	m.users++
	return nil
}

// release undoes reserve.
func (m *Manager) release() {
	m.mu.Lock()
	m.users--
	m.mu.Unlock()
}

func (m *Manager) add(c handler) {
	m.mu.Lock()
	m.conns[c] = struct{}{}
	m.mu.Unlock()
}

// remove forgets a connection that its owner has closed.
func (m *Manager) remove(c handler) {
	m.mu.Lock()
	delete(m.conns, c)
	m.users--
	m.mu.Unlock()
}

// A call of owned returns the connections that their owners have not closed.
func (m *Manager) owned() []handler {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Keys(m.conns))
}

func (m *Manager) asked(c dropper) {
	m.mu.Lock()
	m.requests[c] = struct{}{}
	m.mu.Unlock()
}

func (m *Manager) answered(c dropper) {
	m.mu.Lock()
	delete(m.requests, c)
	m.mu.Unlock()
}

// retire keeps the id of a closed connection until its peer has answered the disconnect, or
// LingerTime has passed.
func (m *Manager) retire(c dropper) {
	until := time.Now().Add(LingerTime)
	m.mu.Lock()
	m.retired[c] = until
	first := m.reapAt.IsZero()
	if first {
		m.reapAt = until
	}
	m.mu.Unlock()
	if first {
		m.ch.Wake()
	}
}

func (m *Manager) unretire(c dropper) {
	m.mu.Lock()
	delete(m.retired, c)
	m.mu.Unlock()
}

func (m *Manager) nextReap() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.reapAt
}

// reap destroys the retired connections whose time has passed.
func (m *Manager) reap(now time.Time) {
	m.mu.Lock()
	if m.reapAt.IsZero() || now.Before(m.reapAt) {
		m.mu.Unlock()
		return
	}
	var over []dropper
	m.reapAt = time.Time{}
	for c, until := range m.retired {
		if !now.Before(until) {
			over = append(over, c)
			delete(m.retired, c)
		} else if m.reapAt.IsZero() || until.Before(m.reapAt) {
			m.reapAt = until
		}
	}
	m.mu.Unlock()
	for _, c := range over {
		c.drop()
	}
}
