package softnic

import "github.com/godat/godat/udat/internal/fabric"

// Outbound is the memory of one request at its initiator.
type Outbound struct {
	src pieces
	one [1][]byte // a payload that was copied before
}

// Local executes a request that no message is sent for, and reports whether s is one.
func (q *QP) Local(s *Slot) (st fabric.Status, local bool) {
	switch s.WR.Opcode {
	case opBind:
		return s.bind.apply(), true
	case fabric.OpLocalInv:
		if !q.dev.HW.keys.invalidate(s.WR.RKey, q.pd) {
			return fabric.StatusLocalQPOp, true
		}
		return fabric.StatusSuccess, true
	}
	return 0, false
}

// Payload returns n bytes, behind the first skip, of the memory that a request sends, or that its
// answer fills. What it pins is the caller's to release.
func (q *QP) Payload(o *Outbound, s *Slot, skip, n uint64) ([][]byte, fabric.Status) {
	switch {
	case s.WR.Flags&fabric.Inline != 0:
		o.one[0] = s.Inline[skip : skip+n]
		return o.one[:], fabric.StatusSuccess
	case s.Ahead != nil:
		o.one[0] = s.Ahead[skip : skip+n]
		return o.one[:], fabric.StatusSuccess
	}
	var need fabric.Access
	if Sinks(s.WR.Opcode) {
		need = fabric.LocalWrite
		if q.readOut == 0 {
			return nil, fabric.StatusLocalQPOp
		}
	}
	if !o.src.gather(&q.dev.HW.keys, q.pd, s.SGEs, skip, n, need) {
		return nil, fabric.StatusLocalProt
	}
	return o.src.bufs, fabric.StatusSuccess
}

// Release unpins what Payload has pinned.
func (o *Outbound) Release() { o.src.release() }

// GatherAhead reads the payload of the requests behind a read that is under way, up to the first
// fence, as devices may: such a request does not see what the read brings. A payload that cannot be
// read now fails in its turn.
func (q *QP) GatherAhead() {
	var src pieces
	for i := range q.sq.Len() - 1 {
		s := q.sq.At(1 + i)
		if s.bind != nil || s.WR.Flags&fabric.Fence != 0 {
			return
		}
		if s.Ahead != nil || s.Length == 0 || Sinks(s.WR.Opcode) || s.WR.Flags&fabric.Inline != 0 {
			continue
		}
		if src.gather(&q.dev.HW.keys, q.pd, s.SGEs, 0, s.Length, 0) {
			s.Ahead = make([]byte, s.Length)
			Transfer([][]byte{s.Ahead}, src.bufs)
		}
		src.release()
	}
}
