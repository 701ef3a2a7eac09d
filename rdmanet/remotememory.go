package rdmanet

import (
	"context"
	"fmt"
	"io"
	"syscall"

	"github.com/godat/godat/udat"
)

// RemoteMemory is memory of the peer as an [io.ReaderAt] and [io.WriterAt], for slices that are not
// registered. Each call registers its slice and ends the registration, which takes microseconds to
// milliseconds. Many transfers are faster with a [Region]. All methods are safe for concurrent use.
type RemoteMemory struct {
	c      *Conn
	ctx    context.Context
	remote Remote
}

// RemoteMemory returns the peer's memory that remote identifies. If ctx ends, so do the calls of
// the RemoteMemory, by the rules of [Batch.Start].
func (c *Conn) RemoteMemory(ctx context.Context, remote Remote) *RemoteMemory {
	return &RemoteMemory{c, ctx, remote}
}

// Size returns the number of bytes. The peer has chosen it.
func (m *RemoteMemory) Size() int64 { return int64(m.remote.Len()) }

// ReadAt reads len(p) bytes of the memory, from the offset off on. If the memory has fewer bytes
// there, ReadAt returns their number and io.EOF.
func (m *RemoteMemory) ReadAt(p []byte, off int64) (int, error) {
	whole := len(p)
	if off >= 0 {
		p = p[:min(uint64(whole), m.remote.Len()-min(uint64(off), m.remote.Len()))]
	}
	err := m.move("read", udat.OpRDMARead, p, off)
	switch {
	case err != nil:
		return 0, err
	case len(p) < whole:
		return len(p), io.EOF
	}
	return whole, nil
}

// WriteAt writes p to the memory, from the offset off on. If the memory does not contain all these
// bytes, WriteAt writes nothing and the error wraps syscall.EINVAL.
func (m *RemoteMemory) WriteAt(p []byte, off int64) (int, error) {
	if err := m.move("write", udat.OpRDMAWrite, p, off); err != nil {
		return 0, err
	}
	return len(p), nil
}

// move registers p and transfers it. When move returns, the device does not access p any more.
func (m *RemoteMemory) move(op string, kind udat.OpKind, p []byte, off int64) error {
	if !m.c.ok() {
		return syscall.EINVAL
	}
	switch {
	case off < 0:
		return m.c.opError(op, fmt.Errorf("offset %d: %w", off, syscall.EINVAL))
	case len(p) == 0:
		return nil
	}
	part, err := m.remote.Slice(uint64(off), uint64(len(p)))
	if err != nil {
		return m.c.opError(op, err)
	}
	r, err := m.c.NewRegion(p, 0)
	if err != nil {
		return err
	}
	defer r.Close()
	b := m.c.NewBatch()
	b.transfer(kind, part, r, 0)
	return m.c.opError(op, b.do(m.ctx))
}
