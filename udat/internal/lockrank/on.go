//go:build lockcheck

package lockrank

import (
	"bytes"
	"fmt"
	"runtime"
	"strconv"
	"sync"
)

// Checking says whether the order of locks is checked.
const Checking = true

// Mutex is a mutual exclusion lock of rank R. It panics if it is taken against its rank.
type Mutex[R Rank] struct {
	mu     sync.Mutex
	holder uint64 // the goroutine that has it; guarded by mu
}

// held has the locks of each goroutine, in the order of taking.
var (
	heldMu sync.Mutex
	held   = make(map[uint64][]lock)
)

type lock struct {
	at     any // the *Mutex
	number int
	name   string
}

// Lock takes the lock. It panics if the goroutine holds one of the same rank or a higher one.
func (m *Mutex[R]) Lock() { m.lock(0) }

// LockNested is Lock for a second lock of the same rank, ordered by other means.
func (m *Mutex[R]) LockNested() { m.lock(1) }

// lock takes the lock; nested is 1 where the goroutine may hold one of the same rank.
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

// TryLock takes the lock if it is free. It never waits, so any order is allowed.
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

// Unlock releases the lock, which another goroutine may have taken.
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
