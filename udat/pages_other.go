//go:build !unix || openbsd

package udat

import (
	"os"
	"unsafe"
)

// allocPages returns zeroed memory aligned to a page.
func allocPages(size int) (buf []byte, release func(), err error) {
	page := os.Getpagesize()
	buf = make([]byte, size+page)
	skip := -int(uintptr(unsafe.Pointer(unsafe.SliceData(buf)))) & (page - 1)
	return buf[skip : skip+size : skip+size], func() {}, nil
}
