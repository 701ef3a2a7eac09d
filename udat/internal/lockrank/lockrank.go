// Package lockrank orders the locks of package udat. Every lock belongs to a rank, and a goroutine
// that holds one takes only locks of higher ranks; docs/locks.md has the table. Without the build
// tag lockcheck a [Mutex] is a sync.Mutex and the order is not checked. With the tag, taking a lock
// against its rank panics and names both locks; the tests of udat run in both ways.
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
// A Mutex may be used by any number of goroutines, as a sync.Mutex may; the zero value is unlocked.
package lockrank

// Rank is a lock's place in the order, and its name. A lock may be taken if all locks of the
// goroutine have lower numbers.
type Rank interface {
	Rank() (number int, name string)
}
