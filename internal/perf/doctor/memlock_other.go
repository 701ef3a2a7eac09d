//go:build !linux

package doctor

// MemlockLimit is the locked-memory limit in bytes, -1 for none; false where it is not known.
func MemlockLimit() (int64, bool) { return 0, false }
