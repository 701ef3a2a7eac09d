package softnic

import (
	"crypto/rand"
	"encoding/binary"
	"math"
	"sync"
	"sync/atomic"

	"github.com/godat/godat/udat/internal/fabric"
)

// keyTable maps keys to memory. Keys are random, so that nobody can guess them, and so that a stale
// key does not match memory that was registered after it.
type keyTable struct {
	mu    sync.RWMutex
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
	base   uint64 // the address of mem
	remote uint64 // the address of mem for peers
	access fabric.Access
}

// random returns a random number.
func random() uint64 {
	var b [8]byte
	rand.Read(b[:]) // never fails
	return binary.NativeEndian.Uint64(b[:])
}

// reserve reserves an unused key and returns it; mu is held.
func (t *keyTable) reserve() uint32 {
	for {
		k := uint32(random())
		if _, used := t.byKey[k]; !used && k != 0 {
			t.byKey[k] = nil
			return k
		}
	}
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

// slice returns n bytes of the span at addr, which counts from base: that of this process or that
// of peers. It returns false if not all of these bytes are inside the span.
func (s *span) slice(base, addr, n uint64) ([]byte, bool) {
	off, size := addr-base, uint64(len(s.mem)) // if addr is below base, off wraps around and is huge
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
