//go:build !lockcheck

package lockrank

import "sync"

// Checking reports whether the order of locks is checked.
const Checking = false

// Mutex is a mutual exclusion lock of rank R.
type Mutex[R Rank] struct{ sync.Mutex }

// LockNested is like Lock, but the goroutine may hold another lock of the same rank. The caller
// must order locks of one rank by other means.
func (m *Mutex[R]) LockNested() { m.Lock() }
