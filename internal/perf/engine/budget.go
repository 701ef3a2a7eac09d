package engine

import (
	"fmt"
	"sync"

	"github.com/godat/godat/internal/hostmem"
	"github.com/godat/godat/internal/perf/result"
)

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
