package softnic

import (
	"slices"
	"sync/atomic"
	"time"

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
	Ahead  []byte    // the payload, if GatherAhead has copied it; only the transport uses it
	Due    time.Time // the time until which Faults.Delay delays the request; zero: no delay
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

// Slot returns request n, counted from 0, which must be posted and not completed.
func (s *SendQueue) Slot(n uint64) *Slot { return &s.slots[n%uint64(len(s.slots))] }

// Depth returns the number of slots.
func (s *SendQueue) Depth() int { return len(s.slots) }

// next returns the slot that the next push will add.
func (s *SendQueue) next() *Slot { return &s.slots[s.tail.Load()%uint64(len(s.slots))] }

func (s *SendQueue) push() { s.tail.Add(1) }

// First returns the oldest slot. Posters do not touch it before it is popped.
func (s *SendQueue) First() *Slot { return s.At(0) }

// At returns the slot that comes i slots after the oldest one.
func (s *SendQueue) At(i int) *Slot {
	return &s.slots[(s.head.Load()+uint64(i))%uint64(len(s.slots))]
}

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
