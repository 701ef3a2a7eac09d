package udat

import (
	"bufio"
	"fmt"
	"os"
	"unsafe"
)

// isShared reports whether all of buf is in mappings that processes share. It reads
// /proc/self/maps. If there is no such file, as on systems other than Linux, isShared returns true.
func isShared(buf []byte) bool {
	f, err := os.Open("/proc/self/maps")
	if err != nil {
		return true
	}
	defer f.Close()
	at := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(buf))))
	end := at + uint64(len(buf))
	// The mappings are sorted by address.
	for lines := bufio.NewScanner(f); at < end && lines.Scan(); {
		var from, to uint64
		var rights string
		if n, _ := fmt.Sscanf(lines.Text(), "%x-%x %s", &from, &to, &rights); n < 3 || to <= at {
			continue
		}
		if from > at || len(rights) < 4 || rights[3] != 's' {
			return false
		}
		at = to
	}
	return at >= end
}
