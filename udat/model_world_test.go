package udat_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"pgregory.net/rapid"

	"github.com/godat/godat/udat"
	"github.com/godat/godat/udat/internal/rule"
)

// seat is a place for an endpoint: the dispatchers stay, endpoints come and go.
type seat struct {
	recv, request, conn *mEVD
	recvFlags, reqFlags udat.CompletionFlags
	ep                  *mEP // nil: free
	local, target       *udat.LMR
	srq                 bool     // its endpoints take receives from the shared queue
	window              *mWindow // nil: the device has none
	next                int      // offset of the local memory to use next
}

// world is one adapter with everything that the model knows about it.
type world struct {
	ia       *udat.IA
	pz       *udat.PZ
	psp      *udat.PSP
	cr       *mEVD
	evds     []*mEVD
	seats    []*seat
	byEP     map[*udat.EP]*mEP
	dead     []*udat.EP
	requests []*mCR
	cookies  udat.Cookie
	due      []func(*rapid.T) // to be checked when everything has come
	stalls   bool             // a send without a receive stops nothing that was posted before it
	stirred  bool             // the latest step was no post: what it does may still be under way
	brokeEP  bool
	done     map[string]int // steps
	seen     map[string]int // events
	proven   *rule.Ledger   // of the rules whose checks have run
	trace    []string

	cno          *mCNO
	srq          *mSRQ
	provider     *udat.PSP // its requests bring endpoints
	reservedQual udat.ConnQual
	rsp          *udat.RSP // on reservedQual; nil: none
	rspEP        *mEP

	readOnly, writeOnly, foreign, gone *udat.LMR
}

const (
	modelSeats   = 3
	modelMessage = 192 // the largest send
	modelLimit   = 512 // MaxMessageSize and MaxRDMASize
	modelQueue   = 6   // MaxRecvDTOs and MaxRequestDTOs, until they are modified
	modelTarget  = 1024
	modelBacklog = 64 // requests that have not been answered, at the most
	modelSlot    = 256
	modelLocal   = 64 << 10
)

func newWorld(t *rapid.T, dev string, proven *rule.Ledger) *world {
	ia, err := udat.Open(dev)
	isOK(t, err)
	t.Cleanup(func() { ia.Close(udat.CloseAbrupt) })
	w := &world{ia: ia, byEP: map[*udat.EP]*mEP{}, cookies: 1 << 40, proven: proven}
	w.stalls = udat.DeviceAttr(ia).EnforcesRNR
	w.pz, err = ia.CreatePZ()
	isOK(t, err)
	other, err := ia.CreatePZ()
	isOK(t, err)
	w.readOnly = w.lmr(t, w.pz, modelSlot, udat.PrivLocalRead|udat.PrivRemoteRead)
	w.writeOnly = w.lmr(t, w.pz, modelSlot, udat.PrivLocalWrite|udat.PrivRemoteWrite)
	w.foreign = w.lmr(t, other, modelSlot, udat.PrivAll)
	w.gone = w.lmr(t, w.pz, modelSlot, udat.PrivAll)
	isOK(t, w.gone.Free())
	w.cr = w.newEVD(t, "requests", udat.EVDCR|udat.EVDSoftware, 0, modelBacklog)
	_, w.psp, err = ia.CreatePSPAny(w.cr.evd, udat.PSPConsumer)
	isOK(t, err)
	_, w.provider, err = ia.CreatePSPAny(w.cr.evd, udat.PSPProvider)
	isOK(t, err)
	reserved, psp, err := ia.CreatePSPAny(w.cr.evd, udat.PSPConsumer)
	isOK(t, err)
	isOK(t, psp.Free())
	w.reservedQual = reserved
	w.cno = &mCNO{}
	w.cno.cno, err = ia.CreateCNO(nil)
	isOK(t, err)
	w.srq = &mSRQ{max: 2 * modelQueue, exact: udat.DeviceAttr(ia).SRQExactCounts}
	w.srq.memory = &seat{local: w.lmr(t, w.pz, modelLocal, udat.PrivAll)}
	if udat.DeviceAttr(ia).MaxSRQ > 0 {
		w.srq.srq, err = ia.CreateSRQ(w.pz, udat.SRQAttr{MaxRecvDTOs: w.srq.max, MaxRecvIOV: 3})
		isOK(t, err)
	}
	for i := range modelSeats {
		w.seats = append(w.seats, w.newSeat(t, i))
		w.create(t, w.seats[i])
	}
	return w
}

func (w *world) lmr(t *rapid.T, pz *udat.PZ, size int, priv udat.MemPriv) *udat.LMR {
	l, err := w.ia.AllocLMR(pz, size, priv)
	isOK(t, err)
	return l
}

func (w *world) newEVD(t *rapid.T, name string, flags udat.EVDFlags, completion udat.CompletionFlags, qlen int) *mEVD {
	evd, err := w.ia.CreateEVD(qlen, flags, nil)
	isOK(t, err)
	e := &mEVD{w: w, name: name, evd: evd, flags: flags, completion: completion, qlen: qlen,
		streams: map[mStream][]*want{}}
	w.evds = append(w.evds, e)
	return e
}

// newSeat makes dispatchers in one of the allowed combinations of streams and completion flags.
func (w *world) newSeat(t *rapid.T, i int) *seat {
	const (
		apart = iota
		counting
		shared
		merged
		unsignalled
		solicited
		sharing // receives of the shared queue
		ways
	)
	way := rapid.IntRange(0, ways-1).Draw(t, "way")
	qlen := pick(t, []int{3, 8, 40}, "qlen")
	s := &seat{
		local:  w.lmr(t, w.pz, modelLocal, udat.PrivAll),
		target: w.lmr(t, w.pz, modelTarget, udat.PrivAll),
	}
	var recv, request = udat.EVDDTO | udat.EVDSoftware, udat.EVDDTO | udat.EVDRMRBind | udat.EVDSoftware
	switch way {
	case counting:
		s.recvFlags, s.reqFlags = udat.CompletionEVDThreshold, udat.CompletionEVDThreshold
	case merged:
		s.recvFlags, s.reqFlags = udat.CompletionEVDThreshold, udat.CompletionEVDThreshold
		recv |= udat.EVDConnection
	case unsignalled:
		s.recvFlags, s.reqFlags = udat.CompletionUnsignalled, udat.CompletionUnsignalled
		recv, request = udat.EVDDTO, udat.EVDDTO|udat.EVDRMRBind
	case solicited:
		s.recvFlags, recv = udat.CompletionSolicitedWait, udat.EVDDTO
	case sharing:
		s.srq = w.srq.srq != nil && !w.srq.used
		w.srq.used = w.srq.used || s.srq
	}
	if udat.DeviceAttr(w.ia).MaxMW > 0 {
		rmr, err := w.pz.CreateRMR()
		isOK(t, err)
		s.window = &mWindow{rmr: rmr}
	}
	name := func(what string) string { return fmt.Sprintf("seat %d %s", i, what) }
	s.recv = w.newEVD(t, name("recv"), recv, s.recvFlags, qlen)
	s.request, s.conn = s.recv, s.recv
	if way != shared && way != merged {
		s.request = w.newEVD(t, name("request"), request, s.reqFlags, qlen)
	}
	if way != merged {
		s.conn = w.newEVD(t, name("conn"), udat.EVDConnection|udat.EVDSoftware, 0, qlen)
	}
	return s
}

func (w *world) cookie() udat.Cookie {
	w.cookies++
	return w.cookies
}

// note records a step, for the text of a failure.
func (w *world) note(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf(format, args...))
}

// later defers a check until all expected events have come.
func (w *world) later(check func(*rapid.T)) { w.due = append(w.due, check) }

// settle waits until all expected events have come, and compares all objects with the model.
func (w *world) settle(t *rapid.T) {
	w.run(t)
	w.stirred = false
	for _, e := range w.evds {
		e.settle(t)
	}
	for _, s := range w.seats {
		if s.ep != nil {
			s.ep.settle(t)
		}
	}
	w.srq.settle(t, w)
	for _, check := range w.due {
		check(t)
	}
	w.due = w.due[:0]
	for _, s := range w.seats {
		if s.ep != nil && !soon(func() bool { return bytes.Equal(s.target.Bytes(), s.ep.target) }) {
			t.Fatalf("the memory that the peer writes to has\n%x, want\n%x", s.target.Bytes(), s.ep.target)
		}
	}
	if !soon(func() bool { w.asyncs(t); return w.marksDue() == 0 }) {
		t.Fatalf("%d watermark events do not come", w.marksDue())
	}
}

// marksDue returns the number of watermark events that must come.
func (w *world) marksDue() int {
	n := w.srq.low.due
	for _, s := range w.seats {
		if s.ep != nil {
			n += s.ep.soft.due
		}
	}
	return n
}

// asyncs dequeues the asynchronous events and checks that the model expects each of them.
func (w *world) asyncs(t *rapid.T) {
	for {
		ev, err := w.ia.AsyncEVD().Dequeue()
		if errors.Is(err, udat.ErrQueueEmpty) {
			return
		}
		isOK(t, err)
		switch ev.Number {
		case udat.EventAsyncEVDOverflow:
			known := false
			for _, e := range w.evds {
				known = known || (e.evd == ev.Object && e.overfull)
			}
			if !known {
				t.Fatalf("overflow of a dispatcher that has room")
			}
		case udat.EventAsyncEPBroken:
			if !w.brokeEP {
				t.Fatalf("an endpoint is told broken that is not")
			}
		case udat.EventAsyncEPSoftHighWatermark:
			w.byEP[ev.EP].soft.came(w, t, "an endpoint")
		case udat.EventAsyncSRQLowWatermark:
			w.srq.low.came(w, t, "the shared queue")
		default:
			t.Fatalf("asynchronous event %v", ev.Number)
		}
	}
}

// settle compares the queries of the endpoint with the model.
func (ep *mEP) settle(t *rapid.T) {
	ep.loose = 0
	var state udat.EPState
	var recvIdle, requestIdle bool
	none := len(ep.recvs) == 0
	if ep.shared && !ep.w.srq.exact { // the device does not tell: a connection may hold some
		none = none && !slices.Contains([]udat.EPState{udat.EPActiveConnectionPending, udat.EPCompletionPending,
			udat.EPConnected, udat.EPDisconnectPending}, ep.state)
	}
	if !soon(func() bool {
		var err error
		state, recvIdle, requestIdle, err = ep.ep.GetStatus()
		isOK(t, err)
		return state == ep.state && recvIdle == none && requestIdle == (len(ep.requests) == 0)
	}) {
		t.Fatalf("endpoint is %v, receives idle %v, requests idle %v; want %v with %d and %d outstanding",
			state, recvIdle, requestIdle, ep.state, len(ep.recvs), len(ep.requests))
	}
	ep.statusSeen[0] |= 1 << b2i(recvIdle)
	ep.statusSeen[1] |= 1 << b2i(requestIdle)
	ep.w.showsIf(ep.statusSeen == [2]int{3, 3}, "EP-STATUS-02")
	ep.w.showsIf(state == udat.EPDisconnectPending && !requestIdle, "EPST-29")
	n, span, err := ep.ep.RecvQuery()
	isOK(t, err)
	if ep.shared && !ep.w.srq.exact {
		if n != udat.ValueUnknown || span != udat.ValueUnknown {
			t.Fatalf("recv_query: %d receives in a span of %d, which the device does not tell", n, span)
		}
		ep.w.shows("EP-RECVQ-08")
		return
	}
	if n != len(ep.recvs) || span != n {
		t.Fatalf("recv_query: %d receives in a span of %d, want %d", n, span, len(ep.recvs))
	}
	ep.w.showsIf(n > 1, "EP-RECVQ-02 EP-RECVQ-06")
}
