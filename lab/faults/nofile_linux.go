package main

import (
	"fmt"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// limitDescriptors sets the number of descriptors that this process may open, until undo is called.
func limitDescriptors(n int) (undo func() error, err error) {
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		return nil, err
	}
	limit := syscall.Rlimit{Cur: min(uint64(n), before.Max), Max: before.Max}
	return func() error { return syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before) },
		syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit)
}

// addresses returns the size of the address space of this process.
func addresses() (n uint64) {
	b, _ := os.ReadFile("/proc/self/statm")
	fmt.Sscan(string(b), &n)
	return n * uint64(os.Getpagesize())
}

// limitAddresses sets the limit of address space to what this process has and n bytes more, until
// undo is called.
func limitAddresses(n uint64) (undo func() error, err error) {
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_AS, &before); err != nil {
		return nil, err
	}
	limit := unix.Rlimit{Cur: min(addresses()+n, before.Max), Max: before.Max}
	return func() error { return unix.Setrlimit(unix.RLIMIT_AS, &before) }, unix.Setrlimit(unix.RLIMIT_AS, &limit)
}

// lockedMemory sets the limit of locked memory to what this process has locked and n bytes more. It
// then calls f without the right to exceed that limit.
func lockedMemory(n int, f func() error) error {
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &before); err != nil {
		return err
	}
	limit := unix.Rlimit{Cur: min(uint64(process()["KiB pinned"]<<10+n), before.Max), Max: before.Max}
	if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &limit); err != nil {
		return err
	}
	defer unix.Setrlimit(unix.RLIMIT_MEMLOCK, &before)
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // rights belong to the thread, which ends with the goroutine
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var rights [2]unix.CapUserData
		err := unix.Capget(&header, &rights[0])
		if err == nil {
			rights[0].Effective &^= 1 << unix.CAP_IPC_LOCK
			err = unix.Capset(&header, &rights[0])
		}
		if err == nil {
			err = f()
		}
		result <- err
	}()
	return <-result
}
