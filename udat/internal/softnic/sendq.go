package softnic

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/godat/godat/udat/internal/fabric"
)

// SendQueue is a ring of preallocated slots. Posters fill the next one under QP.mu; the
// wire works on the older ones.
type SendQueue struct {
	slots      []Slot
	head, tail atomic.Uint64 // popped and pushed in all
}

// Slot is one posted request.
type Slot struct {
	WR     fabric.SendWR
	Length uint64 // bytes of SGEs
	SGEs   []fabric.SGE
	Inline []byte
	Ahead  []byte    // the wire's: the payload, where it was read behind a read under way
	Due    time.Time // a fault delays it until then; zero is none
	bind   *binding
}

func (s *SendQueue) init(depth, maxSGE int) {
	s.slots = make([]Slot, depth)
	sges := make([]fabric.SGE, depth*maxSGE)
	for i := range s.slots {
		s.slots[i].SGEs = slices.Clip(sges[i*maxSGE : (i+1)*maxSGE])
	}
}

// Len is the number of requests that are not completed.
func (s *SendQueue) Len() int { return int(s.tail.Load() - s.head.Load()) }

func (s *SendQueue) full() bool { return s.Len() == len(s.slots) }

// Head and Tail are the numbers of requests completed and posted so far.
func (s *SendQueue) Head() uint64 { return s.head.Load() }
func (s *SendQueue) Tail() uint64 { return s.tail.Load() }

// Slot is request n, from 0, which is posted and not completed.
func (s *SendQueue) Slot(n uint64) *Slot { return &s.slots[n%uint64(len(s.slots))] }

// Depth is the number of slots.
func (s *SendQueue) Depth() int { return len(s.slots) }

// next is the slot that push will add.
func (s *SendQueue) next() *Slot { return &s.slots[s.tail.Load()%uint64(len(s.slots))] }

func (s *SendQueue) push() { s.tail.Add(1) }

// First is the oldest slot, which nobody else touches until it is popped.
func (s *SendQueue) First() *Slot { return s.At(0) }

// At is the slot behind i older ones.
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
