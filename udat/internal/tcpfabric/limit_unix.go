//go:build unix

package tcpfabric

import "syscall"

// openFiles returns how many files the process may have open.
func openFiles() uint64 {
	var r syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r); err != nil {
		return maxStrangers
	}
	return uint64(r.Cur)
}
