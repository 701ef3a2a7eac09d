//go:build !lockcheck

package lockrank

import "sync"

// Checking says whether the order of locks is checked.
const Checking = false

// Mutex is a mutual exclusion lock of rank R.
type Mutex[R Rank] struct{ sync.Mutex }

// LockNested is Lock for a second lock of the same rank, ordered by other means.
func (m *Mutex[R]) LockNested() { m.Lock() }
