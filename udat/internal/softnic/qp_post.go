package softnic

import (
	"slices"
	"unsafe"

	"github.com/godat/godat/udat/internal/fabric"
)

// PostSend posts requests and wakes the transport, which starts them.
func (q *QP) PostSend(wrs []fabric.SendWR, sges []fabric.SGE) (int, error) {
	n, err := q.queueSends(wrs, sges)
	if n > 0 {
		q.link.Wake()
	}
	return n, err
}

func (q *QP) queueSends(wrs []fabric.SendWR, sges []fabric.SGE) (int, error) {
	const op = "post send"
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range wrs {
		wr := &wrs[i]
		list, err := segments(op, sges, wr.FirstSGE, wr.NumSGE, q.maxSendSGE)
		length := total(list)
		if err == nil {
			err = q.checkSend(op, wr, length)
		}
		if err == nil {
			err = q.mayPost(op)
		}
		if err != nil {
			return i, err
		}
		s := q.sq.next()
		s.WR, s.Length = *wr, length
		if wr.Flags&fabric.Inline == 0 {
			s.SGEs = append(s.SGEs[:0], list...)
		} else {
			s.Inline = slices.Grow(s.Inline[:0], q.maxInline) // the slot keeps this memory for later requests
			for _, sge := range list {
				var ok bool
				if s.Inline, ok = appendRaw(s.Inline, sge); !ok {
					return i, Invalid(op, "the inline payload is not in memory")
				}
			}
		}
		q.sq.push()
	}
	return len(wrs), nil
}

// checkSend returns an error if wr cannot be posted now; mu is held.
func (q *QP) checkSend(op string, wr *fabric.SendWR, length uint64) error {
	s := qpState(q.state.Load())
	if err := usable(op, s); err != nil {
		return err
	}
	a := &q.dev.HW.Attr
	switch wr.Opcode {
	case fabric.OpSend, fabric.OpSendImm, fabric.OpWrite, fabric.OpRead:
	case fabric.OpWriteImm:
		if !a.WriteImmediate {
			return Failed(op+": RDMA write with immediate", fabric.ErrNotSupported)
		}
	case fabric.OpCmpSwap, fabric.OpFetchAdd:
		if !a.Atomics {
			return Failed(op+": atomic", fabric.ErrNotSupported)
		}
	case fabric.OpSendInv, fabric.OpLocalInv:
		if !a.SendInvalidate {
			return Failed(op+": invalidate", fabric.ErrNotSupported)
		}
	default:
		return Invalid(op, "unknown opcode %d", wr.Opcode)
	}
	switch {
	case s == qpConnected && q.lacks>>wr.Opcode&1 != 0:
		return Failed(op, q.lackErr)
	case s == qpInit:
		return Failed(op+": not connected", fabric.ErrQPState)
	case length > a.MaxMessage:
		return Invalid(op, "length %d is above the limit %d", length, a.MaxMessage)
	case wr.Flags&fabric.Inline != 0 && length > uint64(q.maxInline):
		return Invalid(op, "inline length %d is above the limit %d", length, q.maxInline)
	case wr.Flags&fabric.Inline != 0 && Sinks(wr.Opcode):
		return Invalid(op, "a read or an atomic cannot be inline")
	case q.sq.full():
		return Failed(op, fabric.ErrQueueFull)
	}
	return nil
}

// appendRaw appends a copy of the inline payload that sge describes, in the poster's goroutine. As
// in verbs, the key is ignored.
func appendRaw(to []byte, sge fabric.SGE) (all []byte, ok bool) {
	if sge.Length == 0 {
		return to, true
	}
	addr := uintptr(sge.Addr)
	src := unsafe.Slice(*(**byte)(unsafe.Pointer(&addr)), int(sge.Length))
	n := len(to)
	to = to[:n+len(src)]
	return to, Move(to[n:], src)
}

func (q *QP) PostRecv(wrs []fabric.RecvWR, sges []fabric.SGE) (int, error) {
	const op = "post receive"
	if q.srq != nil {
		return 0, Invalid(op, "the queue pair takes its receives from an SRQ")
	}
	if err := usable(op, qpState(q.state.Load())); err != nil {
		return 0, err
	}
	if err := q.dev.mayPost(op); err != nil {
		return 0, err
	}
	n, err := q.rq.push(op, wrs, sges)
	q.link.Posted()
	if q.is(qpError) { // read after the push: a flush that came before the push has missed the receives
		q.link.Wake()
	}
	return n, err
}
