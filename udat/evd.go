package udat

import (
	"errors"
	"sync"
	"time"
	"unsafe"

	"github.com/godat/godat/udat/internal/fabric"
)

// EVD is an event dispatcher: a bounded queue of events that streams of completions, connection events, requests,
// asynchronous and software events feed. All its methods may be called concurrently; only one call may be blocked
// in Wait, and it owns the dispatcher meanwhile.
//
// Completions are taken from the device by whoever waits or dequeues, and now and then by the adapter itself, in
// the order in which the device made them. More events than the queue's length overflow it: the adapter's
// asynchronous dispatcher is told once. Some thousand events more are kept, and in any case as many as operations may be
// outstanding; those that come then are lost.
type EVD struct {
	obj   object
	flags EVDFlags

	mu       ranked[rankEVD]
	qlen     int
	ring     eventRing
	taken    int       // places of a caller's that the drain under way has filled: of the queue all the same
	reserved int       // places for connection requests that are being made
	cq       fabric.CQ // nil without DTO or bind streams; never changes
	wcs      [32]fabric.WC
	scratch  Event // empty whenever mu is free
	sources  sourceTable
	capacity int // completions that may be outstanding on cq

	waiter     bool // a call is blocked in Wait
	threshold  int  // of that call
	notified   bool // a notification event has come since it blocked
	evicted    bool // it must end: SetUnwaitable
	left       sync.Cond
	unwaitable bool
	disabled   bool
	overflowed bool
	overrun    bool // the completion queue has lost completions
	dead       bool
	discard    bool // events are of no interest: the dispatcher of endpoints that have none
	kick       chan struct{}
	timer      *time.Timer
	after      []func() // reports of failures for when mu is free; empty whenever it is

	cno     *CNO
	armed   bool // cq is armed, and nobody has taken the notification yet
	parked  bool // the waiter or the follower is parked in cq
	watched bool // a goroutine, the follower, keeps cq armed for the notification object

	spinScore int // whether spinning pays here: up to spinTrust either way

	shared map[uint32]sharedSource // sources that take their receives from shared queues, by queue pair number
	shares map[sharedQueue]*share

	streams streams
}

func (e *EVD) object() *object {
	if e == nil {
		return nil
	}
	return &e.obj
}

// CreateEVD makes a dispatcher of at least minQLen events that takes the given streams. It is enabled and waitable.
// All streams may share one dispatcher. cno, which may be nil, is triggered by notification events while nobody
// waits on the dispatcher itself.
//
// Implements: dat_evd_create.
func (ia *IA) CreateEVD(minQLen int, streams EVDFlags, cno *CNO) (*EVD, error) {
	const op = "evd_create"
	if err := ia.object().check(op, HandleIA); err != nil {
		return nil, err
	}
	limit := ia.device.Attr().MaxCQE
	switch {
	case minQLen <= 0:
		return nil, fail(op, InvalidParameter, SubArg2, "minQLen is %d, must be at least 1", minQLen)
	case minQLen > limit:
		return nil, fail(op, InsufficientResources, SubResourceTEVD, "minQLen is %d, the limit is %d", minQLen, limit)
	case streams == 0 || streams&^evdKnown != 0:
		return nil, fail(op, InvalidParameter, SubArg4, "streams %v: at least one of %v and nothing else", streams, evdKnown)
	}
	return ia.newEVD(op, minQLen, streams, cno)
}

func (ia *IA) newEVD(op string, qlen int, streams EVDFlags, cno *CNO) (*EVD, error) {
	e := &EVD{flags: streams, qlen: qlen, ring: newEventRing(qlen), cno: cno, kick: make(chan struct{}, 1)}
	e.left.L = &e.mu
	if streams&(EVDDTO|EVDRMRBind) != 0 {
		cq, err := ia.device.CreateCQ(qlen)
		if err != nil {
			return nil, failAs(op, err, SubResourceTEVD)
		}
		e.cq = cq
	}
	if err := ia.adopt(op, &e.obj, e, HandleEVD, func() error { return cno.attach(op, ia) }); err != nil {
		if e.cq != nil {
			e.cq.Close()
		}
		return nil, err
	}
	return e, nil
}

// Dequeue takes the first event without blocking. It works on dispatchers that are disabled or unwaitable, and is
// InvalidState while a call is blocked in Wait. An empty queue is QueueEmpty. It allocates nothing.
//
// Implements: dat_evd_dequeue.
func (e *EVD) Dequeue() (ev Event, err error) {
	_, err = e.dequeue(unsafe.Slice(&ev, 1), 1)
	return ev, err
}

// DequeueBatch takes up to len(events) events, oldest first, and gives their number; an empty queue is QueueEmpty.
// The device is asked at most once per 32 events.
//
// Extension.
func (e *EVD) DequeueBatch(events []Event) (int, error) { return e.DequeueSpin(events, 1) }

// MaxLooks is the most that DequeueSpin looks in one call: some 10 microseconds on hardware.
const MaxLooks = 1024

// DequeueSpin is DequeueBatch that looks at the device up to looks times, 1 to MaxLooks, before it finds the queue empty: for a loop that waits for
// a completion that is about to come. A further look is the driver's poll alone, some nanoseconds. The dispatcher is locked and its caller's
// processor held meanwhile. Devices whose work is done by goroutines are looked at once.
//
// Extension.
func (e *EVD) DequeueSpin(events []Event, looks int) (int, error) {
	switch {
	case !e.object().alive():
		return 0, badHandle("evd_dequeue", HandleEVD, e.object())
	case len(events) == 0:
		return 0, fail("evd_dequeue", InvalidParameter, SubArg2, "events is empty")
	case looks < 1 || looks > MaxLooks:
		return 0, fail("evd_dequeue", InvalidParameter, SubArg3, "looks is %d, must be from 1 to %d", looks, MaxLooks)
	}
	return e.dequeue(events, looks)
}

var (
	errQueueEmpty     = &Error{Op: "evd_dequeue", Type: QueueEmpty}
	errTimeoutExpired = &Error{Op: "evd_wait", Type: TimeoutExpired}
	errDequeueWaiter  = &Error{Op: "evd_dequeue", Type: InvalidState, Subtype: SubStateEVDWaiter}
)

func (e *EVD) dequeue(events []Event, looks int) (int, error) {
	if e == nil || !e.obj.live.Load() {
		return 0, badHandle("evd_dequeue", HandleEVD, e.object())
	}
	e.mu.Lock()
	if e.waiter || e.dead {
		defer e.mu.Unlock()
		if e.dead {
			return 0, badHandle("evd_dequeue", HandleEVD, &e.obj)
		}
		return 0, errDequeueWaiter
	}
	n := e.take(events, looks)
	e.unlock()
	if n == 0 {
		return 0, errQueueEmpty
	}
	return n, nil
}

// PostSE queues a software event with the given payload. A full queue is QueueFull and no overflow.
//
// Implements: dat_evd_post_se.
func (e *EVD) PostSE(ev Event) error {
	const op = "evd_post_se"
	if err := e.object().check(op, HandleEVD); err != nil {
		return err
	}
	if ev.Number != EventSoftware {
		return fail(op, InvalidParameter, SubArg2, "event %v: only %v can be posted", ev.Number, EventSoftware)
	}
	if e.flags&EVDSoftware == 0 {
		return fail(op, InvalidParameter, SubArg1, "the dispatcher takes no software events: streams %v", e.flags)
	}
	e.mu.Lock()
	defer e.unlock()
	e.drain() // completions that have come take places too
	if e.ring.n+e.reserved >= e.qlen {
		return fail(op, QueueFull, SubNone, "all %d places are taken", e.qlen)
	}
	e.push(&Event{Number: EventSoftware, Software: ev.Software}, true)
	e.rouse()
	return nil
}

// notify tells of an event that has just come, if it is one to tell of; e.mu is held.
func (e *EVD) notify(yes bool) {
	if !yes {
		return
	}
	e.notified = true
	if e.triggers() {
		e.cno.trigger(e)
	}
}

// rouse wakes the waiter if there is something for it; e.mu is held.
func (e *EVD) rouse() {
	if e.waiter && e.notified {
		e.wake()
	}
}

// wake makes the parked waiter look again, whether or not there is something for it.
func (e *EVD) wake() {
	if e.cq != nil {
		e.cq.Wake()
		return
	}
	select {
	case e.kick <- struct{}{}:
	default:
	}
}

// Resize changes the number of events that the queue holds. Nothing queued or arriving is lost; a length below what
// is queued, or below what a blocked Wait waits for, is InvalidState and changes nothing.
//
// Implements: dat_evd_resize.
func (e *EVD) Resize(minQLen int) error {
	const op = "evd_resize"
	if err := e.object().check(op, HandleEVD); err != nil {
		return err
	}
	limit := e.obj.ia.device.Attr().MaxCQE
	if minQLen <= 0 {
		return fail(op, InvalidParameter, SubArg2, "minQLen is %d, must be at least 1", minQLen)
	}
	if minQLen > limit {
		return fail(op, InsufficientResources, SubResourceTEVD, "minQLen is %d, the limit is %d", minQLen, limit)
	}
	e.mu.Lock()
	defer e.unlock()
	e.drain()
	switch {
	case e.dead:
		return badHandle(op, HandleEVD, &e.obj)
	case e.ring.n+e.reserved > minQLen:
		return fail(op, InvalidState, SubNone, "minQLen is %d, %d events are queued", minQLen, e.ring.n+e.reserved)
	case e.waiter && e.threshold > minQLen:
		return fail(op, InvalidState, SubStateEVDWaiter, "minQLen is %d, a call waits for %d events", minQLen, e.threshold)
	}
	if err := e.fit(op, minQLen); err != nil && !errors.Is(err, fabric.ErrNotSupported) {
		return err // a queue that cannot grow has room for all that may be outstanding: the rest is the ring's
	}
	e.qlen = minQLen
	e.ring.reserve(minQLen)
	return nil
}

// Free destroys the dispatcher and the events on it. While streams feed it this is InvalidState; a call that is
// blocked in Wait returns Abort.
//
// Implements: dat_evd_free.
func (e *EVD) Free() error {
	const op = "evd_free"
	if err := e.object().release(op, HandleEVD, SubStateEVDInUse, "streams"); err != nil {
		return err
	}
	e.destroy()
	return nil
}

// destroy ends a dispatcher that has been released.
func (e *EVD) destroy() {
	e.mu.Lock()
	e.dead = true
	e.wake()
	for e.waiter || e.watched {
		e.left.Wait()
	}
	for e.ring.n > 0 {
		var ev Event
		e.pop(&ev) // a shared receive queue gets its place back
	}
	e.mu.Unlock()
	e.cno.detach(true)
	if e.cq != nil {
		closeUnused(e.cq.Close)
	}
}
