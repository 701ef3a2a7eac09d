//go:build unix

package udat

import "golang.org/x/sys/unix"

// allocPages returns zeroed memory outside the Go heap, aligned to a page.
func allocPages(size int) (buf []byte, release func(), err error) {
	buf, err = unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, nil, err
	}
	return buf, func() { unix.Munmap(buf) }, nil
}
