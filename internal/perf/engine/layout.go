package engine

import (
	"fmt"
	"sync"

	"github.com/godat/godat/internal/hostmem"
	"github.com/godat/godat/internal/perf/result"
)

// slotBudget is the most memory for the slots of one area, in bytes, if --buffers is not given.
// Each queue pair has at least one slot, even if that exceeds slotBudget.
const slotBudget = 64 << 20

// memoryLimit is the most memory that a case may register at one end, in bytes.
const memoryLimit = 4 << 30

// datagramHeader is the size in bytes of the global routing header, which precedes the message in
// the receive buffer of a datagram.
const datagramHeader = 40

// area is a range of the registered memory, divided into slots. Each queue pair has the same number
// of slots.
type area struct {
	base, perQP, stride int
	slots               uint64
}

// slot returns the index of the slot that the request or receive with sequence number seq uses. A
// queue pair uses its slots in turn.
func (a *area) slot(seq uint64) uint64 {
	if a.slots&(a.slots-1) == 0 { // avoids a division, which takes as long as the rest of the function
		return seq & (a.slots - 1)
	}
	return seq % a.slots
}

// at returns the offset, in the registered memory, of the slot that request or receive seq of a
// queue pair uses.
func (a *area) at(qp int, seq uint64) int { return a.base + qp*a.perQP + int(a.slot(seq))*a.stride }

// layout describes where the areas of an end's registered memory are. Both ends have the same
// layout.
type layout struct {
	qps, size, total int
	tx, rx           area // tx: data to send; rx: received data, and results of reads and atomics
	word             area // target of the peer's atomics
}

func layoutOf(c *result.Case) (layout, error) {
	stride := (c.Size + 63) &^ 63
	if c.Transport == result.UD {
		stride = (c.Size + datagramHeader + 63) &^ 63
	}
	most := max(1, slotBudget/(stride*c.QPs))
	if c.Buffers > 0 {
		most = c.Buffers
	}
	tx := min(c.Depth, most)
	rx := tx
	if c.Test == result.Send || c.Test == result.SendImm {
		rx = min(c.RxDepth, most)
	}
	if c.Mode == result.Latency {
		tx = 1
		if !c.TwoSided() || c.Test == result.WriteImm {
			rx = 1
		}
	}
	l := layout{
		qps: c.QPs, size: c.Size,
		tx: area{perQP: tx * stride, stride: stride, slots: uint64(tx)},
		rx: area{base: c.QPs * tx * stride, perQP: rx * stride, stride: stride, slots: uint64(rx)},
	}
	words := c.QPs * (tx + rx) * stride
	l.word = area{base: words, perQP: 64, stride: 64, slots: 1}
	l.total = words + c.QPs*64
	if words/stride/c.QPs != tx+rx || l.total > memoryLimit {
		return l, fmt.Errorf("--size %d with --qps %d: needs more than %d GiB of registered memory at each end", c.Size,
			c.QPs, memoryLimit>>30)
	}
	return l, nil
}

// remote returns the area of the peer's memory that the test accesses.
func (l *layout) remote(test string) *area {
	switch {
	case result.Atomic(test):
		return &l.word
	case test == result.Read:
		return &l.tx
	}
	return &l.rx
}

// local returns the area of the test's local buffers.
func (l *layout) local(test string) *area {
	if result.Atomic(test) || test == result.Read {
		return &l.rx
	}
	return &l.tx
}

// Memory that a case needs in addition to its registered memory, in bytes: completionCost per
// request or receive in flight, queuePairCost per queue pair, and caseCost per case, for histograms
// and threads.
const (
	completionCost = 1024
	queuePairCost  = 16 << 10
	caseCost       = 4 << 20
)

// cost returns an upper bound of the memory that an end needs for a case, in bytes.
func (l *layout) cost(c *result.Case) int64 {
	qps := int64(c.QPs)
	return int64(l.total) + qps*int64(c.Depth+c.RxDepth)*completionCost + qps*queuePairCost + caseCost
}

// budget limits the memory of the cases of all clients together. A nil budget is unlimited.
type budget struct {
	mu          sync.Mutex
	limit, used int64
}

// take reserves n bytes until giveBack is called. It returns an error if fewer than n bytes are
// left.
func (b *budget) take(n int64) (giveBack func(), err error) {
	if b == nil {
		return func() {}, nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if n > b.limit-b.used {
		return nil, fmt.Errorf("the case needs %d MiB of memory at the server, whose --max-memory is %d MiB, of which "+
			"other clients use %d MiB",
			roundMiB(n), b.limit>>20, roundMiB(b.used))
	}
	b.used += n
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.used -= n
	}, nil
}

// roundMiB rounds up, so that an error shows a size above the limit.
func roundMiB(n int64) int64 { return (n + 1<<20 - 1) >> 20 }

// LeastMaxMemory is the least memory with which a server can measure anything, in bytes.
const LeastMaxMemory = caseCost + 1<<20

// DefaultMaxClients is the default number of clients that a server serves at the same time.
const DefaultMaxClients = 64

// DefaultMaxMemory returns the default of Server.MaxMemory, in bytes: 4 GiB, or half of the memory
// that this process may use if that is less.
func DefaultMaxMemory() int64 {
	return int64(min(4<<30, hostmem.Limit()/2))
}
