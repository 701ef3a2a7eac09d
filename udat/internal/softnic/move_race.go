//go:build race

package softnic

const moveBlock = 4096

// move copies payload as a NIC does: the race detector does not see it. It does not use the
// built-in copy, because the runtime reports each copy to the detector, even in a function with
// norace. Assignments of arrays are not reported.
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
	for len(src) >= 8 { // by words, so that the program never sees part of a word that it polls
		*(*[8]byte)(dst) = *(*[8]byte)(src)
		dst, src = dst[8:], src[8:]
	}
	for i := range src {
		dst[i] = src[i]
	}
}
