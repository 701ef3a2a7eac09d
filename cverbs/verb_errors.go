//go:build linux && cgo

package cverbs

import "C"

import (
	"fmt"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// errnoOf returns the errno of a failed two-value cgo call.
func errnoOf(err error) syscall.Errno {
	if e, ok := err.(syscall.Errno); ok && e != 0 {
		return e
	}
	return syscall.EIO
}

// rcError converts the return code of a verb into an error. Drivers return errno, -errno, or -1
// with errno set.
func rcError(verb string, rc C.int, err error) error {
	switch {
	case rc == 0:
		return nil
	case rc == -1:
		return &Error{Verb: verb, Errno: errnoOf(err)}
	case rc < 0:
		rc = -rc
	}
	return &Error{Verb: verb, Errno: syscall.Errno(rc)}
}

// pinError returns the error of a verb that locks memory. ENOMEM mostly means that the process has
// reached its limit, so the text names the limit.
func pinError(verb string, errno syscall.Errno, asked int) error {
	e := &Error{Verb: verb, Errno: errno}
	switch errno {
	case syscall.ENOMEM:
		var r unix.Rlimit
		if unix.Getrlimit(unix.RLIMIT_MEMLOCK, &r) != nil {
			return e
		}
		limit := fmt.Sprintf("%d bytes", r.Cur)
		if r.Cur == unix.RLIM_INFINITY {
			limit = "unlimited"
		}
		size := ""
		if asked > 0 {
			size = fmt.Sprintf("%d bytes were asked for; ", asked)
		}
		e.Advice = size + "the locked-memory limit of the process (RLIMIT_MEMLOCK) is " + limit
		if r.Cur != unix.RLIM_INFINITY {
			e.Advice += ": raise it with ulimit -l, LimitMEMLOCK= of systemd, or --ulimit memlock of a container"
		}
	case syscall.EFAULT:
		e.Advice = "the memory is not mapped, or is read-only and AccessLocalWrite was asked for"
	}
	return e
}

// nodeError returns the error of a verb that opens the device file at node. rdma-core returns
// ENOENT also for a file that this process may not open, so nodeError opens the file to learn the
// real errno.
func nodeError(verb string, errno syscall.Errno, node, module string) error {
	if errno == syscall.ENOENT && strings.HasPrefix(node, "/") {
		fd, err := unix.Open(node, unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err == nil {
			unix.Close(fd)
		} else {
			errno = errnoOf(err)
		}
	}
	e := &Error{Verb: verb, Errno: errno}
	switch errno {
	case syscall.EACCES, syscall.EPERM:
		e.Advice = "no permission on " + node + ": run as a user that may open it, or pass the device to the container"
	case syscall.ENOENT, syscall.ENODEV, syscall.ENXIO, syscall.ENOSYS:
		e.Advice = node + " is missing: load the kernel module " + module + ", or pass the device to the container"
	default:
		e.Advice = filesAdvice(errno)
	}
	return e
}

// filesAdvice returns a text that names the limit of open files, if errno means that the limit is
// reached. For any other errno it returns "".
func filesAdvice(errno syscall.Errno) string {
	switch errno {
	case syscall.EMFILE:
		var r unix.Rlimit
		unix.Getrlimit(unix.RLIMIT_NOFILE, &r)
		return fmt.Sprintf("the open-file limit of the process (RLIMIT_NOFILE) is %d: raise it with ulimit -n, "+
			"LimitNOFILE= of systemd, or --ulimit nofile of a container", r.Cur)
	case syscall.ENFILE:
		return "the open-file limit of the host (fs.file-max of sysctl) is reached"
	}
	return ""
}

// spareFiles returns nil if 8 more descriptors can be opened, and otherwise an error that names the
// limit. Opening a device and its channels needs about 8 descriptors.
func spareFiles() error {
	const need = 8
	for range need {
		fd, err := unix.Open("/", unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			return nodeError("ibv_get_device_list", errnoOf(err), "/", "")
		}
		defer unix.Close(fd)
	}
	return nil
}
