package udat

import (
	"maps"
	"slices"
)

// CreatePZ makes a protection zone.
//
// Implements: dat_pz_create.
func (ia *IA) CreatePZ() (*PZ, error) {
	const op = "pz_create"
	if err := ia.object().check(op, HandleIA); err != nil {
		return nil, err
	}
	pd, err := ia.device.AllocPD()
	if err != nil {
		return nil, failAs(op, err, SubResourceProtectionDomain)
	}
	pz := &PZ{pd: pd, posting: make(map[*EP]struct{})}
	if err := ia.adopt(op, &pz.obj, pz, HandlePZ, nil); err != nil {
		pd.Close()
		return nil, err
	}
	return pz, nil
}

// PZParam describes a zone.
type PZParam struct{ IA *IA }

// Query returns a description of the zone.
//
// Implements: dat_pz_query.
func (pz *PZ) Query() (PZParam, error) {
	const op = "pz_query"
	if err := pz.object().check(op, HandlePZ); err != nil {
		return PZParam{}, err
	}
	return PZParam{IA: pz.obj.ia}, nil
}

// Free destroys the zone. It returns InvalidState while an endpoint, a memory region or a shared
// receive queue is in the zone.
//
// Implements: dat_pz_free.
func (pz *PZ) Free() error {
	if err := pz.object().release("pz_free", HandlePZ, SubStatePZInUse,
		"endpoints, regions or shared receive queues"); err != nil {
		return err
	}
	pz.destroy()
	return nil
}

func (pz *PZ) destroy() { closeUnused(pz.pd.Close) }

// setPosting records whether the endpoint may have posts in progress that use regions of the zone.
// It does nothing if pz is nil.
func (pz *PZ) setPosting(ep *EP, may bool) {
	if pz == nil {
		return
	}
	pz.obj.ia.mu.Lock()
	defer pz.obj.ia.mu.Unlock()
	if may {
		pz.posting[ep] = struct{}{}
	} else {
		delete(pz.posting, ep)
	}
}

// posters returns the endpoints of the zone that may have posts in progress.
func (pz *PZ) posters() []*EP {
	pz.obj.ia.mu.Lock()
	defer pz.obj.ia.mu.Unlock()
	return slices.Collect(maps.Keys(pz.posting))
}
