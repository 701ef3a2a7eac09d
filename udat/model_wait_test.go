package udat_test

import (
	"time"

	"pgregory.net/rapid"

	"github.com/godat/godat/udat"
)

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
		e.w.showsIf(threshold < 1, "EVD-WAIT-03")
		e.w.showsIf(threshold > e.qlen, "EVD-WAIT-04")
	case e.unwaitable:
		isRefused(t, err, udat.InvalidState, udat.SubStateEVDUnwaitable)
		e.w.showsIf(timeout == 0 && e.count > 0, "EVD-WAIT-17 EVD-SETUNW-01")
	case e.waiter != nil:
		isRefused(t, err, udat.InvalidState, udat.SubStateEVDWaiter)
		e.w.shows("EVD-WAIT-15 EVD-30")
	case threshold != 1 && e.controlled():
		isRefused(t, err, udat.InvalidState)
		e.w.shows("EVD-WAIT-05")
	case e.count < threshold:
		isRefused(t, err, udat.TimeoutExpired)
		if nmore != e.count {
			t.Fatalf("%s: %d events are queued, nmore is %d", e.name, e.count, nmore)
		}
		e.w.showsIf(timeout > 0 && e.count > 0, "EVD-WAIT-07")
		e.w.showsIf(timeout == 0, "EVD-WAIT-08")
	default:
		isOK(t, err)
		if nmore != e.count-1 {
			t.Fatalf("%s: nmore is %d, want %d", e.name, nmore, e.count-1)
		}
		e.take(t, ev)
		e.w.shows("EVD-WAIT-01")
		e.w.showsIf(nmore > 0, "EVD-WAIT-11")
		e.w.showsIf(threshold > 1, "EVD-WAIT-10")
		e.w.showsIf(e.rewaited, "EVD-CLRUNW-01")
	}
}

// dequeue takes up to n events.
func (e *mEVD) dequeue(t *rapid.T, n int) {
	events := make([]udat.Event, n)
	got, err := e.evd.DequeueBatch(events)
	switch {
	case e.waiter != nil:
		isRefused(t, err, udat.InvalidState, udat.SubStateEVDWaiter)
		e.w.shows("EVD-DEQ-02 EVD-30")
		return
	case e.count == 0:
		isRefused(t, err, udat.QueueEmpty)
		e.emptied = true
		return
	}
	isOK(t, err)
	if got != min(n, e.count) {
		t.Fatalf("%s: %d of %d events, asked for %d", e.name, got, e.count, n)
	}
	for _, ev := range events[:got] {
		e.take(t, ev)
	}
	e.w.showsIf(e.emptied, "EVD-DEQ-01")
	e.w.showsIf(e.unwaitable && e.disabled, "EVD-DEQ-03")
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
		e.w.shows("EVD-WAIT-18")
	case <-time.After(patience):
		t.Fatalf("%s: unwaitable, and the wait is still blocked", e.name)
	}
	e.waiter = nil
}

// evict ends a blocked call, and leaves the dispatcher waitable.
func (e *mEVD) evict(t *rapid.T) {
	if e.waiter != nil {
		e.unwait(t)
		e.rewait(t)
	}
}

// rewait makes the dispatcher waitable.
func (e *mEVD) rewait(t *rapid.T) {
	isOK(t, e.evd.ClearUnwaitable())
	e.rewaited = e.rewaited || e.unwaitable
	e.unwaitable = false
}

func (e *mEVD) postSE(t *rapid.T) {
	payload := e.w.cookie()
	err := e.evd.PostSE(udat.Event{Number: udat.EventSoftware, Software: payload})
	switch {
	case e.flags&udat.EVDSoftware == 0:
		isRefused(t, err, udat.InvalidParameter)
		e.w.shows("EVD-POSTSE-05")
	case e.count >= e.qlen:
		isRefused(t, err, udat.QueueFull)
		e.w.later(func(*rapid.T) { e.w.showsIf(!e.overfull, "EVD-POSTSE-04 EVD-51") }) // asyncs then finds no overflow of it
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
		e.w.shows("EVD-RESIZE-02")
	case e.waiter != nil && e.waiter.threshold > qlen:
		isRefused(t, err, udat.InvalidState)
	default:
		isOK(t, err)
		count := e.count
		e.w.later(func(*rapid.T) { e.w.showsIf(count > 0, "EVD-RESIZE-01") }) // settle has counted them
		e.qlen = qlen
	}
}

// query compares the result of Query with the model.
func (e *mEVD) query(t *rapid.T) {
	p, err := e.evd.Query()
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
		t.Fatalf("%s: query %+v, want length %d, state 0x%x, streams 0x%x", e.name, p, e.qlen, uint32(state|config),
			uint32(e.flags))
	}
	e.w.showsIf(e.unwaitable && e.disabled, "EVD-QUERY-02")
}
