package udat

import (
	"sync/atomic"
	"unsafe"
)

// LoadUint64 loads the 8 bytes that begin at offset off in the region, atomically and in this
// host's byte order. It serves to poll memory that a peer writes by RDMA, because such writes make
// no event at this end. The word is read as a whole, and the program's later reads happen after the
// load. An ordinary read promises neither, and the compiler may move an ordinary read out of a
// loop.
//
// A changed value proves that this word has been written, and nothing else. The bytes of one RDMA
// write may arrive in any order, so a flag at the end of a write does not prove that the payload
// before the flag has arrived. There are two ways to know that the payload has arrived:
//
//   - The peer posts a Send, or a write with immediate data, after the payload on the same
//     endpoint, and this end waits for the completion of its receive. DAT promises this on every
//     device, and no load is needed.
//   - The peer posts the flag as a second RDMA write after the payload on the same endpoint, and
//     this end polls the flag with LoadUint64. InfiniBand and RoCE devices execute the writes of
//     one connection in the order of posting, and so does mem0. iWARP does not promise this order.
//
// If the word is outside the region, or its address is no multiple of 8, LoadUint64 returns
// InvalidParameter. After Free, it returns InvalidHandle. Any number of calls may run concurrently,
// also with transfers and with Free. LoadUint64 does not allocate.
//
// Extension.
func (l *LMR) LoadUint64(off int) (uint64, error) {
	return load(l, off, func(p unsafe.Pointer) uint64 { return atomic.LoadUint64((*uint64)(p)) })
}

// LoadUint32 is LoadUint64 for 4 bytes at an address that is a multiple of 4.
//
// Extension.
func (l *LMR) LoadUint32(off int) (uint32, error) {
	return load(l, off, func(p unsafe.Pointer) uint32 { return atomic.LoadUint32((*uint32)(p)) })
}

// load reads one word of the region. The memory stays mapped while l.mu is held, because unpin
// needs l.mu.
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
