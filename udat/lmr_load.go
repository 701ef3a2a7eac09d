package udat

import (
	"sync/atomic"
	"unsafe"
)

// LoadUint64 loads the 8 bytes at off, counted from the region's start, atomically and in this
// host's byte order. It is a way to poll memory that a peer writes without an event. The word is
// read whole, and later reads of the program stay behind it. An ordinary read of such memory
// promises neither, and the compiler may move it out of a loop.
//
// A loaded value proves that the word has been written, and nothing else: the bytes of one RDMA
// write may arrive in any order, so that a flag at its end does not prove the payload before it.
// There are two ways to know that a payload has arrived:
//
//   - The peer posts a Send, or a write with immediate data, after the payload on the same
//     endpoint, and this end waits for its receive. DAT promises this on every device, and no load
//     is needed.
//   - The peer posts the flag as a second RDMA write after the payload on the same endpoint, and
//     this end polls the flag with LoadUint64. InfiniBand and RoCE devices carry out the writes of
//     one connection in the order of posting, and so does mem0. iWARP does not promise it.
//
// A word outside the region, or at an address that is no multiple of 8, is InvalidParameter. Any
// number of calls may run at once, beside transfers and beside Free; afterwards it is
// InvalidHandle. It allocates nothing.
//
// Extension.
func (l *LMR) LoadUint64(off int) (uint64, error) {
	return load(l, off, func(p unsafe.Pointer) uint64 { return atomic.LoadUint64((*uint64)(p)) })
}

// LoadUint32 is LoadUint64 for 4 bytes at a multiple of 4.
//
// Extension.
func (l *LMR) LoadUint32(off int) (uint32, error) {
	return load(l, off, func(p unsafe.Pointer) uint32 { return atomic.LoadUint32((*uint32)(p)) })
}

// load reads one word of the region, which cannot go meanwhile: unpin takes l.mu.
func load[W uint32 | uint64](l *LMR, off int, read func(unsafe.Pointer) W) (W, error) {
	const op = "lmr_load"
	if err := l.object().check(op, HandleLMR); err != nil {
		return 0, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.obj.check(op, HandleLMR); err != nil {
		return 0, err
	}
	n := int(unsafe.Sizeof(W(0)))
	switch {
	case off < 0 || off > len(l.buf)-n:
		return 0, fail(op, InvalidParameter, SubArg2,
			"offset is %d, a word of %d bytes must be inside the region's %d bytes", off, n, len(l.buf))
	case (l.addr+uint64(off))%uint64(n) != 0:
		return 0, fail(op, InvalidParameter, SubArg2,
			"the word at offset %d is at address 0x%x, which is no multiple of %d", off, l.addr+uint64(off), n)
	}
	return read(unsafe.Pointer(&l.buf[off])), nil
}
