package main

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/godat/godat/udat"
)

// The numbers of the queues in a cookie. A cookie consists of the link, the queue and a serial
// number.
const (
	requestQueue = 1
	receiveQueue = 2
	sharedQueue  = 3
)

func (l *link) cookie(queue, serial uint64) udat.Cookie {
	return udat.Cookie(uint64(l.id)<<56 | queue<<48 | serial)
}

// end is one end of all links, with an adapter of its own and one dispatcher for all streams, so
// that the order of all events is known.
type end struct {
	name   string
	ia     *udat.IA
	pz     *udat.PZ
	evd    *udat.EVD
	psp    *udat.PSP
	srq    *udat.SRQ
	qual   udat.ConnQual
	links  []*link
	counts *counts

	lent *lent // memory that the peer reads on a further connection

	srqLedger *ledger
	srqMemory *memory

	iwarp  bool
	quiet  atomic.Bool // no link posts anything more
	mayEnd atomic.Bool // from now on connections may end, and posts may fail
	dead   atomic.Bool // the adapter is closed with everything alive
	pause  atomic.Bool // the loop handles no events
	stop   atomic.Bool
	open   atomic.Int64 // posts of all links that have not completed
	begun  bool
	todo   chan func()   // functions that the loop runs between two events
	over   chan struct{} // the loop has ended
	allUp  chan struct{} // every link carries messages
	allOff chan struct{} // every link has ended

	mu       sync.Mutex
	problems []string
}

func (e *end) problem(format string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.problems) < 10 {
		e.problems = append(e.problems, fmt.Sprintf(format, args...))
	}
}

func (e *end) must(call string, err error) {
	if err != nil {
		e.problem("%s: %s: %v", e.name, call, err)
	}
}

// setup has the arguments with which an end is created.
type setup struct {
	Device  string
	Retry   int
	Active  bool // this end connects
	NoReads bool // no link carries RDMA reads
}

// plan returns the kinds of the links on an adapter.
func (s setup) plan(ia *udat.IA) ([]linkKind, error) {
	_, attr, provider, err := ia.Query()
	if err != nil {
		return nil, err
	}
	kinds := []linkKind{bySend, bySend, byWrite}
	if !s.NoReads {
		kinds = append(kinds, byRead)
	}
	if provider.SRQSupported {
		kinds = append(kinds, bySRQ, bySRQ)
	}
	if attr.MaxRMRs > 0 {
		kinds = append(kinds, byWindow)
	}
	return kinds, nil
}

// openEnd opens an adapter, makes everything that the links need, and listens.
func openEnd(name string, s setup, c *counts) (*end, error) {
	e := &end{name: name, counts: c, todo: make(chan func()),
		over: make(chan struct{}), allUp: make(chan struct{}), allOff: make(chan struct{})}
	var err error
	var opts []udat.Option
	if s.Retry >= 0 {
		opts = append(opts, udat.WithRetry(s.Retry))
	}
	if e.ia, err = udat.Open(s.Device, opts...); err != nil {
		return nil, err
	}
	e.iwarp = strings.HasPrefix(s.Device, "siw")
	if err := e.make(s); err != nil {
		e.ia.Close(udat.CloseAbrupt)
		return nil, err
	}
	return e, nil
}

func (e *end) make(s setup) error {
	kinds, err := s.plan(e.ia)
	if err != nil {
		return err
	}
	if e.pz, err = e.ia.CreatePZ(); err != nil {
		return err
	}
	if e.evd, err = e.ia.CreateEVD(1024, udat.EVDDTO|udat.EVDConnection|udat.EVDCR|udat.EVDRMRBind, nil); err != nil {
		return err
	}
	shared := 0
	for _, k := range kinds {
		if k == bySRQ {
			shared++
		}
	}
	if shared > 0 {
		if err := e.makeSRQ(shared * recvDepth); err != nil {
			return err
		}
	}
	for i, k := range kinds {
		l := &link{e: e, id: uint8(i), kind: k, active: s.Active}
		e.links = append(e.links, l)
		if err := l.make(); err != nil {
			return err
		}
	}
	if !s.Active {
		e.qual, e.psp, err = e.ia.CreatePSPAny(e.evd, udat.PSPConsumer)
	}
	return err
}

func (e *end) makeSRQ(depth int) error {
	var err error
	if e.srq, err = e.ia.CreateSRQ(e.pz, udat.SRQAttr{MaxRecvDTOs: depth, MaxRecvIOV: 1}); err != nil {
		return err
	}
	e.srqLedger = newLedger(e.name+" shared receive queue", false)
	e.srqMemory, err = newMemory(e.ia, e.pz, e.name+" shared receives", depth*fullSize,
		udat.PrivLocalRead|udat.PrivLocalWrite)
	for slot := uint64(0); err == nil && slot < uint64(depth); slot++ {
		err = e.postSRQ(slot)
	}
	return err
}

func (e *end) postSRQ(slot uint64) error {
	serial := e.srqLedger.add(post{op: udat.DTOReceive, seq: slot})
	err := e.srq.PostRecv(e.srqMemory.iov(int(slot)*fullSize, fullSize), udat.Cookie(sharedQueue<<48|serial))
	if err != nil {
		e.srqLedger.undo()
	}
	return err
}

// connect starts to connect all links.
func (e *end) connect(addr netip.Addr, qual udat.ConnQual) error {
	for _, l := range e.links {
		err := l.ep.Connect(addr, qual, patience, []byte{l.id}, udat.QoSBestEffort, udat.ConnectDefault)
		if err != nil {
			return fmt.Errorf("%s: %w", l.name(), err)
		}
	}
	return nil
}

// start runs the loop that handles all events.
func (e *end) start() {
	e.begun = true
	go func() {
		defer close(e.over)
		up, off := false, false
		for !e.stop.Load() {
			if e.pause.Load() {
				time.Sleep(time.Millisecond)
				continue
			}
			select {
			case f := <-e.todo:
				f()
			default:
			}
			limit := 20 * time.Millisecond
			if off { // stop is set soon
				limit = time.Millisecond
			}
			ev, _, err := e.evd.Wait(limit, 1)
			for ; err == nil; ev, err = e.evd.Dequeue() {
				e.handle(&ev)
			}
			switch {
			case e.dead.Load():
				return
			case !errors.Is(err, udat.ErrTimeoutExpired) && !errors.Is(err, udat.ErrQueueEmpty):
				e.problem("%s: waiting for events: %v", e.name, err)
				return
			}
			ups, offs, open := 0, 0, 0
			for _, l := range e.links {
				l.pump()
				open += len(l.requests.open)
				if l.kind != bySRQ {
					open += len(l.receives.open)
				}
				if l.up && l.greeted {
					ups++
				}
				if l.ended != 0 {
					offs++
				}
			}
			e.open.Store(int64(open))
			if !up && ups == len(e.links) {
				up = true
				close(e.allUp)
			}
			if !off && offs == len(e.links) {
				off = true
				close(e.allOff)
			}
		}
	}()
}

// handle handles one event.
func (e *end) handle(ev *udat.Event) {
	switch ev.Number {
	case udat.EventConnectionRequest:
		e.accept(ev)
		return
	case udat.EventDTOCompletion, udat.EventRMRBindCompletion:
		e.completed(ev)
		return
	}
	l := e.linkOf(ev.EP)
	if l == nil {
		e.problem("%s: event %v of no link", e.name, ev.Number)
		return
	}
	if ev.Number == udat.EventConnectionEstablished {
		l.established()
		return
	}
	if err := ev.Err(); err != nil && !e.mayEnd.Load() {
		l.problem("%v: %v", ev.Number, err)
	}
	l.end(ev.Number)
}

func (e *end) linkOf(ep *udat.EP) *link {
	for _, l := range e.links {
		if l.ep == ep {
			return l
		}
	}
	return nil
}

func (e *end) accept(ev *udat.Event) {
	p, err := ev.CR.Query()
	if err != nil || len(p.PrivateData) < 1 || int(p.PrivateData[0]) >= len(e.links) {
		e.problem("%s: a request with private data %v (%v)", e.name, p.PrivateData, err)
		return
	}
	l := e.links[p.PrivateData[0]]
	if err := ev.CR.Accept(l.ep, nil); err != nil && !e.mayEnd.Load() && !e.dead.Load() {
		l.problem("accept: %v", err)
	}
}

// completed checks the cookie of a completion, and passes the completion to the link and the queue
// that the cookie names.
func (e *end) completed(ev *udat.Event) {
	l := e.linkOf(ev.EP)
	queue, serial := uint64(ev.Cookie)>>48&0xff, uint64(ev.Cookie)&(1<<48-1)
	if l == nil || queue != sharedQueue && uint8(ev.Cookie>>56) != l.id {
		e.problem("%s: completion %#x of another endpoint", e.name, ev.Cookie)
		return
	}
	if queue == requestQueue {
		l.requested(serial, ev)
		return
	}
	p, err := l.receives.complete(serial, ev.Status)
	if err != nil {
		l.problem("%v", err)
		return
	}
	m := l.recv
	if queue == sharedQueue {
		m = e.srqMemory
	}
	l.message(ev, m.buf[int(p.seq)*fullSize:int(p.seq+1)*fullSize])
	if ev.Status == udat.DTOSuccess && l.ended == 0 {
		if err := l.postRecv(p.seq); err != nil && !e.mayEnd.Load() && !e.dead.Load() {
			l.problem("a receive is refused: %v", err)
		}
	}
}

// taken returns the number of data messages that all links have received.
func (e *end) taken() (n uint64) {
	for i := range e.links {
		n += e.counts.values[i][countReceived].Load()
	}
	return n
}

// disconnect ends all connections from this end. The loop of the end disconnects, so that no post
// comes after the disconnect.
func (e *end) disconnect(flags udat.CloseFlags) {
	e.mayEnd.Store(true)
	done := make(chan struct{})
	e.todo <- func() {
		defer close(done)
		e.quiet.Store(flags == udat.CloseGraceful)
		for _, l := range e.links {
			// The error is ignored if the peer has disconnected first.
			if err := l.ep.Disconnect(flags); err != nil && !errors.Is(err, udat.ErrInvalidState) {
				l.problem("disconnect: %v", err)
			}
		}
	}
	<-done
}

// kill closes the adapter while all its objects are in use, as the end of a process does.
func (e *end) kill() {
	e.dead.Store(true)
	e.must("IA.Close", e.ia.Close(udat.CloseAbrupt))
	e.finishLoop()
}

func (e *end) finishLoop() {
	e.stop.Store(true)
	e.pause.Store(false)
	if e.begun {
		<-e.over
	}
}

// finish checks the ledgers and the canaries, and frees every object.
func (e *end) finish() {
	if e.dead.Load() {
		return
	}
	if e.lent != nil {
		e.must("lending memory", <-e.lent.ended)
	}
	until := time.Now().Add(patience)
	for e.begun && e.open.Load() > 0 && time.Now().Before(until) {
		time.Sleep(time.Millisecond)
	}
	e.finishLoop()
	for _, l := range e.links {
		if e.quiet.Load() && l.ended == udat.EventConnectionDisconnected && l.completed != l.sent && !e.iwarp {
			l.problem("a graceful disconnect loses messages: %d sent, %d completed", l.sent, l.completed)
		}
	}
	if left := e.openPosts(); left != "" {
		e.problem("%s: posts that have not completed after %v: %s", e.name, patience, left)
	}
	if async := e.ia.AsyncEVD(); async != nil {
		for ev, err := async.Dequeue(); err == nil; ev, err = async.Dequeue() {
			e.asyncEvent(&ev)
		}
	}
	for _, l := range e.links {
		l.free()
	}
	if e.srq != nil {
		e.must("SRQ.Free", e.srq.Free())
		e.freeMemory(e.srqMemory)
	}
	if e.psp != nil {
		e.must("PSP.Free", e.psp.Free())
	}
	e.must("EVD.Free", e.evd.Free())
	e.must("PZ.Free", e.pz.Free())
	e.must("IA.Close", e.ia.Close(udat.CloseGraceful))
}

func (e *end) asyncEvent(ev *udat.Event) {
	if !e.mayEnd.Load() || ev.Number == udat.EventAsyncEVDOverflow {
		e.problem("%s: asynchronous event %v, reason %d", e.name, ev.Number, ev.Reason)
	}
}

// states lists the states of all links. The loop makes the list, because it owns the links.
func (e *end) states() string {
	list := make(chan []string, 1)
	ask := func() {
		var states []string
		for _, l := range e.links {
			state, _, _, _ := l.ep.GetStatus()
			states = append(states, fmt.Sprintf("link %d %v, established %v, greeted %v", l.id, state, l.up, l.greeted))
		}
		list <- states
	}
	select {
	case e.todo <- ask:
		return strings.Join(<-list, "; ")
	case <-time.After(patience):
		return "the loop hangs"
	}
}

// openPosts lists the ledgers with open entries. The loop must have ended. Receives of a shared
// queue that no message has used stay posted, so they do not count.
func (e *end) openPosts() string {
	var list []string
	for _, l := range e.links {
		for _, g := range []*ledger{l.requests, l.receives} {
			if g.ordered && len(g.open) > 0 {
				list = append(list, fmt.Sprintf("%s: %d", g.name, len(g.open)))
			}
		}
	}
	return strings.Join(list, ", ")
}

func (e *end) freeMemory(m *memory) {
	if m == nil || m.lmr == nil {
		return
	}
	e.must("LMR.Free", m.lmr.Free())
	if err := m.check(); err != nil {
		e.problem("%v", err)
	}
}
