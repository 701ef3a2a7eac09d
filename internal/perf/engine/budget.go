package engine

import (
	"cmp"
	"fmt"
	"math"
	"sync"

	"github.com/godat/godat/internal/perf/result"
)

// Memory beside the registered one, in bytes: what an end needs for each completion that may be outstanding, for each queue pair, and for
// the histograms and threads of a case.
const (
	completionCost = 1024
	queuePairCost  = 16 << 10
	caseCost       = 4 << 20
)

// cost is about how much memory an end needs for a case, in bytes, from above.
func (l *layout) cost(c *result.Case) int64 {
	qps := int64(c.QPs)
	return int64(l.total) + qps*int64(c.Depth+c.RxDepth)*completionCost + qps*queuePairCost + caseCost
}

// budget is the memory that the cases of all clients share. A nil budget has no end.
type budget struct {
	mu          sync.Mutex
	limit, used int64
}

// take sets n bytes apart until giveBack is called, or says why not.
func (b *budget) take(n int64) (giveBack func(), err error) {
	if b == nil {
		return func() {}, nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if n > b.limit-b.used {
		return nil, fmt.Errorf("the case needs %d MiB of memory at the server, whose --max-memory is %d MiB, of which other clients use %d MiB",
			roundMiB(n), b.limit>>20, roundMiB(b.used))
	}
	b.used += n
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.used -= n
	}, nil
}

// roundMiB rounds up, so that what does not fit does not look as if it did.
func roundMiB(n int64) int64 { return (n + 1<<20 - 1) >> 20 }

// DefaultMaxClients is how many clients a server serves at the same time.
const DefaultMaxClients = 64

// DefaultMaxMemory is what the cases of all of a server's clients may take, in bytes: 4 GiB, or half of the memory that this process may use.
func DefaultMaxMemory() int64 {
	return min(4<<30, cmp.Or(processMemory(), math.MaxInt64)/2)
}
