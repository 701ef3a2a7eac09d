package udat

import (
	"math"
	"slices"
	"sync/atomic"

	"github.com/godat/godat/udat/internal/fabric"
)

// A work request id of a shared queue consists of the bit sharedID, 24 bits of generation and 24
// bits of slot.
const (
	srqGenPos   = 24
	srqPartMask = 1<<24 - 1
)

// SRQAttr are the attributes of a shared receive queue.
type SRQAttr struct {
	MaxRecvDTOs  int // number of receives that the queue holds, at least 1
	MaxRecvIOV   int // number of segments of each receive
	LowWatermark int // must be SRQLWDefault; SetLW sets the watermark later
}

// CreateSRQ makes a shared receive queue of at least the size in attr.
//
// Implements: dat_srq_create.
func (ia *IA) CreateSRQ(pz *PZ, attr SRQAttr) (*SRQ, error) {
	const op = "srq_create"
	if err := ia.object().check(op, HandleIA); err != nil {
		return nil, err
	}
	if err := pz.object().check(op, HandlePZ); err != nil {
		return nil, err
	}
	dev := ia.device.Attr()
	switch {
	case dev.MaxSRQ == 0:
		return nil, fail(op, ModelNotSupported, SubNone, "the device has no shared receive queues")
	case attr.MaxRecvDTOs < 1 || attr.MaxRecvDTOs > maxSRQDepth(&dev):
		return nil, fail(op, InvalidParameter, SubArg3, "MaxRecvDTOs is %d, must be from 1 to %d", attr.MaxRecvDTOs,
			maxSRQDepth(&dev))
	case attr.MaxRecvIOV < 0 || attr.MaxRecvIOV > dev.MaxSRQSGE:
		return nil, fail(op, InvalidParameter, SubArg3, "MaxRecvIOV is %d, must be from 0 to %d", attr.MaxRecvIOV,
			dev.MaxSRQSGE)
	case attr.LowWatermark != SRQLWDefault:
		return nil, fail(op, InvalidParameter, SubArg3,
			"LowWatermark is %d, must be SRQLWDefault: an empty queue is below any", attr.LowWatermark)
	}
	var used uses
	if err := used.take(op, &pz.obj, HandlePZ); err != nil {
		return nil, err
	}
	if err := sameIA(op, ia, &pz.obj); err != nil {
		used.drop()
		return nil, err
	}
	iov := max(attr.MaxRecvIOV, 1)
	hw, err := pz.pd.CreateSRQ(attr.MaxRecvDTOs, iov)
	if err != nil {
		used.drop()
		return nil, failAs(op, err, SubResourceSRQ)
	}
	s := &SRQ{pz: pz, hw: hw, maxIOV: iov, maxRecv: attr.MaxRecvDTOs, sges: make([]fabric.SGE, 0, iov)}
	s.growSlots(attr.MaxRecvDTOs)
	if err := ia.adopt(op, &s.obj, s, HandleSRQ, nil); err != nil {
		hw.Close()
		used.drop()
		return nil, err
	}
	return s, nil
}

// maxSRQDepth returns the greatest number of receives of a shared queue. A work request id has 24
// bits for the slot.
func maxSRQDepth(d *fabric.Attr) int { return min(d.MaxSRQWR, srqPartMask) }

func (s *SRQ) growSlots(to int) {
	for n := len(s.slots); n < to; n++ {
		s.slots = append(s.slots, srqSlot{})
		s.free = append(s.free, uint32(n))
	}
}

// PostRecv posts a receive, which any connected endpoint of the queue may consume. The receive
// completes, with the cookie, on the receive dispatcher of the endpoint that consumed it. PostRecv
// neither blocks nor allocates. The errors are those of EP.PostRecv, with the zone of the queue,
// and InsufficientResources if MaxRecvDTOs receives are in flight or completed and not dequeued.
//
// Implements: dat_srq_post_recv.
func (s *SRQ) PostRecv(iov []LMRTriplet, cookie Cookie) error {
	one := [1]Recv{{IOV: iov, Cookie: cookie}}
	_, err := s.PostRecvBatch(one[:])
	return err
}

// PostRecvBatch posts the receives in order, in chunks of up to 64, each with one call into C, like
// [SRQ.PostRecv]. Their Flags must be 0. It returns the number of receives posted. If this number
// is less than len(recvs), the error is that of the next receive.
//
// Extension.
func (s *SRQ) PostRecvBatch(recvs []Recv) (posted int, err error) {
	if s == nil {
		return 0, badHandle(srqPost, HandleSRQ, nil)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.obj.live.Load() {
		return 0, badHandle(srqPost, HandleSRQ, &s.obj)
	}
	for posted < len(recvs) && err == nil {
		s.wrs, s.sges = s.wrs[:0], s.sges[:0]
		var bad error
		for i := posted; i < min(len(recvs), posted+batchMax) && bad == nil; i++ {
			bad = s.prepare(&recvs[i])
		}
		n := 0
		if len(s.wrs) > 0 {
			n, err = s.submit()
		}
		if posted += n; err == nil {
			err = bad
		}
	}
	return posted, err
}

const srqPost = "srq_post_recv"

// prepare checks a receive and adds it to the batch. It counts the receive, because it may complete
// before the post returns.
func (s *SRQ) prepare(r *Recv) error {
	switch {
	case r.Flags != 0:
		return fail(srqPost, InvalidParameter, SubNone, "flags %v: a shared queue takes none", r.Flags)
	case len(r.IOV) > s.maxIOV:
		return fail(srqPost, InvalidParameter, SubArg2, "%d segments, the limit is %d", len(r.IOV), s.maxIOV)
	}
	first := len(s.sges)
	sges, _, _, err := appendSegments(s.sges, srqPost, r.IOV, PrivLocalWrite, s.pz, math.MaxUint64)
	if err != nil {
		return err
	}
	if int(s.outstanding.Load()) >= s.maxRecv || len(s.free) == 0 {
		return fail(srqPost, InsufficientResources, SubResourceSRQ, "all %d receives (MaxRecvDTOs) are in flight", s.maxRecv)
	}
	s.sges = sges
	slot := s.free[len(s.free)-1]
	s.free = s.free[:len(s.free)-1]
	sl := &s.slots[slot]
	sl.gen = (sl.gen + 1) & srqPartMask
	sl.cookie, sl.busy = r.Cookie, true
	s.outstanding.Add(1)
	s.queued++
	s.wrs = append(s.wrs, fabric.RecvWR{ID: sharedID | uint64(sl.gen)<<srqGenPos | uint64(slot),
		FirstSGE: uint32(first), NumSGE: uint32(len(sges) - first)})
	return nil
}

// submit posts the batch. It returns how many of its receives the device has taken.
func (s *SRQ) submit() (int, error) {
	n, err := s.hw.PostRecv(s.wrs, s.sges)
	if err == nil {
		return n, nil
	}
	for _, wr := range slices.Backward(s.wrs[n:]) {
		slot := uint32(wr.ID & srqPartMask)
		s.slots[slot].busy = false
		s.free = append(s.free, slot)
		s.outstanding.Add(-1)
		s.queued--
	}
	return n, failAs(srqPost, err, SubResourceSRQ)
}

// claim implements sharedQueue. It frees the slot of the work request.
func (s *SRQ) claim(id uint64) (Cookie, *atomic.Int32, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	slot := uint32(id & srqPartMask)
	if int(slot) >= len(s.slots) || !s.slots[slot].busy || uint64(s.slots[slot].gen) != id>>srqGenPos&srqPartMask {
		return 0, nil, false
	}
	s.slots[slot].busy = false
	s.free = append(s.free, slot)
	s.queued--
	return s.slots[slot].cookie, &s.outstanding, true
}

// SRQState is the state of a shared receive queue.
type SRQState uint32

// Shared receive queue states.
const (
	SRQOperational SRQState = 0
	SRQError       SRQState = 1
)

// SRQParam describes a shared receive queue. A count that the device does not report is
// ValueUnknown.
type SRQParam struct {
	IA                  *IA
	State               SRQState
	PZ                  *PZ
	MaxRecvDTOs         int
	MaxRecvIOV          int
	LowWatermark        int
	AvailableDTOCount   int // receives on the queue that no endpoint has taken
	OutstandingDTOCount int // receives on the queue, held by endpoints, or completed and not dequeued
}

// Query returns a description of the queue.
//
// Implements: dat_srq_query.
func (s *SRQ) Query() (SRQParam, error) {
	const op = "srq_query"
	if err := s.object().check(op, HandleSRQ); err != nil {
		return SRQParam{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p := SRQParam{
		IA: s.obj.ia, PZ: s.pz, MaxRecvDTOs: s.maxRecv, MaxRecvIOV: s.maxIOV, LowWatermark: s.lowMark,
		AvailableDTOCount: ValueUnknown, OutstandingDTOCount: int(s.outstanding.Load()),
	}
	if s.obj.ia.device.Attr().SRQExactCounts {
		p.AvailableDTOCount = s.hw.Available()
	}
	if s.failed {
		p.State = SRQError
	}
	return p, nil
}

// Resize changes the capacity, in receives, without losing receives. It returns InvalidState if
// maxRecv is less than the number of outstanding receives or than the low watermark. The device's
// own queue may stay larger.
//
// Implements: dat_srq_resize.
func (s *SRQ) Resize(maxRecv int) error {
	const op = "srq_resize"
	if err := s.object().check(op, HandleSRQ); err != nil {
		return err
	}
	dev := s.obj.ia.device.Attr()
	limit := maxSRQDepth(&dev)
	if maxRecv < 1 || maxRecv > limit {
		return fail(op, InvalidParameter, SubArg2, "capacity is %d, must be from 1 to %d", maxRecv, limit)
	}
	for _, e := range s.obj.ia.dispatchers() {
		if err := e.growShare(op, s, maxRecv); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if outstanding := int(s.outstanding.Load()); maxRecv < outstanding || maxRecv < s.lowMark {
		return fail(op, InvalidState, SubNone, "capacity is %d, %d receives are outstanding and the low watermark is %d",
			maxRecv, outstanding, s.lowMark)
	}
	if maxRecv > s.hw.Depth() {
		if err := s.hw.Resize(maxRecv); err != nil {
			return failAs(op, err, SubResourceSRQ)
		}
	}
	s.growSlots(maxRecv)
	s.maxRecv = maxRecv
	return nil
}

// SetLW sets the low watermark to n and arms it. As soon as fewer than n receives are on the queue,
// which may be at once, one asynchronous event is queued. A further call sets another value and
// arms the watermark again; the value 0 disarms the watermark.
//
// Implements: dat_srq_set_lw.
func (s *SRQ) SetLW(n int) error {
	const op = "srq_set_lw"
	if err := s.object().check(op, HandleSRQ); err != nil {
		return err
	}
	s.drain()
	s.mu.Lock()
	if n < 0 || n > s.maxRecv {
		s.mu.Unlock()
		return fail(op, InvalidParameter, SubArg2, "low watermark is %d, must be from 0 to %d", n, s.maxRecv)
	}
	s.lowMark, s.lowArmed = n, n > 0
	s.mu.Unlock()
	if s.checkLow() {
		return nil
	}
	if err := s.hw.SetLimit(n); err != nil {
		return failAs(op, err, SubResourceSRQ)
	}
	s.drain()
	s.checkLow() // some devices report only receives that are taken after SetLimit
	return nil
}

// drain drains all dispatchers, so that the number of receives is current.
func (s *SRQ) drain() {
	for _, e := range s.obj.ia.dispatchers() {
		e.poll()
	}
}

// checkLow queues the event of the low watermark if the watermark is armed and the queue has fewer
// receives than the watermark. In that case it disarms the watermark and returns true.
func (s *SRQ) checkLow() (low bool) {
	s.mu.Lock()
	low = s.lowArmed && s.available() < s.lowMark
	s.lowArmed = s.lowArmed && !low
	s.mu.Unlock()
	if low {
		s.tellLow()
	}
	return low
}

// available returns the number of receives on the queue, or an upper bound if the device does not
// count the receives.
func (s *SRQ) available() int {
	if n := s.hw.Available(); n >= 0 {
		return n
	}
	return s.queued
}

func (s *SRQ) tellLow() {
	s.obj.ia.async(nil, &Event{Number: EventAsyncSRQLowWatermark, Object: s, Reason: ReasonSRQLowWatermark})
}

func (s *SRQ) asyncEvent(kind fabric.AsyncKind) {
	switch kind {
	case fabric.AsyncSRQLimit:
		s.mu.Lock()
		armed := s.lowArmed
		s.lowArmed = false
		s.mu.Unlock()
		if armed {
			s.tellLow()
		}
	case fabric.AsyncSRQError:
		s.mu.Lock()
		s.failed = true
		s.mu.Unlock()
		s.obj.ia.async(nil, &Event{Number: EventAsyncProviderInternalError, Object: s, Reason: ReasonSRQTransferToError})
	}
}

func (s *SRQ) concerns(ev fabric.AsyncEvent) bool { return ev.SRQ != nil && s.hw == ev.SRQ }

// Free destroys the queue and drops its receives. It returns InvalidState while an endpoint uses
// the queue.
//
// Implements: dat_srq_free.
func (s *SRQ) Free() error {
	if err := s.object().release("srq_free", HandleSRQ, SubStateSRQInUse, "endpoints"); err != nil {
		return err
	}
	s.destroy()
	return nil
}

func (s *SRQ) destroy() {
	closeUnused(s.hw.Close)
	s.pz.obj.unuse()
	s.mu.Lock()
	s.slots, s.free, s.sges = nil, nil, nil // unread events keep s itself
	s.mu.Unlock()
}
