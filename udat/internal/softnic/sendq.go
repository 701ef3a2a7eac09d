package softnic

import (
	"slices"
	"sync/atomic"

	"github.com/godat/godat/udat/internal/fabric"
)

// SendQueue is a ring of preallocated slots. Posters fill the next free slot under QP.mu. The
// transport works on the posted slots.
type SendQueue struct {
	slots      []Slot
	head, tail atomic.Uint64 // numbers of slots popped and pushed since the creation
}

// Slot is one posted request.
type Slot struct {
	WR     fabric.SendWR
	Length uint64 // bytes of SGEs
	SGEs   []fabric.SGE
	Inline []byte
	Ahead  []byte // the payload, if GatherAhead has copied it; only the transport uses it
	bind   *binding
}

func (s *SendQueue) init(depth, maxSGE int) {
	s.slots = make([]Slot, depth)
	sges := make([]fabric.SGE, depth*maxSGE)
	for i := range s.slots {
		s.slots[i].SGEs = slices.Clip(sges[i*maxSGE : (i+1)*maxSGE])
	}
}

// Len returns the number of requests that are posted and not completed.
func (s *SendQueue) Len() int { return int(s.tail.Load() - s.head.Load()) }

func (s *SendQueue) full() bool { return s.Len() == len(s.slots) }

// Head and Tail return the numbers of requests completed and posted so far.
func (s *SendQueue) Head() uint64 { return s.head.Load() }
func (s *SendQueue) Tail() uint64 { return s.tail.Load() }

// Slot returns the slot of request n, counted from 0.
func (s *SendQueue) Slot(n uint64) *Slot { return &s.slots[n%uint64(len(s.slots))] }

// Depth returns the number of slots.
func (s *SendQueue) Depth() int { return len(s.slots) }

// next returns the slot that the next push will add.
func (s *SendQueue) next() *Slot { return s.Slot(s.tail.Load()) }

func (s *SendQueue) push() { s.tail.Add(1) }

// First returns the oldest slot. Posters do not touch it before it is popped.
func (s *SendQueue) First() *Slot { return s.Slot(s.head.Load()) }

func (s *SendQueue) pop() {
	first := s.First()
	if first.bind != nil {
		first.bind = nil
	}
	if first.Ahead != nil {
		first.Ahead = nil
	}
	s.head.Add(1)
}

// segments returns the segments that a work request names: sges[first:first+n]. It returns an error
// if n is greater than limit, if the segments are not all in sges, or if one of them is empty.
func segments(op string, sges []fabric.SGE, first, n uint32, limit int) ([]fabric.SGE, error) {
	if int64(n) > int64(limit) {
		return nil, Invalid(op, "%d segments are above the limit %d", n, limit)
	}
	if uint64(first)+uint64(n) > uint64(len(sges)) {
		return nil, Invalid(op, "segments %d to %d are not in the %d given", first, uint64(first)+uint64(n), len(sges))
	}
	list := sges[first : first+n]
	for i := range list {
		if list[i].Length == 0 {
			return nil, Invalid(op, "segment %d is empty, which means 2 GiB to some devices", i)
		}
	}
	return list, nil
}

// total returns the number of bytes that sges describe.
func total(sges []fabric.SGE) uint64 {
	var n uint64
	for i := range sges {
		n += uint64(sges[i].Length)
	}
	return n
}

// opBind is the operation that binds a window. Its value is that of IBV_WR_BIND_MW.
const opBind fabric.Opcode = 8

// Sinks reports whether op writes to memory of its initiator, as a read or an atomic does. The read
// depth limits such operations.
func Sinks(op fabric.Opcode) bool {
	return op == fabric.OpRead || op == fabric.OpCmpSwap || op == fabric.OpFetchAdd
}

func sendOpcode(op fabric.Opcode) fabric.WCOpcode {
	switch op {
	case fabric.OpWrite, fabric.OpWriteImm:
		return fabric.OpWCWrite
	case fabric.OpRead:
		return fabric.OpWCRead
	case fabric.OpCmpSwap:
		return fabric.OpWCCmpSwap
	case fabric.OpFetchAdd:
		return fabric.OpWCFetchAdd
	case fabric.OpLocalInv:
		return fabric.OpWCLocalInv
	case opBind:
		return fabric.OpWCBind
	default:
		return fabric.OpWCSend
	}
}
