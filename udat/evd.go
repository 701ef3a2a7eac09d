package udat

import (
	"context"
	"errors"
	"slices"
	"time"
	"unsafe"

	"github.com/godat/godat/udat/internal/fabric"
)

// CreateEVD makes a dispatcher of at least minQLen events that takes the given streams. It is
// enabled and waitable. Notification events trigger cno, which may be nil, while no call is blocked
// in Wait.
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

// Wait blocks until threshold events are queued, takes the first of them, and returns the number
// left. If completions notify at the Consumer's choice (UNSIGNALLED, SOLICITED_WAIT), threshold
// must be 1, and the call blocks until a notification event comes; it returns the first event on
// the queue, which may be an older one.
//
// timeout counts from the call; 0 polls and Infinite never expires. Errors: TimeoutExpired (no
// event is taken, nmore is the number queued), InvalidParameter (threshold below 1 or above the
// queue's length, negative timeout), InvalidState (another call waits, the dispatcher is or becomes
// unwaitable, threshold is not 1 where it must be, or the device has lost completions), Abort (the
// dispatcher is freed or the adapter closed), InvalidHandle. A blocked call holds a goroutine. On
// Linux it holds a thread for up to 4 ms if its previous wait was as short; such calls take at most
// half of the processors.
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

// WaitContext is [EVD.Wait] that ends with ctx instead of a timeout. A canceled ctx is
// InterruptedCall, a ctx past its deadline TimeoutExpired; errors.Is also matches context.Canceled
// and context.DeadlineExceeded. nmore is set in both cases.
//
// Extension.
func (e *EVD) WaitContext(ctx context.Context, threshold int) (ev Event, nmore int, err error) {
	if ctx == nil {
		return Event{}, 0, e.refuse(fail("evd_wait", InvalidParameter, SubArg2, "ctx is nil"))
	}
	nmore, err = e.wait(ctx, Infinite, threshold, &ev)
	return ev, nmore, err
}

// refuse returns the error of an invalid handle if the handle is invalid, else bad.
func (e *EVD) refuse(bad error) error {
	if err := e.object().check("evd_wait", HandleEVD); err != nil {
		return err
	}
	return bad
}

// Dequeue takes the first event without blocking. It works on disabled and unwaitable dispatchers
// too; while a call is blocked in Wait it is InvalidState. An empty queue is QueueEmpty. It
// allocates nothing.
//
// Implements: dat_evd_dequeue.
func (e *EVD) Dequeue() (ev Event, err error) {
	_, err = e.dequeue(unsafe.Slice(&ev, 1), 1)
	return ev, err
}

// DequeueBatch takes up to len(events) events, oldest first, and returns their number; an empty
// queue is QueueEmpty. It polls the device once per 32 events.
//
// Extension.
func (e *EVD) DequeueBatch(events []Event) (int, error) { return e.DequeueSpin(events, 1) }

// MaxPolls is the largest number of polls of one DequeueSpin; on hardware they take about 10
// microseconds.
const MaxPolls = 1024

// DequeueSpin is DequeueBatch that polls the device up to polls times, 1 to [MaxPolls], before it
// returns QueueEmpty: for a loop that waits for a completion that will come soon. Each further poll
// costs some nanoseconds in the driver. The dispatcher is locked and the processor busy meanwhile;
// every few milliseconds other goroutines run. A device whose work is done by goroutines is polled
// once.
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

// PostSE queues a software event with the given payload. A full queue is QueueFull and does not
// overflow.
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
	e.drain() // completions of the device take places too
	if e.ring.n+e.reserved >= e.qlen {
		return fail(op, QueueFull, SubNone, "all %d places are taken", e.qlen)
	}
	e.push(&Event{Number: EventSoftware, Software: ev.Software}, true)
	e.rouse()
	return nil
}

// Resize changes the queue's length. No event is lost. A length below the number of queued events,
// or below the threshold of a blocked Wait, is InvalidState and changes nothing.
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
		return err // a queue that cannot grow has room for all work in flight; events wait in the ring
	}
	e.qlen = minQLen
	e.ring.reserve(minQLen)
	return nil
}

// EVDParam describes an event dispatcher.
type EVDParam struct {
	IA      *IA
	QLen    int // the number of events that it holds
	State   EVDState
	CNO     *CNO // nil: none
	Streams EVDFlags
}

// Query describes the dispatcher.
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

// SetUnwaitable forbids Wait: a blocked call has returned InvalidState when SetUnwaitable returns,
// later calls fail at once. Events still arrive, can be dequeued, and trigger the notification
// object.
//
// Implements: dat_evd_set_unwaitable.
func (e *EVD) SetUnwaitable() error {
	return e.change("evd_set_unwaitable", func() {
		e.unwaitable = true
		e.evict()
		e.awaitEvicted()
	})
}

// ClearUnwaitable permits Wait again.
//
// Implements: dat_evd_clear_unwaitable.
func (e *EVD) ClearUnwaitable() error {
	return e.change("evd_clear_unwaitable", func() { e.unwaitable = false })
}

// Enable lets notification events trigger the notification object again. Events that came while the
// dispatcher was disabled do not trigger it: dequeue after enabling.
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

// Disable keeps events from triggering the notification object. They are still queued, and waiters
// are not affected. A trigger that has begun may still arrive.
//
// Implements: dat_evd_disable.
func (e *EVD) Disable() error {
	return e.change("evd_disable", func() {
		e.drain() // events that came before trigger
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

// ModifyCNO replaces the notification object; nil is none. Events that came before trigger the old
// one, and a trigger that has begun may still arrive there.
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

// Free destroys the dispatcher and its events. Connection requests that nobody has taken are
// refused: their peers see NON_PEER_REJECTED, and the endpoints that they brought come back as with
// [CR.Reject]. While streams feed the dispatcher this is InvalidState; a call that is blocked in
// Wait returns Abort.
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

// destroy ends a dispatcher whose handle has been released.
func (e *EVD) destroy() {
	e.mu.Lock()
	e.dead = true
	e.awaitNobody()
	var untaken []Handle
	for e.ring.n > 0 {
		var ev Event
		e.pop(&ev) // frees the place of a shared queue's receive
		if ev.CR != nil {
			untaken = append(untaken, ev.CR)
		}
	}
	e.mu.Unlock()
	destroyEach(slices.DeleteFunc(untaken, func(cr Handle) bool {
		return cr.object().release("evd_free", HandleCR, SubNone, "objects") != nil // the adapter is being closed
	}))
	e.cno.detach(true)
	if e.cq != nil {
		closeUnused(e.cq.Close)
	}
}

// abort ends the blocked call of a dispatcher that will be destroyed.
func (e *EVD) abort() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.dead = true
	e.wake()
}

// hasOverrun notes that the device has lost completions: from now on Wait fails.
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

// sinkEVD returns the dispatcher that discards completions, and makes it at the first call.
func (ia *IA) sinkEVD(op string) (*EVD, error) {
	if e := ia.sink.Load(); e != nil {
		return e, nil // without ia.mu: Modify holds locks of higher rank
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
