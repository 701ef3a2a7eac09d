package rdmanet

import (
	"maps"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/godat/godat/udat"
)

// dispatcherLength is the length in events of a new dispatcher's queue, if the device allows that
// many. The length grows with the number of connections if the device can resize a completion
// queue.
const dispatcherLength = 256

// handler handles the events of one endpoint. The dispatcher's leader calls it, one call at a time.
type handler interface {
	handle(ev *udat.Event)
	broken(err error) // there are no more events
}

// dispatcher handles the events of many connections. At any time at most one goroutine is the
// leader: it waits for events and handles the events of all connections. A call that blocks becomes
// the leader if there is none, so that no other goroutine needs to wake it. If calls are blocked
// and none of them is the leader, the leader is the keeper, a goroutine of the dispatcher. If no
// call is blocked, the keeper becomes the leader after lateLead, because credits and probes need an
// answer even while the program does something else. The table lists the next leader for each
// present leader (rows) and each event (columns). In the table, blocked is the number of blocked
// calls, timer is the timer of lateLead, and over means that there are no more events.
//
//	leader   lead, leadOrBlock   block            leave, or keep ends   timer
//	nobody   caller              keeper           -                     keeper; waits again if a call has led since
//	caller   refused, blocked+1  blocked+1        keeper if blocked,    -
//	                                              else nobody: timer
//	keeper   refused, blocked+1  blocked+1        nobody: timer         -
//	over     refused, blocked+1  blocked+1        over                  -
type dispatcher struct {
	pool *dispatchers
	evd  *udat.EVD

	mu       sync.Mutex
	handlers map[*udat.EP]handler
	leader   leader
	blocked  int         // waiting calls that do not lead, and connections that open, linger or hold back data
	woken    bool        // a blocked call has been woken since the keeper last checked
	late     *time.Timer // starts the keeper
	lateSet  bool
	ledSince bool // a call has led since the timer was set

	users int  // guarded by dispatchers.mu
	full  bool // no room for one more connection until one ends; guarded by dispatchers.mu

	// Used by the leader only.
	events [32]udat.Event
	last   handler
	lastEP *udat.EP
}

type leader uint8

const (
	leaderNobody leader = iota
	leaderCaller
	leaderKeeper
	leaderOver // there are no more events
)

// lateLead is the time without a leader after which the keeper becomes the leader. The timer is not
// set again each time a call leads, so the time may be twice as long.
const lateLead = time.Millisecond

// dispatcherConns is the largest number of connections of a dispatcher. Further connections use
// another dispatcher. A dispatcher is freed when its last connection ends.
const dispatcherConns = 512

// dispatchers are the dispatchers of a listener, or of all dialed connections of an adapter.
type dispatchers struct {
	adapter *adapter
	keeps   bool // until the call of end one dispatcher stays without users
	mu      sync.Mutex
	list    []*dispatcher
}

// end frees the dispatcher that has no users.
func (s *dispatchers) end() {
	s.mu.Lock()
	s.keeps = false
	s.mu.Unlock()
	for _, d := range s.list {
		d.users++
		s.put(d)
	}
}

// get returns the oldest dispatcher with room, or a new one if none has room. If forceNew is true
// it always returns a new one, for the case that the completion queues of the others cannot grow.
// The caller must call put or putFull.
func (s *dispatchers) get(forceNew bool) (*dispatcher, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.list {
		if d.users < dispatcherConns && !d.full && !forceNew && !d.over() {
			d.users++
			return d, nil
		}
	}
	const streams = udat.EVDDTO | udat.EVDRMRBind | udat.EVDConnection | udat.EVDSoftware
	evd, err := s.adapter.CreateEVD(min(dispatcherLength, s.adapter.queue), streams, nil)
	if err != nil {
		return nil, err
	}
	d := &dispatcher{pool: s, evd: evd, handlers: make(map[*udat.EP]handler), users: 1, leader: leaderKeeper}
	d.late = time.AfterFunc(lateLead, d.lateKeep)
	d.late.Stop()
	s.list = append(s.list, d)
	go d.keep()
	return d, nil
}

// put reduces the number of users of a dispatcher, and frees the dispatcher after the last user.
func (s *dispatchers) put(d *dispatcher) {
	s.mu.Lock()
	d.full = false
	d.users--
	last := d.users == 0 && !(s.keeps && len(s.list) == 1 && !d.over())
	if last {
		s.list = slices.DeleteFunc(s.list, func(other *dispatcher) bool { return other == d })
	}
	s.mu.Unlock()
	if last {
		d.end()
		d.evd.Free() // makes its Wait return
	}
}

// putFull is like put, for a dispatcher that had no room for the connection. The method get does
// not return this dispatcher until one of the dispatcher's connections ends.
func (s *dispatchers) putFull(d *dispatcher) {
	s.put(d)
	s.mu.Lock()
	d.full = true
	s.mu.Unlock()
}

func (d *dispatcher) end() {
	d.mu.Lock()
	d.leader = leaderOver
	d.late.Stop()
	d.mu.Unlock()
}

// over reports whether there will be no more events, so that no connection may be added.
func (d *dispatcher) over() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.leader == leaderOver
}

// lead makes the caller the leader if there is none. If it returns true, the caller must call
// leave.
func (d *dispatcher) lead() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.leader != leaderNobody {
		return false
	}
	d.leader = leaderCaller
	return true
}

// leadOrBlock makes the caller the leader if there is none, like lead. Otherwise it counts the
// caller as blocked and returns false.
func (d *dispatcher) leadOrBlock() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.leader != leaderNobody {
		d.blocked++
		return false
	}
	d.leader = leaderCaller
	return true
}

// block adds 1 to the number of blocked callers, for a caller that cannot lead. The caller must
// later call unblock.
func (d *dispatcher) block() {
	d.mu.Lock()
	d.blocked++
	d.startKeeper()
	d.mu.Unlock()
}

// unblock reduces the number of blocked callers by n.
func (d *dispatcher) unblock(n int) {
	d.mu.Lock()
	d.blocked -= n
	d.woken = true
	d.mu.Unlock()
}

// startKeeper starts the keeper if there is no leader; mu is held.
func (d *dispatcher) startKeeper() {
	if d.leader == leaderNobody {
		d.leader = leaderKeeper
		go d.keep()
	}
}

// leave ends the caller's role as the leader.
func (d *dispatcher) leave() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.leader != leaderCaller {
		return // over
	}
	d.leader = leaderNobody
	if d.blocked > 0 {
		d.startKeeper()
	} else {
		d.keepLater()
	}
}

// keepLater sets the timer that starts the keeper, unless the timer is already set; mu is held.
func (d *dispatcher) keepLater() {
	d.ledSince = true
	if !d.lateSet {
		d.lateSet, d.ledSince = true, false
		d.late.Reset(lateLead)
	}
}

// lateKeep runs when the timer fires. If a call has led since the timer was set, lateKeep sets the
// timer again. Otherwise it starts the keeper. So a call need not reset the timer each time it
// leads.
func (d *dispatcher) lateKeep() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lateSet = false
	if d.ledSince && d.leader == leaderNobody {
		d.keepLater()
	} else {
		d.startKeeper()
	}
}

// keep is the keeper. It leads until no call is blocked any more. When the last blocked call has
// been woken, the keeper ends, because that call becomes the leader itself when it blocks again.
func (d *dispatcher) keep() {
	for d.poll() {
		d.mu.Lock()
		woken := d.woken
		d.woken = false
		if woken && d.blocked == 0 && d.leader == leaderKeeper {
			d.leader = leaderNobody
			d.keepLater()
			d.mu.Unlock()
			return
		}
		d.mu.Unlock()
		if woken {
			runtime.Gosched() // lets the woken call run before the next poll
		}
	}
}

// poll waits for events and handles them. The caller must be the leader. It returns false if there
// will be no more events.
func (d *dispatcher) poll() bool {
	var err error
	var more int
	d.events[0], more, err = d.evd.Wait(udat.Infinite, 1)
	if err != nil {
		d.broken(err)
		return false
	}
	d.dispatch(&d.events[0])
	if more > 0 {
		d.dequeue()
	}
	return true
}

// dequeue handles the events that have arrived, without waiting. The caller must be the leader.
func (d *dispatcher) dequeue() {
	n, _ := d.evd.DequeueBatch(d.events[:]) // the error is ignored, because the next poll gets it too
	for i := range d.events[:n] {
		d.dispatch(&d.events[i])
	}
}

// dispatch calls the handler of the event's connection.
func (d *dispatcher) dispatch(ev *udat.Event) {
	if ev.Number == udat.EventSoftware { // posted by rouse to make poll return
		return
	}
	h := d.last
	if h == nil || d.lastEP != ev.EP {
		d.mu.Lock()
		h = d.handlers[ev.EP]
		d.mu.Unlock()
		if h == nil {
			return
		}
		d.last, d.lastEP = h, ev.EP
	}
	h.handle(ev)
}

// broken ends all connections, because there will be no more events: the dispatcher has been freed,
// or its device has failed.
func (d *dispatcher) broken(err error) {
	d.end()
	d.mu.Lock()
	all := slices.Collect(maps.Values(d.handlers))
	d.mu.Unlock()
	for _, h := range all {
		h.broken(err)
	}
}

func (d *dispatcher) add(ep *udat.EP, h handler) {
	d.mu.Lock()
	d.handlers[ep] = h
	d.mu.Unlock()
}

func (d *dispatcher) remove(ep *udat.EP) {
	d.mu.Lock()
	delete(d.handlers, ep)
	d.mu.Unlock()
}

// rouse makes the leader return from poll.
func (d *dispatcher) rouse() { d.evd.PostSE(udat.Event{Number: udat.EventSoftware}) }
