//go:build lockcheck

package lockrank

import (
	"bytes"
	"fmt"
	"runtime"
	"strconv"
	"sync"
)

// Checking reports whether the order of locks is checked.
const Checking = true

// Mutex is a mutual exclusion lock of rank R. Lock panics if it would break the order of ranks.
type Mutex[R Rank] struct {
	mu     sync.Mutex
	holder uint64 // the number of the goroutine that has locked mu; guarded by mu
}

// held lists the locks that each goroutine holds, in the order in which it acquired them.
var (
	heldMu sync.Mutex
	held   = make(map[uint64][]lock)
)

type lock struct {
	at     any // the *Mutex
	number int
	name   string
}

// Lock acquires the lock. It panics if the goroutine holds a lock of the same rank or a higher one.
func (m *Mutex[R]) Lock() { m.lock(0) }

// LockNested is like Lock, but the goroutine may hold another lock of the same rank. The caller
// must order locks of one rank by other means.
func (m *Mutex[R]) LockNested() { m.lock(1) }

// lock acquires the lock. The parameter nested is 1 if the goroutine may hold another lock of the
// same rank, else 0.
func (m *Mutex[R]) lock(nested int) {
	g := goroutine()
	var rank R
	number, name := rank.Rank()
	heldMu.Lock()
	for _, l := range held[g] {
		if l.number >= number+nested {
			heldMu.Unlock()
			panic(fmt.Sprintf("lockrank: %s (rank %d) is taken under %s (rank %d)", name, number, l.name, l.number))
		}
	}
	heldMu.Unlock()
	m.mu.Lock()
	m.have(g)
}

// TryLock acquires the lock if it is free. It does not check the order, because it never waits.
func (m *Mutex[R]) TryLock() bool {
	if !m.mu.TryLock() {
		return false
	}
	m.have(goroutine())
	return true
}

func (m *Mutex[R]) have(g uint64) {
	m.holder = g
	var rank R
	number, name := rank.Rank()
	heldMu.Lock()
	held[g] = append(held[g], lock{m, number, name})
	heldMu.Unlock()
}

// Unlock releases the lock. The goroutine that calls it need not be the one that acquired the lock.
func (m *Mutex[R]) Unlock() {
	heldMu.Lock()
	list := held[m.holder]
	for i := range list {
		if list[i].at == any(m) {
			list = append(list[:i], list[i+1:]...)
			break
		}
	}
	if len(list) == 0 {
		delete(held, m.holder)
	} else {
		held[m.holder] = list
	}
	heldMu.Unlock()
	m.mu.Unlock()
}

// goroutine returns the number of the calling goroutine.
func goroutine() uint64 {
	var buf [64]byte
	text := bytes.TrimPrefix(buf[:runtime.Stack(buf[:], false)], []byte("goroutine "))
	number, _, _ := bytes.Cut(text, []byte(" "))
	n, err := strconv.ParseUint(string(number), 10, 64)
	if err != nil {
		panic("lockrank: no number in " + string(buf[:]))
	}
	return n
}
