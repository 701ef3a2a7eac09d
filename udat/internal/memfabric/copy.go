//go:build !race

package memfabric

// move copies payload. Under the race detector another version does it out of the detector's sight.
func move(dst, src []byte) { copy(dst, src) }
