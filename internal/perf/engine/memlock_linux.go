package engine

import (
	"math"

	"golang.org/x/sys/unix"
)

// memlock is the locked-memory limit in bytes, -1 for none.
func memlock() int64 {
	var r unix.Rlimit
	switch err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &r); {
	case err != nil:
		return 0
	case r.Cur > math.MaxInt64:
		return -1
	}
	return int64(r.Cur)
}
