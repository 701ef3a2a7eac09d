package tcpfabric

import (
	"container/list"
	"fmt"
	"sync"

	"github.com/godat/godat/udat/internal/fabric"
)

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
