//go:build !linux

package errmap

import "syscall"

const noData = syscall.Errno(0) // no error: verbs are Linux's, and some systems have no ENODATA
