//go:build linux && cgo

package cverbs

import (
	"bytes"
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// openUevents opens a socket on which the kernel reports devices that are added and removed
// (uevents).
func openUevents() (*os.File, error) {
	const kind = unix.SOCK_DGRAM | unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK
	fd, err := unix.Socket(unix.AF_NETLINK, kind, unix.NETLINK_KOBJECT_UEVENT)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	const fromKernel = 1 // the multicast group of the kernel; 2 is the group of udev
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: fromKernel}); err != nil {
		unix.Close(fd)
		return nil, os.NewSyscallError("bind", err)
	}
	return os.NewFile(uintptr(fd), "uevents"), nil
}

// watchDevices calls onRemoval whenever an RDMA device may be about to be removed. It returns when
// the file is closed.
func watchDevices(uevents *os.File, onRemoval func()) {
	report := make([]byte, 16<<10)
	for {
		n, err := uevents.Read(report)
		switch {
		case errors.Is(err, unix.ENOBUFS): // reports were lost
			onRemoval()
		case err != nil:
			return
		case isRemoval(report[:n]):
			onRemoval()
		}
	}
}

// isRemoval reports whether a report announces the removal of an RDMA device. Such a report
// consists of "remove@PATH" and variables, each of which ends with a zero byte.
func isRemoval(report []byte) bool {
	return bytes.HasPrefix(report, []byte("remove@")) && bytes.Contains(report, []byte("\x00SUBSYSTEM=infiniband"))
}
