package tcpfabric

import (
	"sync"
	"sync/atomic"
)

// buffers is a pool of buffers of one size. A link keeps a buffer only while there is data in the
// buffer.
type buffers struct {
	size int
	near [8]atomic.Pointer[[]byte] // the garbage collector does not free these
	far  sync.Pool
}

// take returns an empty buffer.
func (b *buffers) take() *[]byte {
	for i := range b.near {
		if near := &b.near[i]; near.Load() != nil {
			if buf := near.Swap(nil); buf != nil {
				return buf
			}
		}
	}
	if buf, _ := b.far.Get().(*[]byte); buf != nil {
		return buf
	}
	buf := make([]byte, 0, b.size)
	return &buf
}

// give returns the buffer *lent to the pool and sets *lent to nil.
func (b *buffers) give(lent **[]byte) {
	buf := *lent
	*lent = nil
	if buf == nil {
		return
	}
	for i := range b.near {
		if b.near[i].CompareAndSwap(nil, buf) {
			return
		}
	}
	b.far.Put(buf)
}

// The pools for received and for sent data. With checksums a buffer must hold whole frames.
var (
	rxPlain = buffers{size: 32 << 10}
	rxSums  = buffers{size: 128 << 10}
	txPlain = buffers{size: 16 << 10}
	txSums  = buffers{size: 512 << 10}
)

func choose(sums bool, without, with *buffers) *buffers {
	if sums {
		return with
	}
	return without
}
