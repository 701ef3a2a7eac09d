package engine

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/godat/godat/udat"
)

// Reached says how many objects of a kind could be created on an adapter.
type Reached struct {
	Kind    string
	Count   int
	Refusal error // the error of the attempt to create one more; nil if the limit of the call was reached
}

// LimitKinds lists the kinds of objects that Limits can create.
var LimitKinds = []string{"IA", "PZ", "CNO", "EVD", "EP", "SRQ", "LMR", "RMR", "PSP"}

// Limits creates objects of a kind on a device, at most as many as the argument limit. It stops
// earlier if the adapter refuses one. Then it frees them all, and creates one more to check that
// freeing them worked.
func Limits(ctx context.Context, device, kind string, limit int) (r Reached, err error) {
	chosen, err := choose(device, netip.Addr{})
	if err != nil {
		return r, err
	}
	r.Kind = kind
	ia, err := udat.Open(chosen.open)
	if err != nil {
		return r, err
	}
	defer func() {
		if e := ia.Close(udat.CloseGraceful); e != nil {
			err = errors.Join(err, fmt.Errorf("objects are left: %w", e), ia.Close(udat.CloseAbrupt))
		}
	}()
	m, err := newMaker(ia, chosen.open, kind)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, m.close()) }()
	var made []freer
	for r.Count < limit && r.Refusal == nil && ctx.Err() == nil {
		o, err := m.make()
		if err != nil {
			r.Refusal = err
			break
		}
		made = append(made, o)
		r.Count++
	}
	for _, o := range made {
		if e := o.Free(); e != nil {
			err = errors.Join(err, fmt.Errorf("freeing %s: %w", kind, e))
			break
		}
	}
	if err == nil && r.Count > 0 {
		var again freer
		if again, err = m.make(); err != nil {
			return r, fmt.Errorf("after all were freed: %w", err)
		}
		err = again.Free()
	}
	return r, errors.Join(err, ctx.Err())
}

type freer interface{ Free() error }

// maker creates objects of one kind. It owns the other objects that this kind needs.
type maker struct {
	make  func() (freer, error)
	needs []freer
}

func (m *maker) close() error {
	var errs []error
	for i := len(m.needs) - 1; i >= 0; i-- {
		errs = append(errs, m.needs[i].Free())
	}
	return errors.Join(errs...)
}

// adapter is an IA with a Free method that closes it.
type adapter struct{ *udat.IA }

func (a adapter) Free() error { return a.Close(udat.CloseGraceful) }

func newMaker(ia *udat.IA, device, kind string) (*maker, error) {
	pz, err := ia.CreatePZ()
	if err != nil {
		return nil, err
	}
	m := &maker{needs: []freer{pz}}
	evd, err := ia.CreateEVD(16, udat.EVDDefault&^udat.EVDAsync, nil)
	if err != nil {
		return nil, errors.Join(err, m.close())
	}
	m.needs = append(m.needs, evd)
	page := make([]byte, 4096)
	switch kind {
	case "IA":
		m.make = func() (freer, error) {
			ia, err := udat.Open(device)
			return adapter{ia}, err
		}
	case "CNO":
		m.make = func() (freer, error) { return ia.CreateCNO(nil) }
	case "SRQ":
		m.make = func() (freer, error) { return ia.CreateSRQ(pz, udat.SRQAttr{MaxRecvDTOs: 1, MaxRecvIOV: 1}) }
	case "PZ":
		m.make = func() (freer, error) { return ia.CreatePZ() }
	case "EVD":
		m.make = func() (freer, error) { return ia.CreateEVD(1, udat.EVDDTO, nil) }
	case "EP":
		attr := &udat.EPAttr{MaxRequestDTOs: 1, MaxRecvDTOs: 1, MaxRequestIOV: 1, MaxRecvIOV: 1}
		m.make = func() (freer, error) { return ia.CreateEP(pz, evd, evd, evd, attr) }
	case "LMR":
		m.make = func() (freer, error) { return ia.CreateLMR(pz, page, udat.PrivAll) }
	case "RMR":
		m.make = func() (freer, error) { return pz.CreateRMR() }
	case "PSP":
		m.make = func() (freer, error) {
			_, psp, err := ia.CreatePSPAny(evd, udat.PSPConsumer)
			return psp, err
		}
	default:
		return nil, errors.Join(fmt.Errorf("--kind %q: must be one of %v", kind, LimitKinds), m.close())
	}
	return m, nil
}
