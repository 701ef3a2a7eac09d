package udat_test

import (
	"bytes"
	"slices"

	"pgregory.net/rapid"

	"github.com/godat/godat/udat"
)

// mOp models one request or receive.
type mOp struct {
	cookie udat.Cookie
	kind   udat.OpKind
	recv   bool
	flags  udat.CompletionFlags
	local  [][]byte // the memory of its segments
	size   int      // bytes of the local segments
	data   []byte   // of a send or a write
	length int      // bytes that it moves; of a receive what has come
	remote int      // offset in the peer's memory
	shared bool     // a receive of the shared queue
	bind   *mBind   // of a bind
	shows  string   // what its success shows
	bad    bool     // the peer's memory does not permit it
}

var modelOperations = map[udat.OpKind]udat.DTOOperation{
	udat.OpSend: udat.DTOSend, udat.OpRDMAWrite: udat.DTORDMAWrite, udat.OpRDMARead: udat.DTORDMARead,
	opBind: udat.DTOBind,
}

// check compares a completion.
func (o *mOp) check(t *rapid.T, name string, ev udat.Event, statuses []udat.DTOStatus) {
	op := modelOperations[o.kind]
	if o.recv {
		op = udat.DTOReceive
	}
	if ev.Cookie != o.cookie || ev.Operation != op || !slices.Contains(statuses, ev.Status) {
		t.Fatalf("%s: %s, want op %v cookie %d status %v", name, describe(ev), op, o.cookie, statuses)
	}
	if ev.Status == udat.DTOSuccess && ev.Length != uint64(o.length) {
		t.Fatalf("%s: %s, want length %d", name, describe(ev), o.length)
	}
}

// untouched is the byte with which local memory is filled before a receive or a read writes to it.
const untouched = 0xEE

// got checks the local memory of a receive or a read: it contains the data in the order of the
// segments, and nothing else was written. For a suppressed read nothing shows when it is done.
func (o *mOp) got(t *rapid.T, data []byte) {
	var have []byte
	if !soon(func() bool {
		have = slices.Concat(o.local...)
		return bytes.Equal(have[:len(data)], data)
	}) || bytes.Count(have[len(data):], []byte{untouched}) != len(have)-len(data) {
		t.Fatalf("cookie %d: memory has %x, want %x and then 0x%x only", o.cookie, have, data, untouched)
	}
}

// mEP models an endpoint.
type mEP struct {
	w    *world
	ep   *udat.EP
	seat *seat
	attr udat.EPAttr

	state      udat.EPState
	peer       *mEP   // in a connection
	request    *mCR   // of its connection request, until that is answered
	greeting   *want  // ESTABLISHED
	requests   []*mOp // posted and not completed
	recvs      []*mOp
	sent       []*want // completions that have come since the connection began
	silent     int     // suppressed requests that have succeeded since the last completion
	loose      int     // posts and completions since the world was last at rest; they may still be in progress
	statusSeen [2]int  // of the receives and the requests: which values of idle have been seen, as bits

	shared bool // it takes receives from the shared queue
	soft   mark
	hard   int  // the hard watermark
	marked bool // the hard watermark has been passed and is still set

	target []byte // what its memory for the peer's RDMA must hold
}

// mCR models a connection request.
type mCR struct {
	cr       *udat.CR // nil until the event is taken
	from     *mEP
	private  []byte
	brings   *mEP // the endpoint that the request brings; one of the provider's only after it has a seat
	provided bool // it came to the service point whose requests bring endpoints
}

func (ep *mEP) moving() bool {
	return ep.state == udat.EPConnected || ep.state == udat.EPDisconnectPending
}

// complete records that the completion event of an operation must come.
func (ep *mEP) complete(o *mOp, statuses ...udat.DTOStatus) *want {
	good := statuses[0] == udat.DTOSuccess
	if good && o.flags&udat.CompletionSuppress != 0 {
		ep.silent++
		return nil
	}
	if !o.recv {
		ep.loose += ep.silent
		ep.silent = 0
	}
	w := &want{numbers: []udat.EventNumber{udat.EventDTOCompletion}, ep: ep, op: o, statuses: statuses}
	if o.shared {
		ep.w.srq.unreaped++
	}
	if o.kind == opBind {
		w.numbers = []udat.EventNumber{udat.EventRMRBindCompletion}
	}
	switch {
	case good:
		w.rules = o.shows
	case o.flags&udat.CompletionSuppress != 0:
		w.rules = "EPST-56 F-04"
	default:
		w.rules = "EP-DISC-02"
	}
	w.notify = !good || o.flags&udat.CompletionUnsignalled == 0
	ep.sent = append(ep.sent, w)
	if o.recv {
		w.behind = []*want{ep.greeting}
		if ep.greeting == nil {
			w.behind = nil
		}
		if good && ep.attr.RecvCompletionFlags == udat.CompletionSolicitedWait {
			w.notify = false // unless the sender has asked
		}
		ep.seat.recv.add(mStream{ep, recvStream}, w)
	} else {
		ep.seat.request.add(mStream{ep, requestStream}, w)
	}
	return w
}

// tell records that a connection event must come.
func (ep *mEP) tell(rules string, private []byte, behind []*want, numbers ...udat.EventNumber) *want {
	w := &want{rules: rules, numbers: numbers, ep: ep, private: private, notify: true, behind: behind}
	ep.seat.conn.add(mStream{ep, connStream}, w)
	return w
}

// establish enters CONNECTED.
func (ep *mEP) establish(peer *mEP, private []byte, rules string) {
	ep.state, ep.peer, ep.sent = udat.EPConnected, peer, nil
	ep.greeting = ep.tell(rules, private, nil, udat.EventConnectionEstablished)
}

// end enters DISCONNECTED: the work in flight is flushed, and then the event comes, which shows the
// rules.
func (ep *mEP) end(rules string, events ...udat.EventNumber) {
	ep.state, ep.peer, ep.request = udat.EPDisconnected, nil, nil
	for _, o := range slices.Concat(ep.requests, ep.recvs) {
		o.lost()
		ep.complete(o, udat.DTOErrFlushed).rules += " EPST-40"
	}
	ep.requests, ep.recvs = nil, nil
	ep.tell(rules, nil, ep.sent, events...)
	ep.sent, ep.greeting, ep.silent = nil, nil, 0
}

// run makes all progress that connections make by themselves.
func (w *world) run(t *rapid.T) {
	for again := true; again; {
		again = false
		for _, s := range w.seats {
			ep := s.ep
			if ep == nil || !ep.moving() {
				continue
			}
			for ep.moving() && ep.peer != nil && len(ep.requests) > 0 && ep.step() {
				again = true
			}
			if ep.state == udat.EPDisconnectPending && len(ep.requests) == 0 {
				ep.part("EPST-30 EP-DISC-04")
				again = true
			}
		}
	}
}

// part disconnects gracefully from this end.
func (ep *mEP) part(rules string) {
	peer := ep.peer
	ep.end(rules, udat.EventConnectionDisconnected)
	peer.end("EPST-33", udat.EventConnectionDisconnected)
}

// step executes the first request, if the peer is ready for it.
func (ep *mEP) step() bool {
	o, peer := ep.requests[0], ep.peer
	if o.bad {
		ep.requests = ep.requests[1:]
		ep.complete(o, udat.DTOErrRemoteAccess)
		ep.end("", udat.EventConnectionBroken, udat.EventConnectionDisconnected)
		peer.end("", udat.EventConnectionBroken, udat.EventConnectionDisconnected)
		return true
	}
	switch o.kind {
	case udat.OpSend:
		r := peer.next()
		if r == nil {
			return false
		}
		if o.length > r.size {
			ep.requests = ep.requests[1:]
			ep.complete(o, tooLong...)
			ep.end("", udat.EventConnectionBroken, udat.EventConnectionDisconnected)
			peer.complete(r, udat.DTOErrLocalLength)
			peer.end("POST-16", udat.EventConnectionBroken)
			return true
		}
		r.length = o.length
		if c := peer.complete(r, udat.DTOSuccess); c != nil && o.flags&udat.CompletionSolicitedWait != 0 &&
			peer.attr.RecvCompletionFlags == udat.CompletionSolicitedWait {
			c.notify = true
			peer.seat.recv.notified()
		}
		data := o.data
		ep.w.later(func(t *rapid.T) { r.got(t, data) })
	case opBind:
		o.bind.done()
	case udat.OpRDMAWrite:
		copy(peer.target[o.remote:], o.data)
	case udat.OpRDMARead:
		data := bytes.Clone(peer.target[o.remote:][:o.length])
		ep.w.later(func(t *rapid.T) { o.got(t, data) })
	}
	ep.requests = ep.requests[1:]
	ep.complete(o, udat.DTOSuccess)
	ep.loose++
	peer.loose++
	return true
}

// tooLong lists the statuses of a Send whose message is longer than the receive.
var tooLong = []udat.DTOStatus{udat.DTOErrRemoteResponder, udat.DTOErrTransport, udat.DTOErrFlushed}

// calm reports whether all posts on the connection must succeed, so that the model need not wait
// for each.
func (ep *mEP) calm() bool {
	if ep.state != udat.EPConnected || ep.peer.state != udat.EPConnected {
		return false
	}
	for _, end := range []*mEP{ep, ep.peer} {
		for _, o := range end.requests {
			if o.bad {
				return false
			}
		}
		if end.soft.armed || end.hard != udat.WatermarkInfinite {
			return false
		}
		for _, o := range end.held() {
			if o.size < modelMessage {
				return false
			}
		}
	}
	return true
}
