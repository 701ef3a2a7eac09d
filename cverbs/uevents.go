//go:build linux && cgo

package cverbs

import (
	"bytes"
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// openUevents opens the kernel's reports about devices that come and go.
func openUevents() (*os.File, error) {
	const kind = unix.SOCK_DGRAM | unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK
	fd, err := unix.Socket(unix.AF_NETLINK, kind, unix.NETLINK_KOBJECT_UEVENT)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	const fromKernel = 1 // the group; that of udev is 2
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: fromKernel}); err != nil {
		unix.Close(fd)
		return nil, os.NewSyscallError("bind", err)
	}
	return os.NewFile(uintptr(fd), "uevents"), nil
}

// watchDevices calls removed whenever an RDMA device may be about to go, until the file is closed.
func watchDevices(uevents *os.File, removed func()) {
	report := make([]byte, 16<<10)
	for {
		n, err := uevents.Read(report)
		switch {
		case errors.Is(err, unix.ENOBUFS): // reports were lost
			removed()
		case err != nil:
			return
		case isRemoval(report[:n]):
			removed()
		}
	}
}

// isRemoval reports whether a report is about an RDMA device that goes: "remove@PATH", and then
// variables, each with a zero at its end.
func isRemoval(report []byte) bool {
	return bytes.HasPrefix(report, []byte("remove@")) && bytes.Contains(report, []byte("\x00SUBSYSTEM=infiniband"))
}
