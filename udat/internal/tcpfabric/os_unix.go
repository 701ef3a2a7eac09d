//go:build unix

package tcpfabric

import (
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// openFiles returns how many files the process may have open.
func openFiles() uint64 {
	var r syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r); err != nil {
		return maxStrangers
	}
	return uint64(r.Cur)
}

// setTOS sets the type of service of a socket before it connects or listens. A socket of IPv6 may
// carry IPv4 too, so it gets both.
func setTOS(raw syscall.RawConn, tos int) (err error) {
	raw.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_TOS, tos)
		if unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_TCLASS, tos) == nil {
			err = nil
		}
	})
	return err
}

// bindNoPort makes bind choose no port where the system has that (Linux): connect chooses it then.
func bindNoPort(raw syscall.RawConn) {
	const ipBindAddressNoPort = 24
	if runtime.GOOS == "linux" {
		raw.Control(func(fd uintptr) { unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, ipBindAddressNoPort, 1) })
	}
}
