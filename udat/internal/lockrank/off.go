//go:build !lockcheck

package lockrank

import "sync"

// Checking says whether the order of locks is checked.
const Checking = false

// Mutex is a mutual exclusion lock of rank R.
type Mutex[R Rank] struct{ sync.Mutex }

// LockNested is Lock for a second lock of a rank, where something else than the rank orders the two.
func (m *Mutex[R]) LockNested() { m.Lock() }
