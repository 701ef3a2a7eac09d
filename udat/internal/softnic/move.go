//go:build !race

package softnic

// move copies payload. Builds with the race detector use another version, which the detector does
// not see.
func move(dst, src []byte) { copy(dst, src) }
