package doctor

import (
	"math"

	"golang.org/x/sys/unix"
)

// MemlockLimit returns the locked-memory limit in bytes, or -1 if there is no limit. It returns
// false if the limit is unknown.
func MemlockLimit() (int64, bool) {
	var r unix.Rlimit
	switch err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &r); {
	case err != nil:
		return 0, false
	case r.Cur > math.MaxInt64:
		return -1, true
	}
	return int64(r.Cur), true
}

// filesLimit returns the number of files that this process may open. It returns false if the number
// is unknown.
func filesLimit() (n uint64, ok bool) {
	var r unix.Rlimit
	err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r)
	return r.Cur, err == nil
}
