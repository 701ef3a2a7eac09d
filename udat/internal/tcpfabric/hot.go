package tcpfabric

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/godat/godat/udat/internal/softnic"
)

// hotSet is a completion queue's set of hot links. The caller that polls the queue reads the
// sockets of hot links itself, so that its completions need no other goroutine. A link becomes hot
// after two consecutive events of its socket if the queue was being polled before each of the two.
// No link becomes hot while the queue is armed. A hot link becomes cool (no longer hot) when the
// caller is about to wait, or has not polled between two ticks (tickEvery).
type hotSet struct {
	dev    *Device
	queue  *softnic.CQ
	owing  atomic.Pointer[link] // a link that owes an acknowledgement, which the caller's answer may carry
	polls  atomic.Uint32
	links  [4]atomic.Pointer[link]
	latest atomic.Pointer[link] // the link that sent last; polls read its socket for acknowledgements even if it is cool
	count  atomic.Int32

	mu    sync.Mutex    // held to change links
	ticks atomic.Uint32 // the value of polls at the last tick
}

// A queue counts as polled if it was polled at least manyPolls times between two events of a
// socket.
const manyPolls = 4

// setOf returns the set of a queue, which it creates the first time.
func (d *Device) setOf(c *softnic.CQ) *hotSet {
	d.hotMu.Lock()
	defer d.hotMu.Unlock()
	if s, _ := c.Idler().(*hotSet); s != nil {
		return s
	}
	s := &hotSet{dev: d, queue: c}
	c.SetIdler(s)
	return s
}

// Idle reads the sockets of the set's hot links. At every 16th poll it also reads the sockets of
// the hot links of other queues, because one caller may poll several queues.
func (s *hotSet) Idle() (got bool) {
	if s.polls.Add(1)%othersEvery == 0 && s.dev.hotMu.TryLock() {
		for _, other := range s.dev.heated {
			if other != s {
				other.pollAll()
			}
		}
		s.dev.hotMu.Unlock()
	}
	if s.count.Load() > 0 {
		got = s.pollAll()
	}
	if l := s.latest.Load(); l != nil && l.hot.Load() != s {
		if sends := l.qp.Sends(); sends.Len() > 0 {
			before := sends.Len()
			got = s.pollLatest(l) || got
			l.run() // another goroutine may have read the socket without running the link yet
			got = got || sends.Len() < before
		}
	}
	if !got {
		s.pay()
	}
	return got
}

// pollLatest reads the socket of l, the link that has sent last.
func (s *hotSet) pollLatest(l *link) bool {
	got, _ := l.receive(false) // if another goroutine is reading, waits for it: it may read what the caller needs
	switch {
	case !got:
	case l.hot.Load() == nil && l.wins.Add(1) > 1 && s.add(l):
		s.dev.heat(s)
	default: // the socket's event may not come, because the socket has been read
		l.owe(s)
	}
	return got
}

// othersEvery is the number of polls of a queue after which Idle also polls for other queues.
const othersEvery = 16

func (s *hotSet) pollAll() (got bool) {
	for i := range s.links {
		if l := s.links[i].Load(); l != nil && s.poll(l) {
			got = true
		}
	}
	return got
}

// Armed sends the acknowledgements that are due.
func (s *hotSet) Armed() {
	s.pay()
	s.each((*link).acknowledgeNow)
}

// Sleep makes all links of the set cool: the poller reads their sockets again.
func (s *hotSet) Sleep() {
	s.pay()
	s.each(func(l *link) {
		l.wins.Store(0)
		l.cool()
		l.acknowledgeNow()
	})
}

// each calls f for each link of the set.
func (s *hotSet) each(f func(*link)) {
	if s.count.Load() == 0 {
		return
	}
	for i := range s.links {
		if l := s.links[i].Load(); l != nil {
			f(l)
		}
	}
}

// Lead, Serve and Kick let a Wait of the queue wait for the sockets of the device: see poller.
func (s *hotSet) Lead() <-chan struct{} { return s.dev.poller.ask() }

func (s *hotSet) Serve(deadline time.Time, over func() bool) {
	s.dev.poller.serve(s.queue, deadline, over)
}

func (s *hotSet) Kick() bool { return s.dev.poller.kick(s.queue) }

// pay sends the acknowledgement that a call of link.owe has postponed.
func (s *hotSet) pay() {
	if l := s.owing.Load(); l != nil && s.owing.CompareAndSwap(l, nil) {
		l.acknowledgeNow()
	}
}

// owe postpones the link's acknowledgement of what has been received until the caller's next poll
// or the next tick. If another link of the set has postponed one already, owe does not postpone,
// but sends this link's acknowledgement at once.
func (l *link) owe(s *hotSet) {
	if !l.due() {
		return
	}
	if l.sock.pollable() && (s.owing.CompareAndSwap(nil, l) || s.owing.Load() == l) {
		s.dev.heat(s)
		return
	}
	l.acknowledgeNow()
}

func (l *link) acknowledgeNow() {
	if l.due() {
		l.ackNow.Store(true)
		l.run()
	}
}

// poll reads the socket. If nothing has come, poll sends an acknowledgement that is still due,
// because no answer of the caller has carried it. poll also sends such an acknowledgement if the
// link is no longer hot, because no other poll follows then, and the socket's event finds nothing
// to read.
func (s *hotSet) poll(l *link) bool {
	got, _ := l.receive(true)
	if !got || l.hot.Load() != s {
		l.acknowledgeNow()
	}
	return got
}

// warm counts an event of the socket, and makes the link hot after two events with polls before
// them.
func (l *link) warm() {
	if !l.live.Load() || !l.qp.Connected() || l.hot.Load() != nil {
		return
	}
	for i, s := range l.polled {
		polls := s.polls.Load()
		polled := polls-l.seen[i] >= manyPolls
		l.seen[i] = polls
		if polled {
			if l.wins.Add(1) > 1 && s.add(l) {
				s.dev.heat(s)
			}
			return
		}
	}
	l.wins.Store(0)
}

// add adds the link to the set. It returns false if the set is full, if the link is in another set,
// or if the queue is armed. A caller that has armed the queue may sleep until the notification
// comes, and does not read the sockets meanwhile.
func (s *hotSet) add(l *link) bool {
	if !l.sock.pollable() || s.queue.Armed() || !s.put(l) {
		return false
	}
	if s.queue.Armed() { // Sleep may have come before put
		l.cool()
		return false
	}
	return true
}

// put puts the link into a free place of the set.
func (s *hotSet) put(l *link) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.links {
		if s.links[i].Load() == nil {
			if !l.hot.CompareAndSwap(nil, s) {
				return false
			}
			s.links[i].Store(l)
			s.count.Add(1)
			l.sock.watch(false)
			return true
		}
	}
	return false
}

// cool removes the link from its set.
func (l *link) cool() {
	s := l.hot.Load()
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.links {
		if s.links[i].CompareAndSwap(l, nil) {
			s.count.Add(-1)
			l.hot.Store(nil)
			l.sock.watch(true)
		}
	}
}

// heat adds the set to those that the method tick checks, and asks the poller to call tick.
func (d *Device) heat(s *hotSet) {
	d.hotMu.Lock()
	defer d.hotMu.Unlock()
	if slices.Contains(d.heated, s) {
		return
	}
	s.ticks.Store(s.polls.Load() - 1)
	d.heated = append(d.heated, s)
	d.poller.again()
}

// tick cools the links of each set that was not polled since the last tick, and sends the
// acknowledgements that are due. It reports whether another tick is needed.
func (d *Device) tick() (again bool) {
	d.hotMu.Lock()
	sets := append(d.ticking[:0], d.heated...)
	d.hotMu.Unlock()
	for _, s := range sets {
		polls := s.polls.Load()
		if polls == s.ticks.Load() {
			s.Sleep()
		}
		s.pay()
		s.ticks.Store(polls)
	}
	d.ticking = sets
	d.hotMu.Lock()
	defer d.hotMu.Unlock()
	d.heated = slices.DeleteFunc(d.heated, func(s *hotSet) bool { return s.count.Load() == 0 && s.owing.Load() == nil })
	return len(d.heated) > 0
}

// readable, writable and rest implement events.
func (l *link) readable(end bool) (more bool) {
	if end {
		l.ending.Store(true)
	}
	s := l.polled[ofReceives]
	waits := s.queue.Waiting()
	l.attended = !waits && s.polls.Load() != l.seen[ofReceives]
	_, more = l.receive(false)
	if waits {
		l.attended = l.heard.delivered.Load() > l.sent.executed.Load()
	}
	l.warm()
	return more
}

func (l *link) writable() { l.run() }

// The method rest acknowledges the requests that have been received. If a caller polls, or if a
// receive has completed for a caller that waits, the acknowledgement is sent later: with that
// caller's answer, at its next poll, or at the next tick. A write that completes no receive does
// not wake a caller that waits, so it is acknowledged at once.
func (l *link) rest() {
	switch {
	case l.hot.Load() != nil:
	case l.attended:
		l.owe(l.polled[ofReceives])
	default:
		l.acknowledgeNow()
	}
}

// Posted tells the peer of receives: at once if the peer waits for them, and soon if the peer has
// used half of those that it knows.
func (l *link) Posted() {
	if !l.live.Load() || !l.own {
		return
	}
	if l.awaited() {
		l.run()
	} else {
		l.owe(l.polled[ofReceives])
	}
}
