package softnic

import (
	"sync/atomic"

	"github.com/godat/godat/udat/internal/fabric"
)

type srq struct {
	object
	pd   *pd
	rq   recvQueue
	dead atomic.Bool
}

// CreateSRQ makes a shared receive queue of exactly depth entries.
func (p *pd) CreateSRQ(depth, maxSGE int) (fabric.SRQ, error) {
	const op = "create SRQ"
	a := &p.dev.HW.Attr
	switch {
	case a.MaxSRQ == 0:
		return nil, Failed(op, fabric.ErrNotSupported)
	case depth < 1 || depth > a.MaxSRQWR:
		return nil, Invalid(op, "depth %d is not in 1 to %d", depth, a.MaxSRQWR)
	case maxSGE < 0 || maxSGE > a.MaxSRQSGE:
		return nil, Invalid(op, "maxSGE %d is not in 0 to %d", maxSGE, a.MaxSRQSGE)
	}
	if err := p.dev.admit(op, SRQs, &p.object); err != nil {
		return nil, err
	}
	s := &srq{pd: p}
	s.rq.init(depth, maxSGE)
	return s, nil
}

func (s *srq) usable(op string) error {
	switch {
	case s.dead.Load():
		return Failed(op, fabric.ErrClosed)
	case s.pd.dev.Faults.removed.Load():
		return Failed(op, fabric.ErrDeviceRemoved)
	}
	return nil
}

func (s *srq) PostRecv(wrs []fabric.RecvWR, sges []fabric.SGE) (int, error) {
	const op = "post receive to SRQ"
	if err := s.usable(op); err != nil {
		return 0, err
	}
	return s.rq.push(op, wrs, sges)
}

// SetLimit arms the limit. If fewer receives than the limit are queued already, the event is raised
// at once.
func (s *srq) SetLimit(limit int) error {
	const op = "arm SRQ limit"
	if err := s.usable(op); err != nil {
		return err
	}
	s.rq.mu.Lock()
	if limit < 0 || limit > len(s.rq.ids) {
		s.rq.mu.Unlock()
		return Invalid(op, "limit %d is not in 0 to the depth", limit)
	}
	s.rq.limit = limit
	low := s.rq.lowLocked()
	s.rq.mu.Unlock()
	if low {
		s.pd.dev.Report(fabric.AsyncEvent{Kind: fabric.AsyncSRQLimit, SRQ: s})
	}
	return nil
}

func (s *srq) Resize(depth int) error {
	const op = "resize SRQ"
	if err := s.usable(op); err != nil {
		return err
	}
	a := &s.pd.dev.HW.Attr
	if !a.SRQResize {
		return Failed(op, fabric.ErrNotSupported)
	}
	if depth < 1 || depth > a.MaxSRQWR {
		return Invalid(op, "depth %d is not in 1 to %d", depth, a.MaxSRQWR)
	}
	return s.rq.resize(op, depth)
}

func (s *srq) Depth() int { return s.rq.size() }

func (s *srq) Available() int { return s.rq.len() }

func (s *srq) Close() error {
	if err := s.pd.dev.retire("destroy SRQ", &s.object); err != nil {
		return err
	}
	s.dead.Store(true)
	s.pd.dev.release(SRQs, &s.pd.object)
	return nil
}
