package rdmanet

import (
	"errors"
	"runtime"
	"slices"
	"sync"

	"github.com/godat/godat/udat"
)

// dispatcherLength is the length of a new dispatcher in events. It grows with its connections where
// the device can resize a completion queue.
const dispatcherLength = 1024

// dispatcher handles the events of many connections in one goroutine, which is parked while there
// are none.
type dispatcher struct {
	adapter *adapter
	evd     *udat.EVD
	request func(*udat.Event) // takes connection requests; nil: there are none

	mu    sync.Mutex
	conns map[*udat.EP]*Conn
	users int // guarded by dispatchers.mu
}

// dispatchers are those of a listener, or of all dialed connections of an adapter: one, and one
// more whenever the completion queues of the others are as long as the device allows.
type dispatchers struct {
	adapter *adapter
	request func(*udat.Event)
	mu      sync.Mutex
	list    []*dispatcher
}

// get returns the latest dispatcher, or a new one if there is none or fresh is set. The caller uses
// it until put.
func (s *dispatchers) get(fresh bool) (*dispatcher, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.list); n > 0 && !fresh {
		s.list[n-1].users++
		return s.list[n-1], nil
	}
	evd, err := s.adapter.CreateEVD(dispatcherLength, udat.EVDDTO|udat.EVDConnection|udat.EVDCR|udat.EVDSoftware, nil)
	if err != nil {
		return nil, err
	}
	d := &dispatcher{adapter: s.adapter, evd: evd, request: s.request, conns: make(map[*udat.EP]*Conn), users: 1}
	s.list = append(s.list, d)
	go d.run()
	return d, nil
}

// put ends the use of a dispatcher.
func (s *dispatchers) put(d *dispatcher) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d.users--; d.users > 0 {
		return
	}
	s.list = slices.DeleteFunc(s.list, func(other *dispatcher) bool { return other == d })
	d.evd.Free() // its Wait returns
}

func (d *dispatcher) run() {
	var events [32]udat.Event
	var last *Conn
	for {
		var err error
		if events[0], _, err = d.evd.Wait(udat.Infinite, 1); err != nil {
			return // freed, or the adapter is gone
		}
		woken := d.handle(&events[0], &last)
		for {
			n, err := d.evd.DequeueBatch(events[:])
			for i := range events[:n] {
				woken = d.handle(&events[i], &last) || woken
			}
			if errors.Is(err, udat.ErrQueueEmpty) {
				break
			}
			if err != nil {
				return
			}
		}
		if woken {
			runtime.Gosched() // before this goroutine polls for the next event
		}
	}
}

// handle hands the event to its connection and reports whether that has woken a call.
func (d *dispatcher) handle(ev *udat.Event, last **Conn) (woken bool) {
	if ev.Number == udat.EventConnectionRequest {
		d.request(ev)
		return true
	}
	c := *last
	if c == nil || c.ep != ev.EP {
		d.mu.Lock()
		c = d.conns[ev.EP]
		d.mu.Unlock()
		if c == nil {
			return false
		}
		*last = c
	}
	return c.handle(ev)
}

func (d *dispatcher) add(c *Conn) {
	d.mu.Lock()
	d.conns[c.ep] = c
	d.mu.Unlock()
}

func (d *dispatcher) remove(c *Conn) {
	d.mu.Lock()
	delete(d.conns, c.ep)
	d.mu.Unlock()
}
