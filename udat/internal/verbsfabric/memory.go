package verbsfabric

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/godat/godat/cverbs"
	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/verbsfabric/errmap"
)

// pd is a protection domain.
type pd struct {
	dev *device
	v   *cverbs.PD

	mu      sync.Mutex
	windows int        // number of open windows
	unbound *cverbs.MR // the region to name in an unbind, because drivers read a key; open while there are windows
}

func (d *device) AllocPD() (fabric.PD, error) {
	v, err := d.ctx.AllocPD()
	if err != nil {
		return nil, errmap.Wrap(err)
	}
	return &pd{dev: d, v: v}, nil
}

// Own returns p, even if it is called on a decorator of p.
func (p *pd) Own() any { return p }

func (p *pd) Close() error { return errmap.Wrap(p.v.Close()) }

// mr is a memory region.
type mr struct {
	dev *device
	v   *cverbs.MR
}

func (p *pd) RegMR(buf []byte, access fabric.Access) (fabric.MR, error) {
	if len(buf) == 0 {
		return nil, errmap.Invalid("buf is empty")
	}
	if limit := p.dev.attrs.MaxMRSize; uint64(len(buf)) > limit && limit > 0 {
		return nil, errmap.Invalid("buf is %d bytes, a region of this device at most %d", len(buf), limit)
	}
	a := access
	if access&(fabric.RemoteWrite|fabric.RemoteAtomic) != 0 {
		a |= cverbs.AccessLocalWrite
	}
	v, err := p.v.RegMR(buf, a)
	if err != nil {
		return nil, errmap.Wrap(err)
	}
	return &mr{p.dev, v}, nil
}

func (m *mr) LKey() uint32 { return m.v.LKey() }
func (m *mr) RKey() uint32 { return m.v.RKey() }

func (m *mr) RemoteAddr() uint64 { return m.v.Addr() }

func (m *mr) Close() error { return errmap.Wrap(m.v.Close()) }

// mw is a memory window of type 1. Like DAT's RMR, it may be bound again at any time, and it is
// valid in its whole protection domain. Neither is true of a window of type 2. Every device with
// type 2 also has type 1.
type mw struct {
	pd      *pd
	v       *cverbs.MW
	rkey    atomic.Uint32
	unbound *cverbs.MR // the unbound region of pd
}

func (p *pd) AllocMW() (fabric.MW, error) {
	if p.dev.attrs.MaxMW == 0 {
		return nil, fmt.Errorf("%w: %s has no memory windows", fabric.ErrNotSupported, p.dev.info.Name)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	v, err := p.v.AllocMW(cverbs.MWType1)
	if err == nil && p.windows == 0 {
		if p.unbound, err = p.v.RegMR(make([]byte, 8), cverbs.AccessMWBind); err != nil {
			v.Close()
		}
	}
	if err != nil {
		return nil, errmap.Wrap(err)
	}
	p.windows++
	return &mw{pd: p, v: v, unbound: p.unbound}, nil
}

func (m *mw) RKey() uint32 { return m.rkey.Load() }

func (m *mw) Close() error {
	if err := m.v.Close(); err != nil {
		return errmap.Wrap(err)
	}
	m.pd.mu.Lock()
	defer m.pd.mu.Unlock()
	if m.pd.windows--; m.pd.windows == 0 {
		m.pd.unbound.Close()
	}
	return nil
}
