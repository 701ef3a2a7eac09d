//go:build !unix

package tcpfabric

import (
	"math"
	"syscall"
)

// openFiles returns how many files the process may have open.
func openFiles() uint64 { return math.MaxUint64 }

func bindNoPort(syscall.RawConn) {}

func setTOS(syscall.RawConn, int) error { return syscall.EINVAL }
