package tcpfabric

import (
	"container/list"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/godat/godat/udat/internal/fabric"
)

// buffers is a pool of buffers of one size.
type buffers struct {
	size int
	near [8]atomic.Pointer[[]byte] // the garbage collector does not free these
	far  sync.Pool
}

// take returns an empty buffer.
func (b *buffers) take() *[]byte {
	for i := range b.near {
		if near := &b.near[i]; near.Load() != nil {
			if buf := near.Swap(nil); buf != nil {
				return buf
			}
		}
	}
	if buf, _ := b.far.Get().(*[]byte); buf != nil {
		return buf
	}
	buf := make([]byte, 0, b.size)
	return &buf
}

// give returns the buffer *lent to the pool and sets *lent to nil.
func (b *buffers) give(lent **[]byte) {
	buf := *lent
	*lent = nil
	if buf == nil {
		return
	}
	for i := range b.near {
		if b.near[i].CompareAndSwap(nil, buf) {
			return
		}
	}
	b.far.Put(buf)
}

// The pools for data that comes or goes. With checksums a buffer must hold whole frames.
var (
	plain    = buffers{size: 32 << 10}
	withSums = buffers{size: 136 << 10} // two frames
)

// The pools for data that waits for the peer.
var small = [...]buffers{{size: 512}, {size: 2 << 10}, {size: 8 << 10}}

// loan is the buffer of one half of a link. While there is no data the half has none. While data
// waits for the peer, the buffer is not much larger than the data, and counts against the device's
// budget.
type loan struct {
	large *buffers
	from  *buffers // where buf belongs
	buf   *[]byte  // nil: none
	cost  int      // what the budget counts
}

func (n *loan) init(sums bool) {
	if n.large = &plain; sums {
		n.large = &withSums
	}
}

// full reports whether the buffer is of the largest size.
func (n *loan) full() bool { return n.buf != nil && n.from == n.large }

// enlarge gets a buffer of the largest size, which begins with data, and returns it.
func (n *loan) enlarge(l *link, data []byte) []byte {
	buf := n.large.take()
	if n.buf != nil {
		copy((*buf)[:n.large.size], data)
		n.drop(l)
	}
	n.buf, n.from = buf, n.large
	return (*buf)[:n.large.size]
}

// wait is called when data, which is in the buffer, waits for the peer. If a smaller buffer holds
// data and more bytes after it, wait moves data to the beginning of that one, and returns it.
func (n *loan) wait(l *link, data []byte, more int) (moved []byte) {
	for i := range small {
		if p := &small[i]; p.size >= len(data)+more {
			if p.size < n.from.size {
				buf := p.take()
				moved = (*buf)[:p.size]
				copy(moved, data)
				n.from.give(&n.buf)
				n.buf, n.from = buf, p
			}
			break
		}
	}
	n.count(l, n.from.size)
	return moved
}

// drop gives the buffer back.
func (n *loan) drop(l *link) {
	if n.buf != nil {
		n.count(l, 0)
		n.from.give(&n.buf)
	}
}

func (n *loan) count(l *link, cost int) {
	if cost != n.cost {
		l.dev.budget.add(l, cost-n.cost)
		n.cost = cost
	}
}

// budget bounds the memory of a device's links with data that waits for the peer: parts of
// messages, and what the peer does not read. If it is used up, the link that has waited longest is
// broken.
type budget struct {
	limit int

	mu    sync.Mutex
	used  int
	waits list.List // of *link; the one that has waited longest is first
}

// usage is the part of a link in the budget; budget.mu guards it.
type usage struct {
	bytes  int
	place  *list.Element // in waits; nil if bytes is 0
	broken bool          // by the budget
}

// defaultBudget is the limit without an option.
const defaultBudget = 256 << 20

var errBudget = fmt.Errorf("the peer has left a message incomplete, or does not read, and the memory of the device "+
	"for that is used up (WithBufferMemory): %w", fabric.ErrResources)

// add adds n to the bytes of a link.
func (b *budget) add(l *link, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if l.usage.broken {
		return
	}
	b.change(l, n)
	if n > 0 && b.used > b.limit {
		oldest := b.waits.Front().Value.(*link)
		b.change(oldest, -oldest.usage.bytes)
		oldest.usage.broken = true
		go oldest.qp.Fatal(errBudget) // the caller holds locks of its link
	}
}

// change adds n to the bytes of a link; mu is held.
func (b *budget) change(l *link, n int) {
	u := &l.usage
	u.bytes += n
	b.used += n
	switch {
	case u.bytes == 0 && u.place != nil:
		b.waits.Remove(u.place)
		u.place = nil
	case u.bytes > 0 && u.place == nil:
		u.place = b.waits.PushBack(l)
	}
}
