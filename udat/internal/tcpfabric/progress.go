package tcpfabric

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/godat/godat/udat/internal/softnic"
)

// progress makes the completions of a queue in the calls of its program: a poll of the queue leads
// the device's poller for a moment, and a Wait leads while it waits (see poller). So the
// completions need no other goroutine.
type progress struct {
	dev    *Device
	queue  *softnic.CQ
	owing  atomic.Pointer[link] // a link that owes an acknowledgement, which the caller's answer may carry
	listed atomic.Bool          // it is in Device.owing
	polls  atomic.Uint32
	misses atomic.Uint32        // polls while the keeper led
	only   atomic.Pointer[link] // the only link that uses the queue; nil: none, or there have been several

	mu    sync.Mutex
	links int // that use the queue
}

// progressOf returns the progress of a queue, which it creates the first time.
func (d *Device) progressOf(c *softnic.CQ) *progress {
	d.progressMu.Lock()
	defer d.progressMu.Unlock()
	if s, _ := c.Idler().(*progress); s != nil {
		return s
	}
	s := &progress{dev: d, queue: c}
	c.SetIdler(s)
	return s
}

// join adds a link to those that use the queue.
func (s *progress) join(l *link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.links++; s.links == 1 && l.sock.pollable() {
		s.only.Store(l)
	} else {
		s.only.Store(nil)
	}
}

// part removes a link from those that use the queue.
func (s *progress) part(l *link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.links--
	s.only.CompareAndSwap(l, nil)
	s.owing.CompareAndSwap(l, nil)
}

// One of othersEvery polls asks for all sockets of the device, because one caller may poll several
// queues. The keeper lets polls lead after the same number of polls.
const othersEvery = 16

// Idle serves the sockets that are ready. If one link uses the queue, Idle only reads the socket of
// that link, which saves a system call. If nothing has come, Idle sends the acknowledgement that is
// due, because no answer of the caller has carried it.
func (s *progress) Idle() (got bool) {
	polls, p := s.polls.Add(1), s.dev.poller
	if p.take() {
		if l := s.only.Load(); l != nil && polls%othersEvery != 0 {
			if got, _ = l.receive(true); got {
				l.owe(s)
			}
		} else {
			got = p.poll()
		}
		p.leave()
	} else if s.misses.Add(1)%othersEvery == 0 {
		p.yield()
	}
	if !got {
		s.pay()
	}
	return got
}

// Armed and Sleep send the acknowledgement that is due.
func (s *progress) Armed() { s.pay() }

func (s *progress) Sleep() <-chan struct{} {
	s.pay()
	return s.dev.poller.ask()
}

// Serve, Woke and Kick let a Wait of the queue wait for the sockets of the device: see poller.
func (s *progress) Serve(deadline time.Time, over func() bool) bool {
	return s.dev.poller.serve(s.queue, deadline, over)
}

func (s *progress) Woke() { s.dev.poller.waits.Add(-1) }

func (s *progress) Kick() bool { return s.dev.poller.kick(s.queue) }

// pay sends the acknowledgement that a call of link.owe has postponed.
func (s *progress) pay() {
	if l := s.owing.Load(); l != nil && s.owing.CompareAndSwap(l, nil) {
		l.acknowledgeNow()
	}
}

// owe postpones the link's acknowledgement of what has been received until the caller's next poll
// or the next tick. If another link of the queue has postponed one already, owe does not postpone,
// but sends this link's acknowledgement at once.
func (l *link) owe(s *progress) {
	if !l.due() {
		return
	}
	if l.sock.pollable() && (s.owing.CompareAndSwap(nil, l) || s.owing.Load() == l) {
		s.dev.remind(s)
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

// remind makes the method tick send the acknowledgement that a queue owes.
func (d *Device) remind(s *progress) {
	if s.listed.Load() || s.listed.Swap(true) {
		return
	}
	d.progressMu.Lock()
	defer d.progressMu.Unlock()
	d.owing = append(d.owing, s)
	d.poller.again()
}

// tick sends the acknowledgements that queues owe.
func (d *Device) tick() {
	d.progressMu.Lock()
	owing := d.owing
	d.owing, d.paying = d.paying[:0], owing
	d.progressMu.Unlock()
	for _, s := range owing {
		s.listed.Store(false) // before pay: what is owed after it is listed again
		s.pay()
	}
}

// readable, writable and rest implement events.
func (l *link) readable(end bool) (more bool) {
	if end {
		l.ending.Store(true)
	}
	s := l.polled[ofReceives]
	waits, polls := s.queue.Waiting(), s.polls.Load()
	l.attended = !waits && polls != l.seen
	l.seen = polls
	_, more = l.receive(false)
	if waits {
		l.attended = l.heard.delivered.Load() > l.sent.executed.Load()
	}
	return more
}

func (l *link) writable() { l.run() }

// The method rest acknowledges the requests that have been received. If a caller polls, or if a
// receive has completed for a caller that waits, the acknowledgement is sent later: with that
// caller's answer, at its next poll, or at the next tick. A write that completes no receive does
// not wake a caller that waits, so it is acknowledged at once.
func (l *link) rest() {
	if l.attended {
		l.owe(l.polled[ofReceives])
	} else {
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
