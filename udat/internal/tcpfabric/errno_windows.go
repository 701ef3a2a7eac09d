package tcpfabric

import (
	"syscall"

	"golang.org/x/sys/windows"
)

// winsock maps an error of package syscall to the error of the same name that Windows' sockets
// return. The two have different numbers.
var winsock = map[syscall.Errno]syscall.Errno{
	syscall.EACCES:        windows.WSAEACCES,
	syscall.EADDRINUSE:    windows.WSAEADDRINUSE,
	syscall.EADDRNOTAVAIL: windows.WSAEADDRNOTAVAIL,
	syscall.EAFNOSUPPORT:  windows.WSAEAFNOSUPPORT,
	syscall.ECONNABORTED:  windows.WSAECONNABORTED,
	syscall.ECONNREFUSED:  windows.WSAECONNREFUSED,
	syscall.ECONNRESET:    windows.WSAECONNRESET,
	syscall.EFAULT:        windows.WSAEFAULT,
	syscall.EHOSTDOWN:     windows.WSAEHOSTDOWN,
	syscall.EHOSTUNREACH:  windows.WSAEHOSTUNREACH,
	syscall.EINVAL:        windows.WSAEINVAL,
	syscall.EMFILE:        windows.WSAEMFILE,
	syscall.ENETDOWN:      windows.WSAENETDOWN,
	syscall.ENETUNREACH:   windows.WSAENETUNREACH,
	syscall.ENOBUFS:       windows.WSAENOBUFS,
	syscall.ETIMEDOUT:     windows.WSAETIMEDOUT,
}
