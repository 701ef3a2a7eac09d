package memfabric

import (
	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/softnic"
)

// engine is the wire in this process: one goroutine for each device, which executes the send queues
// of its queue pairs and is the responder of their messages too. It does not wait for one queue
// pair: a timer, or the event that ends the wait, queues it again.
type engine struct {
	out softnic.Outbound
	in  softnic.Inbound
}

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
			l.queued.Store(false) // before the look: who posts from now on queues it again
			e.step(l)
		}
	}
}

// step executes or flushes, in order, the requests posted by now; later ones queue the link again.
func (e *engine) step(l *link) {
	q := l.qp
	for range q.Sends().Len() {
		if !q.Connected() {
			break
		}
		s := q.Sends().First()
		st, done := e.execute(l, s)
		if !done {
			return
		}
		if l.try.placed || l.try.sent {
			l.try = try{}
		}
		q.Complete(s, st)
	}
	l.drain(&e.in)
}

// execute completes the oldest request, or advances it as far as possible now.
func (e *engine) execute(l *link, s *softnic.Slot) (st fabric.Status, done bool) {
	if !l.try.sent {
		if !s.Due.IsZero() && l.delay(s) {
			if softnic.Sinks(s.WR.Opcode) {
				l.qp.GatherAhead()
			}
			return st, false
		}
		if st, hit := l.dev.Device.Faults.FailsNow(); hit {
			return st, true
		}
	}
	if st = e.attempt(l, s); st == noAnswer || st == softnic.NotReady {
		return l.retry(st)
	}
	return st, true
}

// attempt tries a request once.
func (e *engine) attempt(l *link, s *softnic.Slot) fabric.Status {
	if st, local := l.qp.Local(s); local {
		return st
	}
	payload, st := l.qp.Payload(&e.out, s, 0, s.Length)
	if st == fabric.StatusSuccess {
		st = e.exchange(l, s, payload)
	}
	e.out.Release()
	e.in.Release()
	return st
}

// exchange passes one request to the peer and moves the payload; the result is the request's
// status.
func (e *engine) exchange(l *link, s *softnic.Slot, payload [][]byte) fabric.Status {
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
	if softnic.Sinks(s.WR.Opcode) {
		softnic.Transfer(payload, in.Place())
	} else {
		softnic.Transfer(in.Place(), payload)
	}
	p.qp.Finish(in)
	return fabric.StatusSuccess
}
