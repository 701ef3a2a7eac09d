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
	KeyStep  = 0x10b // odd, so that every key is used once before any is used twice; consecutive keys are far apart
)

// keyTable maps keys to memory. The table assigns keys in one long cycle, so that a stale key does
// not match memory that was registered soon after.
type keyTable struct {
	mu    sync.RWMutex
	next  uint32
	mix   *maphash.Seed    // nil: keys are not secret
	byKey map[uint32]*span // an entry that is nil is a key reserved for a posted bind
}

// span is the memory that a key names: a region, or the part of a region that a window is bound to.
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

// reserve reserves an unused key and returns it; mu is held.
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

// scramble maps the keys one to one to keys that nobody can guess, by a Feistel network of four
// rounds. If keys are not secret, it returns k itself.
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

// enter pins the span of a key and returns the span, or nil if the key is invalid. The caller must
// call leave on the span.
func (t *keyTable) enter(key uint32) *span {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if s := t.byKey[key]; s != nil && s.enter() {
		return s
	}
	return nil
}

// slice returns n bytes of the span at addr. It returns false if not all of these bytes are inside
// the span.
func (s *span) slice(addr, n uint64) ([]byte, bool) {
	off, size := addr-s.base, uint64(len(s.mem)) // if addr is below base, off wraps around and is huge
	if off > size || n > size-off {
		return nil, false
	}
	return s.mem[off : off+n], true
}

// gate counts the users of memory. Once the gate is shut, it admits no new users.
type gate struct {
	state atomic.Int64 // the number of users, plus shut if the gate is shut
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

// shutAndWait shuts the gate and waits until all users have left. It may be called only once.
func (g *gate) shutAndWait() {
	for n := g.state.Add(shut); n != shut; n = g.state.Load() {
		<-g.idle
	}
}
