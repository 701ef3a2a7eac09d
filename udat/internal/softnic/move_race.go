//go:build race

package softnic

const moveBlock = 4096

// Move copies payload as a NIC does: the race detector does not see it. The built-in copy would be
// seen even here, since the runtime reports it; assignments of arrays are not.
//
//go:norace
func Move(dst, src []byte) {
	for len(src) >= moveBlock {
		*(*[moveBlock]byte)(dst) = *(*[moveBlock]byte)(src)
		dst, src = dst[moveBlock:], src[moveBlock:]
	}
	for len(src) >= 64 {
		*(*[64]byte)(dst) = *(*[64]byte)(src)
		dst, src = dst[64:], src[64:]
	}
	for len(src) >= 8 { // a word that the program polls is written whole
		*(*[8]byte)(dst) = *(*[8]byte)(src)
		dst, src = dst[8:], src[8:]
	}
	for i := range src {
		dst[i] = src[i]
	}
}
