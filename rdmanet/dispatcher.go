package rdmanet

import (
	"errors"
	"maps"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/godat/godat/udat"
)

// dispatcherLength is the length of a new dispatcher in events. It grows with its connections where
// the device can resize a completion queue.
const dispatcherLength = 1024

// dispatcher has the events of many connections. At any time one goroutine leads: it waits for
// events and handles them, of all connections. A call that blocks leads if no other does, so that
// nobody needs to wake it. If calls are blocked and none leads, the keeper does, a goroutine of the
// dispatcher. If no call is blocked the keeper leads after lateLead: credits and keep-alives need
// an answer also while the program does something else.
type dispatcher struct {
	pool *dispatchers
	evd  *udat.EVD

	mu      sync.Mutex
	conns   map[*udat.EP]*Conn
	led     bool
	blocked int // calls, and connections with data that is held back, which wait for events and do not lead
	woken   bool
	late    *time.Timer // starts the keeper
	waits   bool        // late has been set and has not run
	left    bool        // a call has led since
	over    bool

	users int // guarded by dispatchers.mu

	// The leader's.
	events [32]udat.Event
	last   *Conn
}

// lateLead is how long a dispatcher may have no leader before the keeper leads; the timer is
// coarse, so it may be twice as long.
const lateLead = time.Millisecond

// dispatchers are those of a listener, or of all dialed connections of an adapter: one, and one
// more whenever the completion queues of the others are as long as the device allows.
type dispatchers struct {
	adapter *adapter
	request func(*udat.Event) // takes connection requests; nil: there are none
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
	d := &dispatcher{pool: s, evd: evd, conns: make(map[*udat.EP]*Conn), users: 1, led: true}
	d.late = time.AfterFunc(lateLead, d.leadLate)
	d.late.Stop()
	s.list = append(s.list, d)
	go d.keep()
	return d, nil
}

// put ends the use of a dispatcher.
func (s *dispatchers) put(d *dispatcher) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d.users--; d.users > 0 {
		return
	}
	s.forget(d)
	d.mu.Lock()
	d.over = true
	d.late.Stop()
	d.mu.Unlock()
	d.evd.Free() // its Wait returns
}

// forget makes get not return d any more; mu is held.
func (s *dispatchers) forget(d *dispatcher) {
	s.list = slices.DeleteFunc(s.list, func(other *dispatcher) bool { return other == d })
}

// lead makes the caller the leader, if there is none: poll and leave follow.
func (d *dispatcher) lead() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.led {
		return false
	}
	d.led = true
	return true
}

// leadOrBlock is lead, or counts the caller as blocked.
func (d *dispatcher) leadOrBlock() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.led {
		d.blocked++
		return false
	}
	d.led = true
	return true
}

// block counts one more that is blocked and cannot lead; unblock ends that.
func (d *dispatcher) block() {
	d.mu.Lock()
	d.blocked++
	d.attend()
	d.mu.Unlock()
}

// unblock says that n that were blocked need not wait any longer.
func (d *dispatcher) unblock(n int) {
	d.mu.Lock()
	d.blocked -= n
	d.woken = true
	d.mu.Unlock()
}

// attend starts the keeper if there is no leader; mu is held.
func (d *dispatcher) attend() {
	if !d.led && !d.over {
		d.led = true
		go d.keep()
	}
}

// leave ends the caller's lead.
func (d *dispatcher) leave() {
	d.mu.Lock()
	d.led = false
	if d.blocked > 0 {
		d.attend()
	} else {
		d.leadLater()
	}
	d.mu.Unlock()
}

// leadLater sets the timer; mu is held.
func (d *dispatcher) leadLater() {
	d.left = true
	if !d.waits && !d.over {
		d.waits, d.left = true, false
		d.late.Reset(lateLead)
	}
}

// leadLate runs lateLead after a call has led.
func (d *dispatcher) leadLate() {
	d.mu.Lock()
	d.waits = false
	if d.left && !d.led {
		d.leadLater()
	} else {
		d.attend()
	}
	d.mu.Unlock()
}

// keep leads until no call is blocked any more: the one that was woken last will lead.
func (d *dispatcher) keep() {
	for d.poll() {
		d.mu.Lock()
		woken := d.woken
		d.woken = false
		if woken && d.blocked == 0 {
			d.led = false
			d.leadLater()
			d.mu.Unlock()
			return
		}
		d.mu.Unlock()
		if woken {
			runtime.Gosched() // before this goroutine polls for the next event
		}
	}
}

// poll waits for events and handles them; the caller leads. It reports whether the dispatcher is of
// further use.
func (d *dispatcher) poll() bool {
	var err error
	var more int
	d.events[0], more, err = d.evd.Wait(udat.Infinite, 1)
	if err != nil {
		d.broken(err)
		return false
	}
	d.handle(&d.events[0])
	if more > 0 {
		d.dequeue()
	}
	return true
}

// dequeue handles events that are there; the caller leads.
func (d *dispatcher) dequeue() {
	n, err := d.evd.DequeueBatch(d.events[:])
	for i := range d.events[:n] {
		d.handle(&d.events[i])
	}
	if err != nil && !errors.Is(err, udat.ErrQueueEmpty) {
		d.broken(err)
	}
}

// handle hands the event to its connection.
func (d *dispatcher) handle(ev *udat.Event) {
	switch ev.Number {
	case udat.EventConnectionRequest:
		d.pool.request(ev)
		return
	case udat.EventSoftware: // a call that leads must look at its connection
		return
	}
	c := d.last
	if c == nil || c.ep != ev.EP {
		d.mu.Lock()
		c = d.conns[ev.EP]
		d.mu.Unlock()
		if c == nil {
			return
		}
		d.last = c
	}
	c.handle(ev)
}

// broken ends all connections: there are no more events. The dispatcher has been freed, or its
// device is gone.
func (d *dispatcher) broken(err error) {
	d.pool.mu.Lock()
	d.pool.forget(d)
	d.pool.mu.Unlock()
	d.mu.Lock()
	d.over = true
	conns := slices.Collect(maps.Values(d.conns))
	d.mu.Unlock()
	for _, c := range conns {
		c.mu.Lock()
		c.fail(err)
		c.mu.Unlock()
	}
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

// waiters are the calls that wait for the connection to change; Conn.mu guards them.
type waiters struct {
	cond  sync.Cond
	n     int  // on cond
	leads bool // another call waits as the dispatcher's leader
}

// wait waits until w is woken, or returns early; c.mu is held, and free meanwhile.
func (c *Conn) wait(w *waiters) {
	if !c.d.leadOrBlock() {
		w.n++
		w.cond.Wait()
		return
	}
	w.leads = true
	c.mu.Unlock()
	c.d.poll()
	c.d.leave()
	c.mu.Lock()
	w.leads = false
}

// wake makes the calls that wait look at the connection; c.mu is held.
func (c *Conn) wake(w *waiters) {
	if w.n > 0 {
		c.d.unblock(w.n)
		w.n = 0
		w.cond.Broadcast()
	}
	if w.leads && !c.handling { // else the leader is here, or has handled the event of another
		c.d.evd.PostSE(udat.Event{Number: udat.EventSoftware})
	}
}
