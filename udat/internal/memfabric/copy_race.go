//go:build race

package memfabric

const moveBlock = 4096

// move copies payload as a NIC does: the race detector does not see it. The built-in copy would be
// seen even here, since the runtime reports it; assignments of arrays are not.
//
//go:norace
func move(dst, src []byte) {
	for len(src) >= moveBlock {
		*(*[moveBlock]byte)(dst) = *(*[moveBlock]byte)(src)
		dst, src = dst[moveBlock:], src[moveBlock:]
	}
	for len(src) >= 64 {
		*(*[64]byte)(dst) = *(*[64]byte)(src)
		dst, src = dst[64:], src[64:]
	}
	for len(src) >= 8 { // a word of a poller's is written whole
		*(*[8]byte)(dst) = *(*[8]byte)(src)
		dst, src = dst[8:], src[8:]
	}
	for i := range src {
		dst[i] = src[i]
	}
}
