package soft

import (
	"errors"
	"os"
	"slices"
	"syscall"
)

// openRoutes opens the kernel's reports about the IPv6 routes of the host.
func openRoutes() (*os.File, error) {
	const flags = syscall.SOCK_RAW | syscall.SOCK_CLOEXEC | syscall.SOCK_NONBLOCK
	fd, err := syscall.Socket(syscall.AF_NETLINK, flags, syscall.NETLINK_ROUTE)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	const groups = 0x400 // RTMGRP_IPV6_ROUTE
	err = syscall.Bind(fd, &syscall.SockaddrNetlink{Family: syscall.AF_NETLINK, Groups: groups})
	if err != nil {
		syscall.Close(fd)
		return nil, os.NewSyscallError("bind", err)
	}
	return os.NewFile(uintptr(fd), "routes"), nil
}

// readRoutes calls onRemoved whenever a route may have been removed, until the file is closed.
func readRoutes(f *os.File, onRemoved func()) {
	buf := make([]byte, 32<<10)
	for {
		n, err := f.Read(buf)
		if errors.Is(err, syscall.ENOBUFS) { // reports were lost
			onRemoved()
			continue
		}
		if err != nil {
			return
		}
		reports, _ := syscall.ParseNetlinkMessage(buf[:n])
		gone := func(m syscall.NetlinkMessage) bool { return m.Header.Type == syscall.RTM_DELROUTE }
		if slices.ContainsFunc(reports, gone) {
			onRemoved()
		}
	}
}
