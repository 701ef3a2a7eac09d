package udat

import (
	"context"
	"errors"
	"slices"
	"time"
	"unsafe"

	"github.com/godat/godat/udat/internal/fabric"
)

// CreateEVD makes a dispatcher for the given streams, whose queue holds at least minQLen events.
// The dispatcher is enabled and waitable. While no call is blocked in Wait, notification events
// trigger cno; cno may be nil.
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
		return nil, fail(op, InvalidParameter, SubArg4, "streams must be at least one of %v, and nothing else; it is %v",
			evdKnown, streams)
	}
	return ia.newEVD(op, minQLen, streams, cno)
}

func (ia *IA) newEVD(op string, qlen int, streams EVDFlags, cno *CNO) (*EVD, error) {
	e := &EVD{flags: streams, qlen: qlen, ring: newEventRing(qlen), cno: cno}
	e.waiting.init(&e.mu)
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

// Wait blocks until threshold events are queued, dequeues the first of them, and returns in nmore
// the number of events that are left. If the Consumer chooses which completions notify
// (UNSIGNALLED, SOLICITED_WAIT), the parameter threshold must be 1. If the queue is then empty, the
// call blocks until a notification event comes or timeout has passed. In every case the call
// returns the first event on the queue, even if that event did not notify.
//
// timeout counts from the call. If timeout is 0, the call only polls; the timeout Infinite never
// expires. A blocked call holds a goroutine. If the previous wait took less than 4 ms, the call on
// Linux also holds a thread for up to 4 ms; at most half of the processors are used for such calls.
//
// Errors: TimeoutExpired, with no event dequeued and the number of queued events in nmore;
// InvalidParameter if threshold is below 1 or above the queue's length, or timeout is negative;
// InvalidState if another call waits, if the dispatcher is or becomes unwaitable, if threshold is
// not 1 but must be, or if the device has lost completions; Abort if the dispatcher is freed or the
// adapter closed during the call; InvalidHandle.
//
// Implements: dat_evd_wait.
func (e *EVD) Wait(timeout time.Duration, threshold int) (ev Event, nmore int, err error) {
	if timeout < 0 {
		return Event{}, 0, e.refuse(fail("evd_wait", InvalidParameter, SubArg2, "timeout is %v, must not be negative",
			timeout))
	}
	nmore, err = e.wait(context.Background(), timeout, threshold, &ev)
	return ev, nmore, err
}

// WaitContext is [EVD.Wait] with a context instead of a timeout. It returns InterruptedCall if ctx
// is canceled, and TimeoutExpired if its deadline passes; nmore is set in both cases. errors.Is
// also matches these errors with context.Canceled and context.DeadlineExceeded.
//
// Extension.
func (e *EVD) WaitContext(ctx context.Context, threshold int) (ev Event, nmore int, err error) {
	if ctx == nil {
		return Event{}, 0, e.refuse(fail("evd_wait", InvalidParameter, SubArg2, "ctx is nil"))
	}
	nmore, err = e.wait(ctx, Infinite, threshold, &ev)
	return ev, nmore, err
}

// refuse returns the error of an invalid handle if the handle is invalid. Otherwise it returns its
// argument.
func (e *EVD) refuse(bad error) error {
	if err := e.object().check("evd_wait", HandleEVD); err != nil {
		return err
	}
	return bad
}

// Dequeue returns and removes the first event without blocking. It also works on a dispatcher that
// is disabled or unwaitable. It returns QueueEmpty if there is no event, and InvalidState while a
// call is blocked in Wait. It does not allocate.
//
// Implements: dat_evd_dequeue.
func (e *EVD) Dequeue() (ev Event, err error) {
	_, err = e.dequeue(unsafe.Slice(&ev, 1), 1)
	return ev, err
}

// DequeueBatch dequeues up to len(events) events, oldest first, into events and returns their
// number. It returns QueueEmpty if there is no event. It polls the device once per 32 events.
//
// Extension.
func (e *EVD) DequeueBatch(events []Event) (int, error) { return e.DequeueSpin(events, 1) }

// MaxPolls is the greatest number of polls of one DequeueSpin. On hardware this many polls take
// about 10 microseconds.
const MaxPolls = 1024

// DequeueSpin is like DequeueBatch, but polls an empty queue of the device several times before it
// returns QueueEmpty. The parameter polls is the greatest number of polls, from 1 to [MaxPolls].
// DequeueSpin is for a loop that waits for a completion that will come soon. Each further poll
// costs some nanoseconds in the driver. During the call the dispatcher is locked and the processor
// is busy, but every few milliseconds the call yields to other goroutines. If goroutines of this
// process do the work of the device, as on mem0 and tcp, the call polls once.
//
// Extension.
func (e *EVD) DequeueSpin(events []Event, polls int) (int, error) {
	switch {
	case !e.object().alive():
		return 0, badHandle("evd_dequeue", HandleEVD, e.object())
	case len(events) == 0:
		return 0, fail("evd_dequeue", InvalidParameter, SubArg2, "events is empty")
	case polls < 1 || polls > MaxPolls:
		return 0, fail("evd_dequeue", InvalidParameter, SubArg3, "polls is %d, must be from 1 to %d", polls, MaxPolls)
	}
	return e.dequeue(events, polls)
}

func (e *EVD) dequeue(events []Event, polls int) (int, error) {
	if e == nil || !e.obj.live.Load() {
		return 0, badHandle("evd_dequeue", HandleEVD, e.object())
	}
	e.mu.Lock()
	if e.waiting.blocked() || e.dead {
		defer e.mu.Unlock()
		if e.dead {
			return 0, badHandle("evd_dequeue", HandleEVD, &e.obj)
		}
		return 0, errDequeueWaiter
	}
	n := e.take(events, polls)
	e.unlock()
	if n == 0 {
		return 0, errQueueEmpty
	}
	return n, nil
}

// PostSE queues a software event with the payload ev.Software. It returns QueueFull if the queue is
// full; this does not count as an overflow. ev.Number must be EventSoftware.
//
// Implements: dat_evd_post_se.
func (e *EVD) PostSE(ev Event) error {
	const op = "evd_post_se"
	if err := e.object().check(op, HandleEVD); err != nil {
		return err
	}
	if ev.Number != EventSoftware {
		return fail(op, InvalidParameter, SubArg2, "number %v: only %v can be posted", ev.Number, EventSoftware)
	}
	if e.flags&EVDSoftware == 0 {
		return fail(op, InvalidParameter, SubArg1, "the dispatcher takes no software events: streams %v", e.flags)
	}
	e.mu.Lock()
	defer e.unlock()
	e.drain() // completions that the device has reported occupy places too
	if e.ring.n+e.reserved >= e.qlen {
		return fail(op, QueueFull, SubNone, "all %d places are taken", e.qlen)
	}
	e.push(&Event{Number: EventSoftware, Software: ev.Software}, true)
	e.rouse()
	return nil
}

// Resize changes the length of the queue without losing events. If minQLen is less than the number
// of queued events, or than the threshold of a blocked Wait, Resize changes nothing and returns
// InvalidState.
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
	case e.waiting.blocked() && e.waiting.threshold > minQLen:
		return fail(op, InvalidState, SubStateEVDWaiter, "minQLen is %d, a call waits for %d events", minQLen,
			e.waiting.threshold)
	}
	if err := e.fit(op, minQLen); err != nil && !errors.Is(err, fabric.ErrNotSupported) {
		return err // ErrNotSupported is no error: the completion queue has room for all work in flight already
	}
	e.qlen = minQLen
	e.ring.reserve(minQLen)
	return nil
}

// EVDParam describes an event dispatcher.
type EVDParam struct {
	IA      *IA
	QLen    int // the number of events that the queue holds
	State   EVDState
	CNO     *CNO // nil if there is none
	Streams EVDFlags
}

// Query returns a description of the dispatcher.
//
// Implements: dat_evd_query.
func (e *EVD) Query() (EVDParam, error) {
	const op = "evd_query"
	if err := e.object().check(op, HandleEVD); err != nil {
		return EVDParam{}, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	state := e.streams.config()
	if e.disabled {
		state |= EVDDisabled
	} else {
		state |= EVDEnabled
	}
	if e.unwaitable {
		state |= EVDUnwaitable
	} else {
		state |= EVDWaitable
	}
	return EVDParam{IA: e.obj.ia, QLen: e.qlen, State: state, CNO: e.cno, Streams: e.flags}, nil
}

// SetUnwaitable forbids Wait. When SetUnwaitable returns, a blocked Wait has returned InvalidState,
// and later calls of Wait return InvalidState at once. Events are still queued, can be dequeued,
// and trigger the notification object.
//
// Implements: dat_evd_set_unwaitable.
func (e *EVD) SetUnwaitable() error {
	return e.change("evd_set_unwaitable", func() {
		e.unwaitable = true
		e.evict()
		e.awaitEvicted()
	})
}

// ClearUnwaitable allows Wait again.
//
// Implements: dat_evd_clear_unwaitable.
func (e *EVD) ClearUnwaitable() error {
	return e.change("evd_clear_unwaitable", func() { e.unwaitable = false })
}

// Enable lets notification events trigger the notification object again. Events that came while the
// dispatcher was disabled do not trigger the object later: after Enable the Consumer should dequeue
// these events.
//
// Implements: dat_evd_enable.
func (e *EVD) Enable() error {
	return e.change("evd_enable", func() {
		if e.disabled {
			e.catchUp()
			e.disabled = false
			e.watch()
		}
	})
}

// Disable stops notification events from triggering the notification object. Events are still
// queued, and calls in Wait are not affected. A trigger that began before the call may still
// arrive.
//
// Implements: dat_evd_disable.
func (e *EVD) Disable() error {
	return e.change("evd_disable", func() {
		e.drain() // events that came before the call still trigger
		e.disabled = true
		e.watch()
	})
}

func (e *EVD) change(op string, do func()) error {
	if err := e.object().check(op, HandleEVD); err != nil {
		return err
	}
	e.mu.Lock()
	do()
	e.unlock()
	return nil
}

// ModifyCNO replaces the notification object; nil removes it. Events that came before the call
// trigger the old object. A trigger that began before the call may still arrive at the old object.
//
// Implements: dat_evd_modify_cno.
func (e *EVD) ModifyCNO(cno *CNO) error {
	const op = "evd_modify_cno"
	if err := e.object().check(op, HandleEVD); err != nil {
		return err
	}
	ia := e.obj.ia
	ia.mu.Lock()
	if err := e.object().check(op, HandleEVD); err != nil {
		ia.mu.Unlock()
		return err
	}
	e.mu.Lock()
	old := e.cno
	err := cno.attach(op, ia)
	if err == nil {
		e.catchUp()
		e.cno = cno
		e.watch()
	}
	ia.mu.Unlock()
	e.unlock()
	if err != nil {
		return err
	}
	old.detach(false)
	return nil
}

// Free destroys the dispatcher and its events. It rejects the connection requests whose events
// nobody has dequeued: their peers see NON_PEER_REJECTED, and the endpoints that service points
// provided for these requests are given back, as by [CR.Reject]. A call that is blocked in Wait
// returns Abort. While streams feed the dispatcher, Free returns InvalidState.
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

// destroy destroys a dispatcher whose handle has been released.
func (e *EVD) destroy() {
	e.mu.Lock()
	e.dead = true
	e.awaitNobody()
	var untaken []Handle
	for e.ring.n > 0 {
		var ev Event
		e.pop(&ev) // decrements the count of the shared queue if the event is that of a shared receive
		if ev.CR != nil {
			untaken = append(untaken, ev.CR)
		}
	}
	e.ring = eventRing{} // triggers that nobody takes keep e itself
	e.mu.Unlock()
	destroyEach(slices.DeleteFunc(untaken, func(cr Handle) bool {
		return cr.object().release("evd_free", HandleCR, SubNone, "objects") != nil // the adapter is being closed
	}))
	e.cno.detach(true)
	if e.cq != nil {
		closeUnused(e.cq.Close)
	}
}

// abort ends the blocked call of a dispatcher that is about to be destroyed.
func (e *EVD) abort() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.dead = true
	e.wake()
}

// hasOverrun records that the device has lost completions. From then on Wait returns an error.
func (e *EVD) hasOverrun() {
	e.mu.Lock()
	e.overrun = true
	e.evict()
	e.mu.Unlock()
}

func (e *EVD) concerns(ev fabric.AsyncEvent) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return ev.CQ != nil && e.cq == ev.CQ
}

// sinkEVD returns the dispatcher that discards completions. The first call makes it.
func (ia *IA) sinkEVD(op string) (*EVD, error) {
	if e := ia.sink.Load(); e != nil {
		return e, nil // without ia.mu, because Modify holds locks of higher rank
	}
	ia.mu.Lock()
	defer ia.mu.Unlock()
	if ia.closed {
		return nil, badHandle(op, HandleIA, &ia.obj)
	}
	if e := ia.sink.Load(); e != nil {
		return e, nil
	}
	cq, err := ia.device.CreateCQ(defaultDTOs)
	if err != nil {
		return nil, failAs(op, err, SubResourceTEVD)
	}
	e := &EVD{flags: EVDDTO | EVDRMRBind, qlen: 1, ring: newEventRing(1), cq: cq, discard: true}
	e.waiting.init(&e.mu)
	e.obj.kind, e.obj.ia = HandleEVD, ia
	e.obj.live.Store(true)
	ia.sink.Store(e)
	return e, nil
}
