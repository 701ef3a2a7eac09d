package verbsfabric

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/godat/godat/cverbs"
	"github.com/godat/godat/udat/internal/fabric"
)

// Kinds of objects, as Device.Close names them.
const (
	kindPD       = "protection domain"
	kindMR       = "memory region"
	kindMW       = "memory window"
	kindCQ       = "completion queue"
	kindSRQ      = "shared receive queue"
	kindQP       = "queue pair"
	kindListener = "listener"
	kindConn     = "connection"
)

// pd is a protection domain.
type pd struct {
	dev *device
	v   *cverbs.PD

	mu      sync.Mutex
	windows int        // that are open
	unbound *cverbs.MR // names a region to drivers in an unbind; open while windows are
}

func (d *device) AllocPD() (fabric.PD, error) {
	if err := d.reserve(kindPD); err != nil {
		return nil, err
	}
	v, err := d.ctx.AllocPD()
	if err != nil {
		d.release(kindPD)
		return nil, wrap(err)
	}
	return &pd{dev: d, v: v}, nil
}

func (p *pd) base() *pd { return p }

func (p *pd) Close() error {
	if err := p.v.Close(); err != nil {
		return wrap(err)
	}
	p.dev.release(kindPD)
	return nil
}

// mr is a memory region.
type mr struct {
	dev *device
	v   *cverbs.MR
}

func (p *pd) RegMR(buf []byte, access fabric.Access) (fabric.MR, error) {
	if len(buf) == 0 {
		return nil, invalid("buf is empty")
	}
	if limit := p.dev.attrs.MaxMRSize; uint64(len(buf)) > limit && limit > 0 {
		return nil, invalid("buf is %d bytes, a region of this device at most %d", len(buf), limit)
	}
	a := access
	if access&(fabric.RemoteWrite|fabric.RemoteAtomic) != 0 {
		a |= cverbs.AccessLocalWrite
	}
	if err := p.dev.reserve(kindMR); err != nil {
		return nil, err
	}
	v, err := p.v.RegMR(buf, a)
	if err != nil {
		p.dev.release(kindMR)
		return nil, wrap(err)
	}
	return &mr{p.dev, v}, nil
}

func (m *mr) LKey() uint32 { return m.v.LKey() }
func (m *mr) RKey() uint32 { return m.v.RKey() }

func (m *mr) Close() error {
	if err := m.v.Close(); err != nil {
		return wrap(err)
	}
	m.dev.release(kindMR)
	return nil
}

// mw is a memory window of type 1: it may be bound again at any time and is valid in its whole
// protection domain, like DAT's RMR. Type 2 can do neither; every device with type 2 has type 1
// too.
type mw struct {
	dev     *device
	pd      *pd
	v       *cverbs.MW
	rkey    atomic.Uint32
	unbound *cverbs.MR // the domain's
}

func (p *pd) AllocMW() (fabric.MW, error) {
	if p.dev.attrs.MaxMW == 0 {
		return nil, fmt.Errorf("%w: %s has no memory windows", fabric.ErrNotSupported, p.dev.info.Name)
	}
	if err := p.dev.reserve(kindMW); err != nil {
		return nil, err
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
		p.dev.release(kindMW)
		return nil, wrap(err)
	}
	p.windows++
	return &mw{dev: p.dev, pd: p, v: v, unbound: p.unbound}, nil
}

func (m *mw) RKey() uint32 { return m.rkey.Load() }

func (m *mw) Close() error {
	if err := m.v.Close(); err != nil {
		return wrap(err)
	}
	m.pd.mu.Lock()
	defer m.pd.mu.Unlock()
	if m.pd.windows--; m.pd.windows == 0 {
		m.pd.unbound.Close()
	}
	m.dev.release(kindMW)
	return nil
}
