package udat_test

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/godat/godat/udat"
)

// want is an event that must be on a dispatcher or must still come to it.
type want struct {
	numbers  []udat.EventNumber // any of them
	evd      *mEVD
	ep       *mEP
	op       *mOp             // of a completion
	statuses []udat.DTOStatus // of a completion: any of them
	private  []byte
	soft     any
	point    udat.Handle // of a connection request: its service point, nil for a reserved one
	notify   bool
	behind   []*want // those of them that are on the same dispatcher have been taken before
	taken    bool
	rules    string // the rules that this event shows
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

// mEVD models a dispatcher: what is queued, by stream, since only the events of one stream have an
// order.
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
	rewaited   bool             // it has been unwaitable and is waitable again
	emptied    bool             // it has been found empty
	before     map[mStream]bool // an event of the stream has been taken
	disabled   bool
	waiter     *mWaiter
	cno        *mCNO // nil: none
}

// mWaiter is a call that is blocked in Wait.
type mWaiter struct {
	threshold int
	notified  bool // a notification event has come
	done      chan waited
}

// controlled reports whether the Consumer chooses which completions notify.
func (e *mEVD) controlled() bool { return e.attached > 0 && e.chosen() }

// chosen reports the same for streams that may be attached.
func (e *mEVD) chosen() bool {
	return e.completion == udat.CompletionUnsignalled || e.completion == udat.CompletionSolicitedWait
}

// add records that an event must come.
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
	if w.notify && e.count <= e.qlen {
		e.notified()
	} else {
		e.mayTrigger()
		if e.waiter != nil && w.notify {
			e.waiter.notified = true
		}
	}
}

func streamOf(w *world, ev udat.Event) mStream {
	switch {
	case ev.Number == udat.EventSoftware:
		return mStream{nil, softStream}
	case ev.Number == udat.EventConnectionRequest:
		return mStream{nil, crStream}
	case ev.Number != udat.EventDTOCompletion && ev.Number != udat.EventRMRBindCompletion:
		return mStream{w.byEP[ev.EP], connStream}
	case ev.Operation == udat.DTOReceive:
		return mStream{w.byEP[ev.EP], recvStream}
	}
	return mStream{w.byEP[ev.EP], requestStream}
}

// take checks a dequeued event: it must be the next event of its stream.
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
		good := b.op != nil && b.statuses[0] == udat.DTOSuccess
		e.w.showsIf(b.evd == e && s.kind == connStream && good, "EPST-42 EP-DISC-10")
		e.w.showsIf(b.evd == e && s.kind == recvStream, "EVD-46")
	}
	what := ev.Number.String()
	if w.op != nil {
		w.op.check(t, e.name, ev, w.statuses)
		what = fmt.Sprintf("%v %v", ev.Operation, ev.Status)
		if w.op.shared {
			e.w.srq.unreaped--
			e.w.shows("SRQ-POST-03")
		}
	}
	e.w.seen[what]++
	if !bytes.Equal(ev.PrivateData(), w.private) {
		t.Fatalf("%s: %s has private data %q, want %q", e.name, describe(ev), ev.PrivateData(), w.private)
	}
	if s.kind == crStream && ev.Object != w.point {
		t.Fatalf("%s: the request came to %v, want %v", e.name, ev.Object, w.point)
	}
	if ev.Software != w.soft {
		t.Fatalf("%s: software event %v, want %v", e.name, ev.Software, w.soft)
	}
	e.w.shows(w.rules)
	e.w.showsIf(e.before[s], "EVD-40 EVD-WAIT-22")
	e.w.showsIf(e.before[s] && s.kind == requestStream, "POST-15")
	e.w.showsIf(e.before[s] && s.kind == recvStream, "EP-RECV-14 EVD-44")
	e.w.showsIf(s.kind == softStream, "EVD-POSTSE-01")
	if e.before == nil {
		e.before = map[mStream]bool{}
	}
	e.before[s] = true
	if w.onTake != nil {
		w.onTake(ev)
	}
}

// settle waits until all events that must come have come, and checks that no other event has.
func (e *mEVD) settle(t *rapid.T) {
	if w := e.waiter; w != nil {
		if e.count >= w.threshold && w.notified {
			e.returned(t, time.After(patience))
		} else if e.completion == udat.CompletionSolicitedWait && e.count >= w.threshold {
			// A completion that comes while the queue is being armed counts as solicited.
			select {
			case r := <-w.done:
				e.woken(t, r)
			default:
			}
		}
	}
	got := 0
	if !soon(func() bool { got = udat.Pending(e.evd); return got == e.count }) {
		t.Fatalf("%s: %d events are queued, want %d: %s\n  queued: %s", e.name, got, e.count, e.missing(), e.queued())
	}
	if w := e.waiter; w != nil && len(w.done) > 0 {
		r := <-w.done
		t.Fatalf("%s: the wait for %d events must be blocked: %s nmore %d %v", e.name, w.threshold, describe(r.ev), r.nmore,
			r.err)
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

// queued dequeues the events, for the text of a failure.
func (e *mEVD) queued() string {
	var s string
	for {
		ev, err := e.evd.Dequeue()
		if err != nil {
			return s
		}
		s += "\n  " + describe(ev)
	}
}

// returned waits for the blocked call, which must return, and checks its event.
func (e *mEVD) returned(t *rapid.T, late <-chan time.Time) {
	select {
	case r := <-e.waiter.done:
		e.woken(t, r)
	case <-late:
		t.Fatalf("%s: the wait for %d events is still blocked, %d are queued (flags 0x%x, completion 0x%x, %d streams): %s",
			e.name, e.waiter.threshold, e.count, uint32(e.flags), uint32(e.completion), e.attached, e.missing())
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
	e.w.showsIf(r.nmore > 0, "EVD-WAIT-11")
	e.w.showsIf(e.controlled() && r.nmore > 0, "EVD-WAIT-30")
	e.take(t, r.ev)
	e.w.shows("EVD-WAIT-01")
}

// soon polls for a condition. It returns false if the condition does not become true.
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
