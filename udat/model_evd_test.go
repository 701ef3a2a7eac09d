package udat_test

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/godat/godat/udat"
)

// want is an event that must be on a dispatcher, or come to it.
type want struct {
	numbers  []udat.EventNumber // any of them
	evd      *mEVD
	ep       *mEP
	op       *mOp             // of a completion
	statuses []udat.DTOStatus // of a completion: any of them
	private  []byte
	soft     any
	notify   bool
	behind   []*want // those of them that are on the same dispatcher have been taken before
	taken    bool
	onTake   func(udat.Event)
}

// mKind is the kind of a stream.
type mKind int

const (
	softStream mKind = iota
	crStream
	connStream
	requestStream
	recvStream
)

type mStream struct {
	ep   *mEP
	kind mKind
}

// mEVD models a dispatcher: what is queued, by stream, since only the events of one stream have an order.
type mEVD struct {
	w          *world
	name       string
	evd        *udat.EVD
	flags      udat.EVDFlags
	completion udat.CompletionFlags // of the streams
	attached   int                  // completion streams
	qlen       int
	streams    map[mStream][]*want
	count      int
	overfull   bool // there have been more events than places
	unwaitable bool
	disabled   bool
	waiter     *mWaiter
}

// mWaiter is a call that is blocked in Wait.
type mWaiter struct {
	threshold int
	notified  bool // a notification event has come
	done      chan waited
}

// controlled says that the Consumer chooses what notifies.
func (e *mEVD) controlled() bool {
	return e.attached > 0 && (e.completion == udat.CompletionUnsignalled || e.completion == udat.CompletionSolicitedWait)
}

// add says that an event must come.
func (e *mEVD) add(s mStream, w *want) {
	if e == nil {
		return
	}
	w.evd = e
	e.streams[s] = append(e.streams[s], w)
	e.count++
	if e.count > e.qlen {
		e.overfull = true
	}
	if e.waiter != nil && w.notify {
		e.waiter.notified = true
	}
}

func streamOf(w *world, ev udat.Event) mStream {
	switch {
	case ev.Number == udat.EventSoftware:
		return mStream{nil, softStream}
	case ev.Number == udat.EventConnectionRequest:
		return mStream{nil, crStream}
	case ev.Number != udat.EventDTOCompletion:
		return mStream{w.byEP[ev.EP], connStream}
	case ev.Operation == udat.DTOReceive:
		return mStream{w.byEP[ev.EP], recvStream}
	}
	return mStream{w.byEP[ev.EP], requestStream}
}

// take accounts for an event that has been taken: it must be the next of its stream.
func (e *mEVD) take(t *rapid.T, ev udat.Event) {
	s := streamOf(e.w, ev)
	if len(e.streams[s]) == 0 {
		t.Fatalf("%s: nobody expects %s", e.name, describe(ev))
	}
	w := e.streams[s][0]
	e.streams[s] = e.streams[s][1:]
	e.count--
	w.taken = true
	if ev.EVD != e.evd {
		t.Fatalf("%s: the event names another dispatcher: %s", e.name, describe(ev))
	}
	if !slices.Contains(w.numbers, ev.Number) {
		t.Fatalf("%s: %s, want %v", e.name, describe(ev), w.numbers)
	}
	for _, b := range w.behind {
		if b.evd == e && !b.taken {
			t.Fatalf("%s: %s comes before what it must follow", e.name, describe(ev))
		}
	}
	what := ev.Number.String()
	if w.op != nil {
		w.op.check(t, e.name, ev, w.statuses)
		what = fmt.Sprintf("%v %v", ev.Operation, ev.Status)
	}
	e.w.seen[what]++
	if !bytes.Equal(ev.PrivateData, w.private) {
		t.Fatalf("%s: %s has private data %q, want %q", e.name, describe(ev), ev.PrivateData, w.private)
	}
	if ev.Software != w.soft {
		t.Fatalf("%s: software event %v, want %v", e.name, ev.Software, w.soft)
	}
	if w.onTake != nil {
		w.onTake(ev)
	}
}

// settle waits until all that must come has come, and checks that nothing else has.
func (e *mEVD) settle(t *rapid.T) {
	if w := e.waiter; w != nil {
		if e.count >= w.threshold && w.notified {
			e.returned(t, time.After(patience))
		} else if e.completion == udat.CompletionSolicitedWait && e.count >= w.threshold {
			// What comes while the queue is being armed counts as solicited.
			select {
			case r := <-w.done:
				e.woken(t, r)
			default:
			}
		}
	}
	got := 0
	if !soon(func() bool { got = udat.Pending(e.evd); return got == e.count }) {
		t.Fatalf("%s: %d events are queued, want %d: %s", e.name, got, e.count, e.missing())
	}
	if w := e.waiter; w != nil && len(w.done) > 0 {
		r := <-w.done
		t.Fatalf("%s: the wait for %d events must be blocked: %s nmore %d %v", e.name, w.threshold, describe(r.ev), r.nmore, r.err)
	}
}

func (e *mEVD) missing() string {
	var s string
	for k, list := range e.streams {
		for _, w := range list {
			s += fmt.Sprintf("\n  stream %d: %v", k.kind, w.numbers)
			if w.op != nil {
				s += fmt.Sprintf(" %v cookie %d %v", w.op.kind, w.op.cookie, w.statuses)
			}
		}
	}
	return s
}

// returned takes the event of the blocked call, which must return.
func (e *mEVD) returned(t *rapid.T, late <-chan time.Time) {
	select {
	case r := <-e.waiter.done:
		e.woken(t, r)
	case <-late:
		t.Fatalf("%s: the wait for %d events is still blocked, %d are queued (flags 0x%x, completion 0x%x, %d streams): %s", e.name, e.waiter.threshold, e.count, uint32(e.flags), uint32(e.completion), e.attached, e.missing())
	}
}

// woken checks what the blocked call has returned.
func (e *mEVD) woken(t *rapid.T, r waited) {
	w := e.waiter
	e.waiter = nil
	if r.err != nil {
		t.Fatalf("%s: the blocked wait: %v", e.name, r.err)
	}
	if r.nmore < w.threshold-1 || r.nmore > e.count-1 {
		t.Fatalf("%s: the blocked wait for %d of %d events: nmore is %d", e.name, w.threshold, e.count, r.nmore)
	}
	e.take(t, r.ev)
}

// soon polls for a condition. It is false if that never holds.
func soon(cond func() bool) bool {
	var end time.Time
	for i := 0; !cond(); i++ {
		switch {
		case i < 20:
			time.Sleep(10 * time.Microsecond)
		case end.IsZero():
			end = time.Now().Add(patience)
		case time.Now().After(end):
			return false
		default:
			time.Sleep(500 * time.Microsecond)
		}
	}
	return true
}

// wait is a call of Wait that cannot block for long.
func (e *mEVD) wait(t *rapid.T) {
	threshold := pick(t, []int{1, 1, 1, 1, 2, 3, 5, e.count, e.count + 1, e.qlen, e.qlen + 1, 0, -1}, "threshold")
	timeout := pick(t, []time.Duration{0, 0, 0, time.Millisecond, -1}, "timeout")
	ev, nmore, err := e.evd.Wait(timeout, threshold)
	switch {
	case timeout < 0:
		isRefused(t, err, udat.InvalidParameter)
	case threshold < 1 || threshold > e.qlen:
		isRefused(t, err, udat.InvalidParameter)
	case e.unwaitable:
		isRefused(t, err, udat.InvalidState, udat.SubStateEVDUnwaitable)
	case e.waiter != nil:
		isRefused(t, err, udat.InvalidState, udat.SubStateEVDWaiter)
	case threshold != 1 && e.controlled():
		isRefused(t, err, udat.InvalidState)
	case e.count < threshold:
		isRefused(t, err, udat.TimeoutExpired)
		if nmore != e.count {
			t.Fatalf("%s: %d events are queued, nmore is %d", e.name, e.count, nmore)
		}
	default:
		isOK(t, err)
		if nmore != e.count-1 {
			t.Fatalf("%s: nmore is %d, want %d", e.name, nmore, e.count-1)
		}
		e.take(t, ev)
	}
}

// dequeue takes up to n events.
func (e *mEVD) dequeue(t *rapid.T, n int) {
	events := make([]udat.Event, n)
	got, err := e.evd.DequeueBatch(events)
	switch {
	case e.waiter != nil:
		isRefused(t, err, udat.InvalidState, udat.SubStateEVDWaiter)
		return
	case e.count == 0:
		isRefused(t, err, udat.QueueEmpty)
		return
	}
	isOK(t, err)
	if got != min(n, e.count) {
		t.Fatalf("%s: %d of %d events, asked for %d", e.name, got, e.count, n)
	}
	for _, ev := range events[:got] {
		e.take(t, ev)
	}
}

// block leaves a call blocked in Wait.
func (e *mEVD) block(t *rapid.T) {
	if e.waiter != nil || e.unwaitable || (e.controlled() && e.count > 0) || e.count >= e.qlen {
		t.Skip()
	}
	threshold := 1
	if !e.controlled() {
		threshold = rapid.IntRange(e.count+1, min(e.qlen, e.count+4)).Draw(t, "threshold")
	}
	w := &mWaiter{threshold: threshold, done: make(chan waited, 1)}
	evd := e.evd
	go func() {
		ev, nmore, err := evd.Wait(udat.Infinite, threshold)
		w.done <- waited{ev, nmore, err}
	}()
	e.waiter = w
	if !soon(func() bool { _, _, err := evd.Wait(0, e.qlen); return isWaiter(err) || len(w.done) > 0 }) {
		t.Fatalf("%s: Wait does not block", e.name)
	}
}

// unwait makes the dispatcher unwaitable, which ends a blocked call.
func (e *mEVD) unwait(t *rapid.T) {
	isOK(t, e.evd.SetUnwaitable())
	e.unwaitable = true
	if e.waiter == nil {
		return
	}
	select {
	case r := <-e.waiter.done:
		isRefused(t, r.err, udat.InvalidState, udat.SubStateEVDUnwaitable)
	case <-time.After(patience):
		t.Fatalf("%s: unwaitable, and the wait is still blocked", e.name)
	}
	e.waiter = nil
}

// evict ends a blocked call, and leaves the dispatcher waitable.
func (e *mEVD) evict(t *rapid.T) {
	if e.waiter != nil {
		e.unwait(t)
		isOK(t, e.evd.ClearUnwaitable())
		e.unwaitable = false
	}
}

func (e *mEVD) postSE(t *rapid.T) {
	payload := e.w.cookie()
	err := e.evd.PostSE(udat.Event{Number: udat.EventSoftware, Software: payload})
	switch {
	case e.flags&udat.EVDSoftware == 0:
		isRefused(t, err, udat.InvalidParameter)
	case e.count >= e.qlen:
		isRefused(t, err, udat.QueueFull)
	default:
		isOK(t, err)
		e.add(mStream{nil, softStream}, &want{numbers: []udat.EventNumber{udat.EventSoftware}, soft: payload, notify: true})
	}
}

func (e *mEVD) resize(t *rapid.T) {
	qlen := pick(t, []int{-1, 0, 1, e.count - 1, e.count, e.count + 1, e.qlen - 1, e.qlen + 3, 8, 16, 40}, "qlen")
	err := e.evd.Resize(qlen)
	switch {
	case qlen <= 0:
		isRefused(t, err, udat.InvalidParameter)
	case qlen < e.count:
		isRefused(t, err, udat.InvalidState)
	case e.waiter != nil && e.waiter.threshold > qlen:
		isRefused(t, err, udat.InvalidState)
	default:
		isOK(t, err)
		e.qlen = qlen
	}
}

// query compares what the dispatcher says of itself.
func (e *mEVD) query(t *rapid.T) {
	p, err := e.evd.Query(udat.EVDFieldAll)
	isOK(t, err)
	state := udat.EVDEnabled | udat.EVDWaitable
	if e.disabled {
		state = state&^udat.EVDEnabled | udat.EVDDisabled
	}
	if e.unwaitable {
		state = state&^udat.EVDWaitable | udat.EVDUnwaitable
	}
	config := udat.EVDConfigNotify
	if e.attached > 0 {
		switch e.completion {
		case udat.CompletionSolicitedWait:
			config = udat.EVDConfigSolicited
		case udat.CompletionEVDThreshold:
			config = udat.EVDConfigThreshold
		}
	}
	if p.QLen != e.qlen || p.State != state|config || p.Streams != e.flags {
		t.Fatalf("%s: query %+v, want length %d, state 0x%x, streams 0x%x", e.name, p, e.qlen, uint32(state|config), uint32(e.flags))
	}
}
