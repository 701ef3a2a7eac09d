//go:build !windows

package tcpfabric

import "syscall"

// winsock is empty, because sockets return the errors of package syscall.
var winsock map[syscall.Errno]syscall.Errno
