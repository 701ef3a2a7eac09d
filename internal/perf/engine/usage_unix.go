//go:build unix

package engine

import (
	"time"

	"golang.org/x/sys/unix"
)

func processUsage() usage {
	var r unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &r) != nil {
		return usage{}
	}
	return usage{
		user: time.Duration(r.Utime.Nano()), system: time.Duration(r.Stime.Nano()), voluntary: int64(r.Nvcsw),
		involuntary: int64(r.Nivcsw),
	}
}
