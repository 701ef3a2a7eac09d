package verbsfabric

import (
	"fmt"
	"sync/atomic"

	"github.com/godat/godat/cverbs"
	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/verbsfabric/errmap"
)

// srq is a shared receive queue. It has one entry more on the device than Depth returns, because
// some devices refuse a limit equal to the capacity.
type srq struct {
	dev   *device
	v     *cverbs.SRQ
	as    fabric.SRQ // the queue as its owner knows it: itself, or its decorator
	depth atomic.Int64
}

// Own returns s, even if it is called on a decorator of s.
func (s *srq) Own() any { return s }

// Decorate makes asynchronous events refer to the decorator, which embeds the queue.
func (s *srq) Decorate(decorator fabric.SRQ) {
	s.dev.mu.Lock()
	s.as = decorator
	s.dev.mu.Unlock()
}

func (p *pd) CreateSRQ(depth, maxSGE int) (fabric.SRQ, error) {
	d := p.dev
	if d.attrs.MaxSRQ == 0 {
		return nil, fmt.Errorf("%w: %s has no shared receive queues", fabric.ErrNotSupported, d.info.Name)
	}
	if err := d.checkSRQDepth(depth); err != nil {
		return nil, err
	}
	if maxSGE < 0 || maxSGE > d.attrs.MaxSRQSGE {
		return nil, errmap.Invalid("maxSGE is %d, a receive in a shared queue of this device has at most %d", maxSGE,
			d.attrs.MaxSRQSGE)
	}
	v, err := p.v.CreateSRQ(cverbs.SRQInit{MaxWR: uint32(depth + 1), MaxSGE: uint32(max(maxSGE, 1))})
	if err != nil {
		return nil, errmap.Wrap(err)
	}
	s := &srq{dev: d, v: v}
	s.as = s
	s.readDepth(depth)
	remember(d, &d.srqs, v, s)
	return s, nil
}

func (d *device) checkSRQDepth(depth int) error {
	if depth < 1 || depth > d.attrs.MaxSRQWR {
		return errmap.Invalid("depth is %d, a shared receive queue of this device has 1 to %d entries", depth,
			d.attrs.MaxSRQWR)
	}
	return nil
}

// readDepth reads the depth that the device has granted. The granted depth may be greater than the
// requested one.
func (s *srq) readDepth(asked int) {
	if a, err := s.v.Query(); err == nil && int(a.MaxWR)-1 > asked {
		asked = int(a.MaxWR) - 1
	}
	s.depth.Store(int64(asked))
}

func (s *srq) PostRecv(wrs []fabric.RecvWR, sges []fabric.SGE) (int, error) {
	n, err := s.v.PostRecv(wrs, sges)
	if err != nil {
		return n, errmap.WrapPost(err)
	}
	return n, nil
}

func (s *srq) SetLimit(limit int) error {
	if depth := s.Depth(); limit < 0 || limit > depth {
		return errmap.Invalid("limit is %d, the queue's depth %d", limit, depth)
	}
	return errmap.Wrap(s.v.SetLimit(uint32(limit)))
}

// Resize changes the capacity. If the device cannot resize, Resize succeeds only if the queue is
// large enough already.
func (s *srq) Resize(depth int) error {
	if err := s.dev.checkSRQDepth(depth); err != nil {
		return err
	}
	if !s.dev.attrs.SRQResize {
		if depth <= s.Depth() {
			return nil
		}
		return fmt.Errorf("%w: %s cannot resize a shared receive queue", fabric.ErrNotSupported, s.dev.info.Name)
	}
	if err := s.v.Resize(uint32(depth + 1)); err != nil {
		return errmap.Wrap(err)
	}
	s.readDepth(depth)
	return nil
}

func (s *srq) Depth() int { return int(s.depth.Load()) }

// Available returns -1, because verbs does not report the number of receives that are left.
func (s *srq) Available() int { return -1 }

func (s *srq) Close() error {
	if err := s.v.Close(); err != nil {
		return errmap.Wrap(err)
	}
	forget(s.dev, s.dev.srqs, s.v)
	return nil
}
