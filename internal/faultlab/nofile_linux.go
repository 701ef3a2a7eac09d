package main

import "syscall"

// limitDescriptors sets the number of descriptors that this process may open.
func limitDescriptors(n int) error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	limit.Cur = min(uint64(n), limit.Max)
	return syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit)
}
