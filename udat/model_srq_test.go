package udat_test

import (
	"pgregory.net/rapid"

	"github.com/godat/godat/udat"
)

// mSRQ models the shared receive queue. One seat uses it, so that the order in which its receives
// are taken is known.
type mSRQ struct {
	srq      *udat.SRQ
	max      int
	pool     []*mOp // on the queue, oldest first
	unreaped int    // completed, and the event has not been taken
	low      mark
	exact    bool
	used     bool // by a seat
	memory   *seat
}

// postShared posts a receive to the shared queue.
func (w *world) postShared(t *rapid.T) {
	s := w.srq
	if !s.used {
		t.Skip()
	}
	f := aFault(t, recvFaults)
	if f.name == "flag" || f.name == "large" {
		f = fault{} // there are no flags, and no limit but the segments
	}
	sizes := pick(t, [][]int{{64, 64, 64}, {192}, {100, 92}, {192, 32}, {192}, {8}, {}}, "sizes")
	iov, local, size := s.memory.memory(sizes)
	o := &mOp{cookie: w.cookie(), recv: true, shared: true, local: local, size: size}
	o.fill(true)
	iov, _ = w.spoil(f, iov, 0, true)
	err := s.srq.PostRecv(iov, o.cookie)
	w.note("\tshared receive %d of %d bytes, fault %q: %v", o.cookie, size, f.name, err)
	switch {
	case f.with != 0:
		isRefused(t, err, f.with)
		w.shows("SRQ-POST-11")
	case len(s.pool)+s.unreaped >= s.max:
		isRefused(t, err, udat.InsufficientResources)
	default:
		isOK(t, err)
		s.pool = append(s.pool, o)
	}
}

// next takes the receive for a message to the endpoint, or returns nil if there is none.
func (ep *mEP) next() *mOp {
	list := &ep.recvs
	if ep.shared {
		list = &ep.w.srq.pool
	}
	if len(*list) == 0 {
		return nil
	}
	o := (*list)[0]
	*list = (*list)[1:]
	if ep.shared {
		ep.w.srq.fell("SRQ-SETLW-01")
	}
	return o
}

// held returns the receives that the next messages to the endpoint will take.
func (ep *mEP) held() []*mOp {
	if ep.shared {
		return ep.w.srq.pool
	}
	return ep.recvs
}

func (s *mSRQ) fell(rules string) {
	if len(s.pool) < s.low.value {
		s.low.passed(rules)
	}
}

// setLow sets the low watermark.
func (w *world) setLow(t *rapid.T) {
	s := w.srq
	if s.srq == nil || !s.exact {
		t.Skip()
	}
	low := rapid.IntRange(-1, s.max+1).Draw(t, "low")
	err := s.srq.SetLW(low)
	switch {
	case low < 0 || low > s.max:
		isRefused(t, err, udat.InvalidParameter)
		return
	case low == 0:
		isOK(t, err)
		s.low.armed = false
		return
	}
	isOK(t, err)
	s.low.set(low)
	s.fell("SRQ-SETLW-03")
}

// settle compares the queries of the shared queue with the model.
func (s *mSRQ) settle(t *rapid.T, w *world) {
	if s.srq == nil {
		return
	}
	available := len(s.pool)
	if !s.exact {
		available = udat.ValueUnknown
	}
	var p udat.SRQParam
	if !soon(func() bool {
		var err error
		p, err = s.srq.Query()
		isOK(t, err)
		return p.AvailableDTOCount == available && p.OutstandingDTOCount == len(s.pool)+s.unreaped
	}) {
		t.Fatalf("the shared queue has %d available and %d outstanding, want %d and %d",
			p.AvailableDTOCount, p.OutstandingDTOCount, available, len(s.pool)+s.unreaped)
	}
	w.showsIf(s.unreaped > 0, "SRQ-QUERY-01")
}
