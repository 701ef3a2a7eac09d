package softnic

import (
	"hash/maphash"
	"math"
	"sync"
	"sync/atomic"

	"github.com/godat/godat/udat/internal/fabric"
)

const (
	firstKey = 0x1000
	KeyStep  = 0x10b // odd: every key comes round once before any comes twice, and neighbours are far apart
)

// keyTable maps keys to memory. Keys are assigned in one long cycle, so that a stale key does not
// match memory that was registered soon after.
type keyTable struct {
	mu    sync.RWMutex
	next  uint32
	mix   *maphash.Seed    // nil: keys are not secret
	byKey map[uint32]*span // nil: reserved for a binding to come
}

// span is the memory of a key: a region, or the part of one that a window is bound to.
type span struct {
	gate
	key    uint32
	pd     *pd
	region *mr
	window *mw // nil: the region itself
	mem    []byte
	base   uint64
	access fabric.Access
}

func (t *keyTable) init(secret bool) {
	t.next = firstKey
	if secret {
		seed := maphash.MakeSeed()
		t.mix = &seed
	}
	t.byKey = make(map[uint32]*span)
}

// reserve returns an unused key; mu is held.
func (t *keyTable) reserve() uint32 {
	for {
		k := t.scramble(t.next)
		t.next += KeyStep
		if _, used := t.byKey[k]; !used && k != 0 {
			t.byKey[k] = nil
			return k
		}
	}
}

// scramble returns another key for each key; with secret keys nobody can guess which. It is a
// Feistel network of four rounds.
func (t *keyTable) scramble(k uint32) uint32 {
	if t.mix == nil {
		return k
	}
	left, right := uint16(k>>16), uint16(k)
	for round := range byte(4) {
		sum := maphash.Bytes(*t.mix, []byte{byte(right), byte(right >> 8), round})
		left, right = right, left^uint16(sum)
	}
	return uint32(left)<<16 | uint32(right)
}

// enter pins the span of a key for the caller, who must leave it; nil if the key is invalid.
func (t *keyTable) enter(key uint32) *span {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if s := t.byKey[key]; s != nil && s.enter() {
		return s
	}
	return nil
}

// slice returns n bytes of the span at addr, if they are inside it.
func (s *span) slice(addr, n uint64) ([]byte, bool) {
	off, size := addr-s.base, uint64(len(s.mem)) // below the base off is huge
	if off > size || n > size-off {
		return nil, false
	}
	return s.mem[off : off+n], true
}

// gate counts the users of memory and, once shut, admits none.
type gate struct {
	state atomic.Int64 // users, plus shut
	idle  chan struct{}
}

const shut = math.MinInt64 / 2

func newGate() gate { return gate{idle: make(chan struct{}, 1)} }

func (g *gate) enter() bool {
	if g.state.Add(1) > 0 {
		return true
	}
	g.leave()
	return false
}

func (g *gate) leave() {
	if g.state.Add(-1) == shut {
		Ring(g.idle)
	}
}

// shutAndWait refuses new users and waits for those inside. It is called once.
func (g *gate) shutAndWait() {
	for n := g.state.Add(shut); n != shut; n = g.state.Load() {
		<-g.idle
	}
}
