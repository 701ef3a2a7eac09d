// Package lockrank orders the locks of package udat. Every lock has a rank, and a goroutine that
// holds a lock acquires only locks of higher ranks. docs/locks.md has the table of ranks. Without
// the build tag lockcheck a [Mutex] is a sync.Mutex, and the order is not checked. With the tag,
// Lock panics if it would break the order, and names both locks. The tests of udat run with and
// without the tag.
//
// Only package udat imports it:
//
//	type rankEP struct{}
//
//	func (rankEP) Rank() (int, string) { return 30, "EP.mu" }
//
//	type EP struct {
//		mu lockrank.Mutex[rankEP]
//	}
//
// Any number of goroutines may use a Mutex, as they may use a sync.Mutex. The zero value is
// unlocked.
package lockrank

// Rank is a lock's place in the order, and its name. A goroutine may acquire a lock if all locks
// that it holds have lower numbers.
type Rank interface {
	Rank() (number int, name string)
}
