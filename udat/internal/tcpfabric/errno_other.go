//go:build !windows

package tcpfabric

import "syscall"

var winsock map[syscall.Errno]syscall.Errno
