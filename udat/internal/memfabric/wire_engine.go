package memfabric

import (
	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/softnic"
)

// engine is the transport of a device: one goroutine, which executes the send queues of the
// device's queue pairs, and also does the target's part of each request. It never blocks for one
// queue pair. A queue pair that has to wait is queued again by a timer, or by the event that it
// waits for. A queue pair that has much to move is queued again each time it has moved as many
// bytes as the constant turn says.
type engine struct {
	out  softnic.Outbound
	in   softnic.Inbound
	left uint64 // bytes that the queue pair may still move in this turn
}

// turn is how many bytes a queue pair moves before the others have their turn. A write or a read of
// more bytes is executed in parts. A send is not, because it holds a receive.
const turn = 256 << 10

func (e *engine) run(list *readyList) {
	defer close(list.done)
	var ready []*link
	for {
		clear(ready)
		var ended bool
		switch ready, ended = list.take(ready[:0]); {
		case ended:
			return
		case len(ready) == 0:
			<-list.bell
		}
		for _, l := range ready {
			l.queued.Store(false) // before the step: a request that is posted from now on queues the link again
			e.step(l)
		}
	}
}

// step executes or flushes the posted requests in order, until they have moved as many bytes as the
// constant turn says. A request that is posted after step has begun queues the link again.
func (e *engine) step(l *link) {
	q := l.qp
	e.left = turn
	for range q.Sends().Len() {
		if !q.Connected() {
			break
		}
		if e.left == 0 {
			l.Wake()
			return
		}
		s := q.Sends().First()
		st, done := e.execute(l, s)
		if !done {
			return
		}
		if l.try.sent {
			l.try = try{}
		}
		q.Complete(s, st)
	}
	l.drain(&e.in)
}

// execute executes the oldest request, s, and returns its status. It returns false if the request
// has to wait.
func (e *engine) execute(l *link, s *softnic.Slot) (st fabric.Status, done bool) {
	if !l.try.sent {
		if l.qp.Holds(l.qp.Sends().Head()) {
			if softnic.Sinks(s.WR.Opcode) {
				l.qp.GatherAhead()
			}
			return st, false
		}
		if st = l.dev.Started(); st != fabric.StatusSuccess {
			return st, true
		}
	}
	switch st = e.attempt(l, s); st {
	case noAnswer, softnic.NotReady:
		return l.retry(st)
	case unfinished:
		l.Wake()
		return st, false
	}
	return st, true
}

// attempt tries to execute a request, or the next part of it, once.
func (e *engine) attempt(l *link, s *softnic.Slot) fabric.Status {
	if st, local := l.qp.Local(s); local {
		return st
	}
	n := s.Length - l.try.moved
	if op := s.WR.Opcode; n > e.left && (op == fabric.OpWrite || op == fabric.OpRead) {
		n = e.left
	}
	payload, st := l.qp.Payload(&e.out, s, l.try.moved, n)
	if st == fabric.StatusSuccess {
		st = e.exchange(l, s, payload, n)
	}
	e.out.Release()
	e.in.Release()
	e.left -= min(n, e.left)
	return st
}

// exchange makes the peer's queue pair check a request, and moves n bytes of the payload. It
// returns the request's status.
func (e *engine) exchange(l *link, s *softnic.Slot, payload [][]byte, n uint64) fabric.Status {
	p, in := l.peer.Load(), &e.in
	p.qp.In.Lock()
	defer p.qp.In.Unlock()
	if !p.answers(l) {
		return noAnswer
	}
	p.heard()
	in.WR, in.Length, in.From = &s.WR, s.Length, l.qp.Num()
	if st := p.qp.Begin(in, l); st != fabric.StatusSuccess {
		return st
	}
	if n < s.Length { // a part of a write or a read, whose place is one piece
		place := in.Place()
		place[0] = place[0][l.try.moved:][:n]
	}
	from, to := payload, in.Place()
	if softnic.Sinks(s.WR.Opcode) {
		from, to = to, from
	}
	if !softnic.Transfer(to, from) { // the memory of either end is this process's
		return fabric.StatusLocalProt
	}
	if l.try.moved+n < s.Length {
		l.try.sent = true
		l.try.moved += n
		return unfinished
	}
	p.qp.Finish(in)
	return fabric.StatusSuccess
}
