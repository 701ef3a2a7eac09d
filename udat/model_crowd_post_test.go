package udat_test

import (
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/godat/godat/udat"
)

// crowdPoster posts from its own goroutine. Its cookies contain the number of the poster and of the
// operation.
type crowdPoster struct {
	end  *crowdEnd
	id   uint64
	post func(*crowdPoster, *rand.Rand) bool // whether it has posted
	base int                                 // of its part of the end's memory
	next uint64

	mu   sync.Mutex
	ops  map[uint64]*crowdOp
	last uint64 // the number of the latest operation that has completed
}

type crowdOp struct {
	recv, suppress, failed bool
	memory                 []byte // of a receive
	completions            int
}

func (p *crowdPoster) run() {
	c, r := p.end.c, p.end.c.rand()
	for !c.stopPosting.Load() {
		if p.end.load.Load() >= crowdLoad || !p.post(p, r) || r.IntN(8) == 0 {
			time.Sleep(time.Duration(r.IntN(200)) * time.Microsecond)
		}
	}
}

// begin records an operation before it is posted, because it may complete before the post returns.
func (p *crowdPoster) begin(o *crowdOp) (cookie udat.Cookie, at int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next++
	p.ops[p.next] = o
	return udat.Cookie(p.id<<32 | p.next), p.base + int(p.next%crowdSlots)*2*crowdSlot
}

// ended records the result of the post.
func (p *crowdPoster) ended(cookie udat.Cookie, err error) {
	n := uint64(cookie) & (1<<32 - 1)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil {
		return
	}
	if p.ops[n].completions > 0 {
		p.end.c.t.Errorf("%s: operation %d was refused, and completes: %v", p.end.name, n, err)
	}
	delete(p.ops, n)
	p.next-- // its memory can be used again; the memory of a Send that waits for a receive cannot
	if !errors.Is(err, udat.ErrInsufficientResources) && !errors.Is(err, udat.ErrInvalidState) {
		p.end.c.t.Errorf("%s: %v", p.end.name, err)
	}
}

// completed handles a completion of one of the poster's operations at an end.
func (p *crowdPoster) completed(at *crowdEnd, ev udat.Event) {
	t := p.end.c.t
	n := uint64(ev.Cookie) & (1<<32 - 1)
	p.mu.Lock()
	defer p.mu.Unlock()
	o := p.ops[n]
	if o == nil {
		t.Errorf("%s: completion of what has not been posted: %s", at.name, describe(ev))
		return
	}
	o.completions++
	o.failed = ev.Status != udat.DTOSuccess
	shared := o.recv && p.end.srq != nil
	switch {
	case o.completions > 1:
		t.Errorf("%s: operation %d completes %d times", at.name, n, o.completions)
	case at != p.end && !shared:
		t.Errorf("%s: completion of an operation of %s", at.name, p.end.name)
	case o.suppress && !o.failed:
		t.Errorf("%s: a success of what was suppressed: %s", at.name, describe(ev))
	case n < p.last && !shared:
		t.Errorf("%s: poster %d: operation %d completes after %d", at.name, p.id, n, p.last)
	}
	p.last = n
	if shared {
		p.end.c.srqLoad.Add(-1)
	} else if !o.suppress {
		p.end.load.Add(-1)
	}
	if o.recv && !o.failed {
		at.hears(o.memory[:ev.Length])
	}
}

// receive posts a receive, to the shared queue if the end has one.
func (p *crowdPoster) receive(*rand.Rand) bool {
	e := p.end
	e.mu.RLock()
	defer e.mu.RUnlock()
	if e.ep == nil {
		return false
	}
	o := &crowdOp{recv: true}
	cookie, at := p.begin(o)
	o.memory = e.local.Bytes()[at : at+crowdSlot]
	iov := []udat.LMRTriplet{e.local.Triplet(at, 24), e.local.Triplet(at+24, crowdSlot-24)}
	load := &e.load
	if e.srq != nil {
		load = &e.c.srqLoad
	}
	load.Add(1)
	var err error
	if e.srq != nil {
		err = e.srq.PostRecv(iov, cookie)
	} else {
		err = e.ep.PostRecv(iov, cookie, 0)
	}
	if err != nil {
		load.Add(-1)
		if errors.Is(err, udat.ErrInvalidState) {
			e.c.t.Errorf("%s: a receive is legal in every state: %v", e.name, err)
		}
	}
	p.ended(cookie, err)
	return err == nil
}

// request posts a Send, an RDMA write or read, or a bind.
func (p *crowdPoster) request(r *rand.Rand) bool {
	e := p.end
	e.mu.RLock()
	defer e.mu.RUnlock()
	if e.ep == nil || e.peer == nil {
		return false
	}
	o := &crowdOp{suppress: r.IntN(4) == 0}
	cookie, at := p.begin(o)
	n := []int{0, 1, 16, 40, crowdSlot}[r.IntN(5)]
	iov := []udat.LMRTriplet{e.local.Triplet(at, n)}
	if n > 20 {
		iov = []udat.LMRTriplet{e.local.Triplet(at, 20), e.local.Triplet(at+20, n-20)}
	}
	message(e.local.Bytes()[at:at+n], p.id, uint64(cookie)&(1<<32-1))
	var flags udat.CompletionFlags
	if o.suppress {
		flags = udat.CompletionSuppress
	} else {
		e.load.Add(1)
	}
	if r.IntN(4) == 0 {
		flags |= udat.CompletionBarrierFence
	}
	remote := e.peer.target.RMRTriplet(0, n)
	var err error
	switch k := r.IntN(12); {
	case k < 6:
		err = e.ep.PostSend(iov, cookie, flags)
	case k < 8:
		err = e.ep.PostRDMAWrite(iov, cookie, remote, flags)
	case k < 10:
		err = e.ep.PostRDMARead(iov, cookie, remote, flags)
	case k == 10 && e.window != nil:
		_, err = e.window.Bind(e.target.Triplet(0, r.IntN(crowdSlot)), bothRights, e.ep, cookie, flags)
	default:
		var posted int
		posted, err = e.ep.PostBatch([]udat.Op{{Kind: udat.OpSend, IOV: iov, Cookie: cookie, Flags: flags}})
		if (posted == 1) != (err == nil) {
			e.c.t.Errorf("%s: %d of a batch of one are posted: %v", e.name, posted, err)
		}
	}
	if err != nil && !o.suppress {
		e.load.Add(-1)
	}
	p.ended(cookie, err)
	return err == nil
}

// taker dequeues the events of one dispatcher.
type taker struct {
	c    *crowd
	end  *crowdEnd
	name string
	evd  *udat.EVD
	how  takerKind
	mu   sync.Mutex // held during a dequeue: otherwise the order would not be known with several goroutines
}

type takerKind int

const (
	waitingTaker   takerKind = iota // blocks in Wait
	pollingTaker                    // two goroutines dequeue
	triggeredTaker                  // dequeues only when the notification object is triggered
)

func (c *crowd) addTaker(end *crowdEnd, name string, flags udat.EVDFlags, how takerKind) *taker {
	k := &taker{c: c, end: end, name: name, how: how}
	var cno *udat.CNO
	if how == triggeredTaker {
		cno = c.cno
		c.notified = append(c.notified, k)
	}
	var err error
	if k.evd, err = c.ia.CreateEVD(crowdQLen, flags, cno); err != nil {
		c.t.Fatal(err)
	}
	c.takers = append(c.takers, k)
	return k
}

func (k *taker) start(g *sync.WaitGroup) {
	switch k.how {
	case waitingTaker:
		g.Go(k.wait)
	case pollingTaker:
		for range 2 {
			g.Go(func() {
				for !k.c.stopTaking.Load() {
					if k.drain() == 0 {
						time.Sleep(200 * time.Microsecond)
					}
				}
			})
		}
	}
}

func (k *taker) wait() {
	for !k.c.stopTaking.Load() {
		ev, _, err := k.evd.Wait(20*time.Millisecond, 1)
		switch {
		case err == nil:
			k.take(ev)
		case !errors.Is(err, udat.ErrTimeoutExpired) && !errors.Is(err,
			udat.WithSubtype(udat.InvalidState, udat.SubStateEVDUnwaitable)):
			k.c.t.Errorf("%s: wait: %v", k.name, err)
			return
		}
	}
}

// drain dequeues all events.
func (k *taker) drain() (n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	events := make([]udat.Event, 5)
	for {
		got, err := k.evd.DequeueBatch(events)
		if err != nil {
			if !errors.Is(err, udat.ErrQueueEmpty) {
				k.c.t.Errorf("%s: dequeue: %v", k.name, err)
			}
			return n
		}
		for _, ev := range events[:got] {
			k.take(ev)
		}
		n += got
	}
}

// takeTriggered dequeues events only after a trigger: if a trigger is lost, events stay queued for
// ever.
func (c *crowd) takeTriggered() {
	for !c.stopTaking.Load() {
		evd, err := c.cno.Wait(20 * time.Millisecond)
		if errors.Is(err, udat.ErrQueueEmpty) {
			continue
		}
		if err != nil || evd == nil {
			c.t.Errorf("notification object: dispatcher %v: %v", evd, err)
			return
		}
		for _, k := range c.notified {
			k.drain()
		}
	}
}

func (k *taker) take(ev udat.Event) {
	if ev.EVD != k.evd {
		k.c.t.Errorf("%s: the event names another dispatcher: %s", k.name, describe(ev))
	}
	switch ev.Number {
	case udat.EventDTOCompletion, udat.EventRMRBindCompletion:
		id := uint64(ev.Cookie) >> 32
		if id < 1 || id > uint64(len(k.c.posters)) {
			k.c.t.Errorf("%s: nobody's cookie: %s", k.name, describe(ev))
			return
		}
		k.c.posters[id-1].completed(k.end, ev)
	case udat.EventSoftware:
	default:
		select {
		case k.end.conns <- ev:
		default:
			k.c.t.Errorf("%s: too many connection events, the latest is %s", k.name, describe(ev))
		}
	}
}

// takeAsync counts the watermark events. Other events than these and broken endpoints are errors.
func (c *crowd) takeAsync() {
	for !c.stopTaking.Load() {
		ev, _, err := c.ia.AsyncEVD().Wait(20*time.Millisecond, 1)
		switch {
		case errors.Is(err, udat.ErrTimeoutExpired):
		case err != nil:
			c.t.Errorf("asynchronous events: %v", err)
			return
		case ev.Number == udat.EventAsyncEPSoftHighWatermark, ev.Number == udat.EventAsyncSRQLowWatermark:
			c.marks.Add(1)
		case ev.Number != udat.EventAsyncEPBroken:
			c.t.Errorf("asynchronous event %v", ev.Number)
		}
	}
}

// crowdPair connects its ends again and again.
type crowdPair struct {
	c                  *crowd
	name               string
	cr                 *udat.EVD
	consumer, provider *udat.PSP
	a, b, c3           *crowdEnd
}
