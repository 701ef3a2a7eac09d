package udat_test

import (
	"pgregory.net/rapid"

	"github.com/godat/godat/udat"
)

// batch posts several requests with one call, one of them perhaps illegal.
func (w *world) batch(t *rapid.T) {
	ep := w.anEP(t)
	n := rapid.IntRange(1, 4).Draw(t, "n")
	spoiled := n
	if oneIn(t, 6, "faulty") {
		spoiled = rapid.IntRange(0, n-1).Draw(t, "which")
	}
	var ops []udat.Op
	var list []*mOp
	more := spoiled < n || ep.loose+ep.silent+len(ep.requests)+n >= ep.limit()
	sends := 0
	for i := range n {
		o, iov, remote := ep.draw(t)
		o.flags = ep.legal(o.kind, o.flags)
		more = more || o.bad || o.length > modelMessage
		if o.kind == udat.OpSend {
			sends++
		}
		op := udat.Op{Kind: o.kind, Flags: o.flags, Cookie: o.cookie, IOV: iov, Remote: remote}
		if i == spoiled {
			op.Flags |= 0x40
		}
		ops, list = append(ops, op), append(list, o)
	}
	if ep.moving() && !w.stalls && ep.sends()+sends > len(ep.peer.held()) {
		t.Skip()
	}
	restless := ep.before(t, more)
	ep.loose += n - 1
	posted, err := ep.ep.PostBatch(ops)
	w.note("\tbatch of %d from cookie %d, number %d spoiled, at rest %v: %d, %v", n, list[0].cookie, spoiled, restless,
		posted, err)
	if ep.state != udat.EPConnected && ep.state != udat.EPDisconnected {
		isRefused(t, err, udat.InvalidState)
		list = nil
	} else {
		room := ep.attr.MaxRequestDTOs - len(ep.requests)
		want, why := n, udat.ReturnType(0)
		switch {
		case spoiled < n && spoiled <= room:
			want, why = spoiled, udat.InvalidParameter
		case room < n:
			want, why = room, udat.InsufficientResources
		}
		if posted < want && len(ep.requests) > 0 && posted >= room-ep.silent {
			want, why = posted, udat.InsufficientResources // successful suppressed requests keep their slots
		}
		if why != 0 {
			isRefused(t, err, why)
		} else {
			isOK(t, err)
		}
		list = list[:want]
	}
	if posted != len(list) {
		t.Fatalf("%d of the batch are posted, want %d: %v", posted, len(list), err)
	}
	for _, o := range list {
		if ep.state == udat.EPDisconnected {
			ep.complete(o, udat.DTOErrFlushed)
			continue
		}
		ep.requests = append(ep.requests, o)
		w.brokeEP = w.brokeEP || o.bad || o.kind == udat.OpSend
	}
	if restless {
		w.settle(t)
	}
}

// limit returns the smallest limit of the queues of the endpoint. A shared receive queue does not
// count.
func (ep *mEP) limit() int {
	if ep.shared {
		return ep.attr.MaxRequestDTOs
	}
	return min(ep.attr.MaxRecvDTOs, ep.attr.MaxRequestDTOs)
}

// modify changes an attribute of an endpoint, which keeps the receives that are posted.
func (w *world) modify(t *rapid.T) {
	s := pick(t, w.seats, "seat")
	ep := s.ep
	if ep == nil || ep.shared {
		t.Skip()
	}
	attr := ep.attr
	field := pick(t, []udat.EPField{
		udat.EPFieldMaxRecvDTOs, udat.EPFieldMaxRecvDTOs, udat.EPFieldMaxRequestDTOs, udat.EPFieldMaxMessageSize,
		udat.EPFieldState,
	}, "field")
	switch field {
	case udat.EPFieldMaxRecvDTOs:
		attr.MaxRecvDTOs = rapid.IntRange(2, 2*modelQueue).Draw(t, "receives")
	case udat.EPFieldMaxRequestDTOs:
		attr.MaxRequestDTOs = rapid.IntRange(3, 2*modelQueue).Draw(t, "requests")
	case udat.EPFieldMaxMessageSize:
		attr.MaxMessageSize = uint64(rapid.IntRange(256, modelLimit).Draw(t, "size"))
	}
	err := ep.ep.Modify(field, udat.EPParam{Attr: attr})
	w.note("\tmodify field 0x%x of %#v with %d receives to %d, %d, %d: %v", uint32(field), ep, len(ep.recvs),
		attr.MaxRecvDTOs, attr.MaxRequestDTOs, attr.MaxMessageSize, err)
	switch {
	case field == udat.EPFieldState:
		isRefused(t, err, udat.InvalidParameter)
	case ep.state != udat.EPUnconnected && !ep.reserved():
		isRefused(t, err, udat.InvalidState)
		w.shows("EP-MODIFY-09")
	case attr.MaxRecvDTOs < len(ep.recvs):
		isRefused(t, err, udat.InvalidParameter)
	default:
		isOK(t, err)
		ep.attr = attr
	}
	p, err := ep.ep.Query()
	isOK(t, err)
	have := [3]uint64{uint64(p.Attr.MaxRecvDTOs), uint64(p.Attr.MaxRequestDTOs), p.Attr.MaxMessageSize}
	want := [3]uint64{uint64(ep.attr.MaxRecvDTOs), uint64(ep.attr.MaxRequestDTOs), ep.attr.MaxMessageSize}
	if have != want || p.State != ep.state {
		t.Fatalf("the endpoint is %v with %v, want %v with %v", p.State, have, ep.state, want)
	}
}
