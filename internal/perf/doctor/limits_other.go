//go:build !linux

package doctor

// MemlockLimit returns false: the locked-memory limit is unknown on this system.
func MemlockLimit() (int64, bool) { return 0, false }

func filesLimit() (n uint64, ok bool) { return 0, false }
