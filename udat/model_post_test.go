package udat_test

import (
	"math/rand/v2"

	"pgregory.net/rapid"

	"github.com/godat/godat/udat"
)

// fault is an error in the arguments of a post, and the error that the post must return.
type fault struct {
	name string
	with udat.ReturnType
}

var (
	recvFaults = []fault{
		{"flag", udat.InvalidParameter}, {"many", udat.InvalidParameter}, {"outside", udat.InvalidParameter},
		{"large", udat.InvalidParameter}, {"gone", udat.PrivilegesViolation}, {"nil", udat.PrivilegesViolation},
		{"foreign", udat.ProtectionViolation}, {"privilege", udat.PrivilegesViolation},
	}
	rdmaFaults = append([]fault{{"none", udat.InvalidParameter}, {"length", udat.LengthError}}, recvFaults...)
)

// memory returns memory of the seat for an operation, in segments of these sizes.
func (s *seat) memory(sizes []int) (iov []udat.LMRTriplet, local [][]byte, total int) {
	at := s.next
	s.next = (s.next + modelSlot) % modelLocal
	for _, n := range sizes {
		if n == 0 {
			iov = append(iov, udat.LMRTriplet{VirtualAddress: 1})
			continue
		}
		iov = append(iov, s.local.Triplet(at, n))
		local = append(local, s.local.Bytes()[at:at+n])
		at += n
		total += n
	}
	return iov, local, total
}

// fill fills the memory with the pattern of the cookie, or with untouched if the operation writes
// to it.
func (o *mOp) fill(sink bool) {
	rng := rand.New(rand.NewPCG(uint64(o.cookie), 0))
	for _, b := range o.local {
		for i := range b {
			if b[i] = untouched; !sink {
				b[i] = byte(rng.Uint32())
				o.data = append(o.data, b[i])
			}
		}
	}
}

// spoil makes a post illegal.
func (w *world) spoil(f fault, iov []udat.LMRTriplet, flags udat.CompletionFlags, sink bool) ([]udat.LMRTriplet,
	udat.CompletionFlags) {
	l := w.readOnly
	if !sink {
		l = w.writeOnly
	}
	valid := w.seats[0].local
	switch f.name {
	case "flag":
		flags |= 0x40
	case "many":
		iov = make([]udat.LMRTriplet, 5)
	case "none":
		iov = nil
	case "outside":
		iov = []udat.LMRTriplet{valid.Triplet(0, 8), {LMR: valid, VirtualAddress: valid.Triplet(modelLocal-8,
			8).VirtualAddress + 1, SegmentLength: 8}}
	case "large":
		iov = []udat.LMRTriplet{valid.Triplet(0, modelLimit), valid.Triplet(0, 1)}
	case "gone":
		iov = []udat.LMRTriplet{{LMR: w.gone, VirtualAddress: valid.Triplet(0, 8).VirtualAddress, SegmentLength: 8}}
	case "nil":
		iov = []udat.LMRTriplet{{SegmentLength: 8}}
	case "foreign":
		iov = []udat.LMRTriplet{w.foreign.Triplet(0, 8)}
	case "privilege":
		iov = []udat.LMRTriplet{l.Triplet(0, 8)}
	}
	return iov, flags
}

// pick draws one element of a list, each with the same probability: rapid's own choice strongly
// prefers the first.
func pick[T any](t *rapid.T, list []T, label string) T {
	return rapid.Custom(func(t *rapid.T) T {
		i := 0
		for n := 1; n < 8*len(list); n *= 2 {
			if i *= 2; rapid.Bool().Draw(t, "bit") {
				i++
			}
		}
		return list[i%len(list)]
	}).Draw(t, label)
}

// oneIn draws true once in n times.
func oneIn(t *rapid.T, n int, label string) bool {
	return pick(t, append(make([]bool, n-1), true), label)
}

func aFault(t *rapid.T, faults []fault) fault {
	if !oneIn(t, 10, "faulty") {
		return fault{}
	}
	return pick(t, faults, "fault")
}

// before brings a connection to rest if a post on it may do more than succeed.
func (ep *mEP) before(t *rapid.T, more bool) (restless bool) {
	busy := ep.loose+ep.silent+max(len(ep.requests), len(ep.recvs)) >= ep.limit()
	if restless = more || ep.w.stirred || busy || !ep.calm(); restless {
		ep.w.settle(t)
	}
	ep.loose++
	return restless
}

// postRecv posts a receive.
func (w *world) postRecv(t *rapid.T) {
	ep := w.anEP(t)
	if ep.shared {
		isRefused(t, ep.ep.PostRecv(nil, 0, 0), udat.InvalidState)
		w.shows("EPST-55 EP-RECV-16")
		return
	}
	f := aFault(t, recvFaults)
	sizes := pick(t, [][]int{{64, 64, 64}, {192}, {100, 0, 92}, {192, 32}}, "sizes")
	if oneIn(t, 10, "small") {
		sizes = pick(t, [][]int{{8}, {}, {3, 4}}, "small sizes")
	}
	iov, local, size := ep.seat.memory(sizes)
	o := &mOp{cookie: w.cookie(), recv: true, local: local, size: size}
	o.fill(true)
	if ep.attr.RecvCompletionFlags == udat.CompletionUnsignalled || oneIn(t, 20, "strange") {
		o.flags = pick(t, []udat.CompletionFlags{0, 0, 0, udat.CompletionUnsignalled, udat.CompletionUnsignalled,
			udat.CompletionSuppress}, "flags")
	}
	if o.flags == udat.CompletionSuppress || o.flags != 0 && ep.attr.RecvCompletionFlags != udat.CompletionUnsignalled {
		f = fault{"flags", udat.InvalidParameter}
	}
	restless := ep.before(t, f.with != 0 || size < modelMessage)
	iov, flags := w.spoil(f, iov, o.flags, true)
	err := ep.ep.PostRecv(iov, o.cookie, flags)
	w.note("\treceive %d of %d bytes, flags %v, fault %q, at rest %v: %v", o.cookie, size, flags, f.name, restless, err)
	switch {
	case f.with != 0:
		isRefused(t, err, f.with)
		return
	case len(ep.recvs) >= ep.attr.MaxRecvDTOs:
		isRefused(t, err, udat.InsufficientResources)
		w.shows("POST-10")
		return
	}
	isOK(t, err)
	w.showsIf(ep.state != udat.EPConnected, "EPST-50 EP-RECV-04")
	w.showsIf(ep.state == udat.EPDisconnectPending, "EPST-54")
	if ep.state == udat.EPDisconnected {
		ep.complete(o, udat.DTOErrFlushed).rules += " EPST-51 EP-RECV-05"
	} else {
		ep.recvs = append(ep.recvs, o)
		ep.holds("")
	}
	if restless {
		w.settle(t)
	}
}

// legalFlags lists the flags that each kind of request accepts.
var legalFlags = map[udat.OpKind]udat.CompletionFlags{
	udat.OpSend: udat.CompletionSuppress | udat.CompletionSolicitedWait | udat.CompletionUnsignalled |
		udat.CompletionBarrierFence,
	udat.OpRDMAWrite: udat.CompletionSuppress | udat.CompletionUnsignalled | udat.CompletionBarrierFence,
	udat.OpRDMARead:  udat.CompletionSuppress | udat.CompletionUnsignalled | udat.CompletionBarrierFence,
}

// legal returns those of the flags that the endpoint accepts.
func (ep *mEP) legal(kind udat.OpKind, flags udat.CompletionFlags) udat.CompletionFlags {
	if flags &= legalFlags[kind]; ep.attr.RequestCompletionFlags != udat.CompletionUnsignalled {
		flags &^= udat.CompletionUnsignalled
	}
	return flags
}

// draw draws a request with its arguments.
func (ep *mEP) draw(t *rapid.T) (o *mOp, iov []udat.LMRTriplet, remote udat.RMRTriplet) {
	sizes := pick(t, [][]int{{8}, {64, 64, 64}, {1}, {192}, {3, 0, 5, 7}, {0}, {}}, "sizes")
	o = &mOp{cookie: ep.w.cookie()}
	o.kind = pick(t, []udat.OpKind{udat.OpSend, udat.OpSend, udat.OpSend, udat.OpRDMAWrite, udat.OpRDMARead}, "kind")
	if o.kind != udat.OpSend && len(sizes) == 0 {
		sizes = []int{16}
	}
	iov, o.local, o.size = ep.seat.memory(sizes)
	o.length = o.size
	o.fill(o.kind == udat.OpRDMARead)
	o.flags = pick(t, []udat.CompletionFlags{0, 0, udat.CompletionSuppress, udat.CompletionSolicitedWait,
		udat.CompletionUnsignalled,
		udat.CompletionBarrierFence, udat.CompletionSuppress | udat.CompletionBarrierFence}, "flags")
	if !oneIn(t, 20, "strange") {
		o.flags = ep.legal(o.kind, o.flags)
	}
	if o.kind == udat.OpSend {
		return o, iov, remote
	}
	if o.kind == udat.OpRDMARead {
		o.length = rapid.IntRange(0, o.size).Draw(t, "length")
	}
	if o.length == 0 {
		o.flags &^= udat.CompletionSuppress // nothing would show when it is done
	}
	o.remote = rapid.IntRange(0, modelTarget-modelSlot).Draw(t, "remote")
	to := ep.seat
	if ep.peer != nil {
		to = ep.peer.seat
	}
	spare := 0
	if o.kind == udat.OpRDMAWrite {
		spare = rapid.IntRange(0, 8).Draw(t, "spare")
	}
	remote = to.target.RMRTriplet(o.remote, o.length+spare)
	if window, ok := ep.use(t, o); ok {
		return o, iov, window
	}
	if o.length > 0 && oneIn(t, 30, "bad") {
		o.bad = true
		switch rapid.IntRange(0, 2).Draw(t, "badly") {
		case 0:
			remote.TargetAddress += modelTarget
		case 1:
			remote.RMRContext = ep.w.foreign.RMRContext()
			remote.TargetAddress = ep.w.foreign.RMRTriplet(0, 8).TargetAddress
		case 2:
			l := ep.w.readOnly
			if o.kind == udat.OpRDMARead {
				l = ep.w.writeOnly
			}
			remote.RMRContext, remote.TargetAddress = l.RMRContext(), l.RMRTriplet(0, 8).TargetAddress
		}
	}
	return o, iov, remote
}

// sends returns the number of sends that wait for receives of the peer.
func (ep *mEP) sends() int {
	n := 0
	for _, o := range ep.requests {
		if o.kind == udat.OpSend {
			n++
		}
	}
	return n
}

// call posts a request.
func (ep *mEP) call(o *mOp, iov []udat.LMRTriplet, flags udat.CompletionFlags, remote udat.RMRTriplet) error {
	switch o.kind {
	case udat.OpSend:
		return ep.ep.PostSend(iov, o.cookie, flags)
	case udat.OpRDMAWrite:
		return ep.ep.PostRDMAWrite(iov, o.cookie, remote, flags)
	}
	return ep.ep.PostRDMARead(iov, o.cookie, remote, flags)
}

// flushRule is the rule that a request posted in DISCONNECTED is flushed at once.
var flushRule = map[udat.OpKind]string{
	udat.OpSend: "EPST-52 EP-SEND-03", udat.OpRDMARead: "EPST-52 EP-READ-04", udat.OpRDMAWrite: "EPST-53 EP-WRITE-03",
}

// post posts a request.
func (w *world) post(t *rapid.T) {
	ep := w.anEP(t)
	o, iov, remote := ep.draw(t)
	faults := rdmaFaults
	if o.kind == udat.OpSend {
		faults = recvFaults
	}
	if o.kind == udat.OpSend && ep.moving() && !w.stalls && ep.sends() >= len(ep.peer.held()) {
		t.Skip()
	}
	f := aFault(t, faults)
	if f.name == "length" {
		if o.kind == udat.OpRDMAWrite {
			remote.SegmentLength = uint64(o.size) - 1
		} else {
			remote.SegmentLength = uint64(o.size) + 1
		}
		if o.size == 0 && o.kind == udat.OpRDMAWrite {
			f = fault{}
			remote.SegmentLength = 0
		}
	}
	if o.flags != ep.legal(o.kind, o.flags) {
		f = fault{"flags", udat.InvalidParameter}
	}
	restless := ep.before(t, f.with != 0 || o.bad || o.length > modelMessage)
	iov, flags := w.spoil(f, iov, o.flags, o.kind == udat.OpRDMARead)
	if f.name == "large" && o.kind != udat.OpSend {
		remote.SegmentLength = modelLimit + 1
	}
	err := ep.call(o, iov, flags, remote)
	w.note("\t%v %d of %d bytes, flags %v, fault %q, bad %v, at rest %v: %v", modelOperations[o.kind], o.cookie,
		o.length, flags, f.name, o.bad, restless, err)
	switch {
	case ep.state != udat.EPConnected && ep.state != udat.EPDisconnected:
		isRefused(t, err, udat.InvalidState)
		return
	case f.with != 0:
		isRefused(t, err, f.with)
		return
	case len(ep.requests) >= ep.attr.MaxRequestDTOs:
		isRefused(t, err, udat.InsufficientResources)
		w.shows("POST-10")
		return
	case err != nil && len(ep.requests) > 0 && len(ep.requests)+ep.silent >= ep.attr.MaxRequestDTOs:
		isRefused(t, err, udat.InsufficientResources)
		return // successful suppressed requests keep their slots while a later request is stuck
	}
	isOK(t, err)
	if ep.state == udat.EPDisconnected {
		ep.complete(o, udat.DTOErrFlushed).rules += " " + flushRule[o.kind]
	} else {
		ep.requests = append(ep.requests, o)
		w.brokeEP = w.brokeEP || o.bad || o.kind == udat.OpSend
	}
	if restless {
		w.settle(t)
	}
}
