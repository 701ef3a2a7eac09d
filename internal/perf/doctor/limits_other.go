//go:build !linux

package doctor

// MemlockLimit returns the locked-memory limit in bytes, -1 for none; ok is false if it is unknown.
func MemlockLimit() (int64, bool) { return 0, false }

func filesLimit() (n uint64, ok bool) { return 0, false }
