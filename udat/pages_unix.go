//go:build unix && !openbsd

package udat

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// allocPages returns zeroed memory outside the Go heap, aligned to a page.
func allocPages(size int) (buf []byte, release func(), err error) {
	buf, err = unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, nil, fmt.Errorf("mapping %d bytes: %w%s", size, err, addressLimit(err))
	}
	return buf, func() { unix.Munmap(buf) }, nil
}

// addressLimit returns a text with the process's limit of address space if err may be a consequence
// of this limit. Otherwise, or if there is no limit, it returns "".
func addressLimit(err error) string {
	var r unix.Rlimit
	if !errors.Is(err, unix.ENOMEM) || unix.Getrlimit(unix.RLIMIT_AS, &r) != nil || uint64(r.Cur) >= 1<<62 {
		return ""
	}
	return fmt.Sprintf(": the limit of address space (RLIMIT_AS, ulimit -v) is %d bytes", r.Cur)
}
