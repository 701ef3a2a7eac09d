package udat_test

import (
	"bytes"
	"errors"
	"slices"
	"sync"
	"time"

	"pgregory.net/rapid"

	"github.com/godat/godat/udat"
)

// plan is what one end posts while the connection ends.
type plan struct {
	ep     *mEP
	ops    []*mOp
	iovs   [][]udat.LMRTriplet
	remote []udat.RMRTriplet
	errs   []error

	requests, recvs []*mOp // all that has been posted, in order
	sends           []*mOp // those that have succeeded
	received        []*mOp
}

// chaos posts at both ends of a connection from several goroutines, while the connection is
// disconnected. The outcome of a single operation is not known, but rules for all of them are.
func (w *world) chaos(t *rapid.T) {
	ep := w.anEP(t)
	if ep.state == udat.EPConnected {
		ep.unmark(t)
		ep.peer.unmark(t)
	}
	if !ep.calm() || ep.shared || ep.peer.shared {
		t.Skip()
	}
	ends := []*mEP{ep, ep.peer}
	var evds []*mEVD
	for _, end := range ends {
		for _, e := range []*mEVD{end.seat.recv, end.seat.request, end.seat.conn} {
			e.evict(t)
			if !slices.Contains(evds, e) {
				evds = append(evds, e)
			}
		}
	}
	for _, e := range evds {
		for e.count > 0 {
			e.dequeue(t, 8)
		}
		e.overfull = true // it may be, for a while
		e.mayTrigger()
	}
	if !w.stalls {
		t.Skip()
	}
	plans := []*plan{newPlan(t, ends[0]), newPlan(t, ends[1])}
	pause := time.Duration(rapid.IntRange(0, 300).Draw(t, "pause")) * time.Microsecond
	graceful := rapid.Bool().Draw(t, "graceful")
	both := rapid.Bool().Draw(t, "both")
	var posters sync.WaitGroup
	for _, p := range plans {
		posters.Go(p.post)
	}
	time.Sleep(pause)
	if graceful {
		isOK(t, ep.ep.Disconnect(udat.CloseGraceful))
	}
	if both {
		isOK(t, ends[1].ep.Disconnect(udat.CloseAbrupt))
	}
	isOK(t, ep.ep.Disconnect(udat.CloseAbrupt))
	posters.Wait()

	w.note("\tgraceful %v, both %v, after %v", graceful, both, pause)
	for _, p := range plans {
		w.note("\t%s posts", p.ep.seat.recv.name)
		for i, o := range p.ops {
			w.note("\t\t%v, receive %v, cookie %d, %d bytes, flags %v: %v", modelOperations[o.kind], o.recv, o.cookie,
				o.length, o.flags, p.errs[i])
		}
	}
	events := w.collect(t, ends, evds)
	for _, e := range evds {
		e.mayTrigger()
	}
	for s, list := range events {
		for _, ev := range list {
			w.note("\tevent of %s: %s", s.ep.seat.recv.name, describe(ev))
		}
	}
	for i, p := range plans {
		p.account(t)
		p.checkRequests(t, plans[1-i], events[mStream{p.ep, requestStream}])
		p.checkRecvs(t, events[mStream{p.ep, recvStream}])
		if conn := events[mStream{p.ep, connStream}]; len(conn) != 1 || conn[0].Number != udat.EventConnectionDisconnected {
			t.Fatalf("%d connection events, want DISCONNECTED: %v", len(conn), conn)
		}
	}
	for i, p := range plans {
		for _, o := range p.requests {
			o.lost()
		}
		p.checkMessages(t, plans[1-i])
		w.seen["chaos: sends that succeed"] += len(p.sends)
		w.seen["chaos: requests"] += len(p.requests)
		p.ep.state, p.ep.peer, p.ep.requests, p.ep.recvs, p.ep.sent, p.ep.greeting, p.ep.silent = udat.EPDisconnected, nil,
			nil, nil, nil, nil, 0
		p.ep.target = bytes.Clone(p.ep.seat.target.Bytes())
	}
}

func newPlan(t *rapid.T, ep *mEP) *plan {
	p := &plan{ep: ep}
	for range pick(t, []int{0, 1, 3, 5, 8}, "operations") {
		if rapid.Bool().Draw(t, "recv") {
			iov, local, size := ep.seat.memory([]int{100, 0, 92})
			o := &mOp{cookie: ep.w.cookie(), recv: true, local: local, size: size}
			o.fill(true)
			p.add(o, iov, udat.RMRTriplet{})
			continue
		}
		o, iov, remote := ep.draw(t)
		o.flags = ep.legal(o.kind, o.flags)
		if !o.bad {
			p.add(o, iov, remote)
		}
	}
	return p
}

func (p *plan) add(o *mOp, iov []udat.LMRTriplet, remote udat.RMRTriplet) {
	p.ops, p.iovs, p.remote = append(p.ops, o), append(p.iovs, iov), append(p.remote, remote)
}

func (p *plan) post() {
	for i, o := range p.ops {
		if o.recv {
			p.errs = append(p.errs, p.ep.ep.PostRecv(p.iovs[i], o.cookie, o.flags))
		} else {
			p.errs = append(p.errs, p.ep.call(o, p.iovs[i], o.flags, p.remote[i]))
		}
	}
}

// account lists what has been posted.
func (p *plan) account(t *rapid.T) {
	p.requests, p.recvs = slices.Clone(p.ep.requests), slices.Clone(p.ep.recvs)
	for i, o := range p.ops {
		switch err := p.errs[i]; {
		case err != nil && !errors.Is(err, udat.ErrInsufficientResources) &&
			(o.recv || !errors.Is(err, udat.ErrInvalidState)):
			t.Fatal(err)
		case err != nil:
		case o.recv:
			p.recvs = append(p.recvs, o)
		default:
			p.requests = append(p.requests, o)
		}
	}
}

// collect takes events until both ends are at rest.
func (w *world) collect(t *rapid.T, ends []*mEP, evds []*mEVD) map[mStream][]udat.Event {
	events := map[mStream][]udat.Event{}
	dequeue := func() {
		for _, e := range evds {
			for {
				ev, err := e.evd.Dequeue()
				if errors.Is(err, udat.ErrQueueEmpty) {
					break
				}
				isOK(t, err)
				s := streamOf(w, ev)
				events[s] = append(events[s], ev)
			}
		}
	}
	if !soon(func() bool {
		dequeue()
		for _, end := range ends {
			state, recvIdle, requestIdle, err := end.ep.GetStatus()
			isOK(t, err)
			if state != udat.EPDisconnected || !recvIdle || !requestIdle || len(events[mStream{end, connStream}]) == 0 {
				return false
			}
		}
		return true
	}) {
		t.Fatalf("the ends do not come to rest: %v", events)
	}
	dequeue()
	return events
}

// checkRequests checks the completions of requests: they are in order, each request completes at
// most once, and after the first failure all others fail.
func (p *plan) checkRequests(t *rapid.T, peer *plan, events []udat.Event) {
	left := p.requests
	target := bytes.Clone(peer.ep.target)
	failed := false
	succeed := func(o *mOp) {
		if failed {
			t.Fatalf("request %d succeeds after one that failed", o.cookie)
		}
		switch o.kind {
		case udat.OpSend:
			p.sends = append(p.sends, o)
		case udat.OpRDMAWrite:
			copy(target[o.remote:], o.data)
		case udat.OpRDMARead:
			o.got(t, target[o.remote:][:o.length])
		}
	}
	for _, ev := range events {
		for len(left) > 0 && left[0].cookie != ev.Cookie && left[0].flags&udat.CompletionSuppress != 0 {
			succeed(left[0])
			left = left[1:]
		}
		if len(left) == 0 {
			t.Fatalf("completion of what is not outstanding: %s", describe(ev))
		}
		o := left[0]
		left = left[1:]
		o.check(t, "chaos", ev, []udat.DTOStatus{udat.DTOSuccess, udat.DTOErrFlushed})
		if ev.Status != udat.DTOSuccess {
			p.ep.w.showsIf(failed, "EPST-43")
			failed = true
			continue
		}
		if o.flags&udat.CompletionSuppress != 0 {
			t.Fatalf("a completion of what was suppressed: %s", describe(ev))
		}
		succeed(o)
	}
	for _, o := range left {
		if o.flags&udat.CompletionSuppress == 0 {
			t.Fatalf("request %d does not complete", o.cookie)
		}
		succeed(o)
	}
}

// checkRecvs checks the completions of receives: all receives complete, in order.
func (p *plan) checkRecvs(t *rapid.T, events []udat.Event) {
	if len(events) != len(p.recvs) {
		t.Fatalf("%d completions of %d receives", len(events), len(p.recvs))
	}
	for i, ev := range events {
		o := p.recvs[i]
		o.length = int(ev.Length)
		o.check(t, "chaos", ev, []udat.DTOStatus{udat.DTOSuccess, udat.DTOErrFlushed})
		if ev.Status != udat.DTOSuccess {
			continue
		}
		if len(p.received) < i {
			t.Fatalf("receive %d succeeds after one that failed", o.cookie)
		}
		p.received = append(p.received, o)
	}
}

// checkMessages compares the messages sent with the messages that the peer has received.
func (p *plan) checkMessages(t *rapid.T, peer *plan) {
	if len(peer.received) < len(p.sends) {
		t.Fatalf("%d sends have succeeded, the peer has received %d", len(p.sends), len(peer.received))
	}
	var all []*mOp
	for _, o := range p.requests {
		if o.kind == udat.OpSend {
			all = append(all, o)
		}
	}
	if len(peer.received) > len(all) {
		t.Fatalf("%d receives for %d sends", len(peer.received), len(all))
	}
	for i, r := range peer.received {
		if r.length != all[i].length {
			t.Fatalf("receive %d has %d bytes, send %d had %d", r.cookie, r.length, all[i].cookie, all[i].length)
		}
		r.got(t, all[i].data)
	}
}
