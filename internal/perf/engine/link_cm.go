package engine

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/godat/godat/cverbs"
	"github.com/godat/godat/internal/perf/result"
)

// minRNRTimer encodes how long a sender waits after "receiver not ready" before it tries again.
// Code 12 is 0.64 ms, as in udat.
const minRNRTimer = 12

// rnrRetries is the number of retries after "receiver not ready". 7 means unlimited, as in udat.
const rnrRetries = 7

func (l *cverbsLink) newID() (*cverbs.CMID, error) {
	id, err := l.ch.CreateID(cverbs.PortSpaceTCP)
	if id, err = keep(l, id, err); err == nil && l.over.TOS != nil {
		err = id.SetTOS(*l.over.TOS)
	}
	return id, err
}

func (l *cverbsLink) listen() (netip.AddrPort, error) {
	id, err := l.newID()
	if err != nil {
		return netip.AddrPort{}, err
	}
	if err := id.BindAddr(netip.AddrPortFrom(l.addr, 0)); err != nil {
		return netip.AddrPort{}, err
	}
	if err := id.Listen(len(l.qps) + 8); err != nil {
		return netip.AddrPort{}, err
	}
	l.listener = id
	return id.LocalAddr(), nil
}

func (l *cverbsLink) accept(ctx context.Context, token uint64) error {
	for up := 0; up < len(l.qps); {
		ev, err := l.ch.GetContext(ctx)
		if err != nil {
			return fmt.Errorf("waiting for the client's connections, %d of %d are there: %w", up, len(l.qps), err)
		}
		switch ev.Type {
		case cverbs.CMEventEstablished:
			up++
		case cverbs.CMEventConnectRequest:
			qp, err := parsePrivate(ev.PrivateData, token, len(l.qps))
			if err != nil { // a request of another program, which may have ended
				ev.ID.Reject(nil)
				ev.ID.Close()
				continue
			}
			id, _ := keep(l, ev.ID, nil)
			if err := l.move(id, qp, ev.ResponderResources, ev.InitiatorDepth); err != nil {
				return fmt.Errorf("accepting connection %d: %w", qp, err)
			}
			p := l.param(qp, nil)
			p.ResponderResources, p.InitiatorDepth = min(p.ResponderResources, ev.ResponderResources), min(p.InitiatorDepth,
				ev.InitiatorDepth)
			if err := id.Accept(p); err != nil {
				return fmt.Errorf("accepting connection %d: %w", qp, err)
			}
		default:
			return fmt.Errorf("accepting the client's connections: %v: %w", ev.Type, ev.Err())
		}
	}
	return nil
}

func (l *cverbsLink) param(qp int, private []byte) cverbs.ConnParam {
	return cverbs.ConnParam{
		PrivateData: private, ResponderResources: uint8(l.c.ReadDepth), InitiatorDepth: uint8(l.c.ReadDepth),
		FlowControl: true, RetryCount: l.retry(), RNRRetryCount: l.rnr(), QPNum: l.qps[qp].Num(), SRQ: l.srq != nil,
	}
}

func (l *cverbsLink) retry() uint8 { return uint8(l.c.Retry.Or(int(l.retries))) }
func (l *cverbsLink) rnr() uint8   { return uint8(l.c.RNR.Or(rnrRetries)) }

func (l *cverbsLink) connect(ctx context.Context, to netip.AddrPort, token uint64) error {
	for qp := range l.qps {
		if err := l.connectQP(ctx, to, token, qp); err != nil {
			return fmt.Errorf("connection %d to %v: %w", qp, to, err)
		}
	}
	return nil
}

func (l *cverbsLink) connectQP(ctx context.Context, to netip.AddrPort, token uint64, qp int) error {
	id, err := l.newID()
	if err != nil {
		return err
	}
	const resolve = 5 * time.Second
	var src netip.AddrPort
	if l.addr.Is4() == to.Addr().Is4() {
		src = netip.AddrPortFrom(l.addr, 0)
	} else if l.over.GIDIndex != nil {
		return fmt.Errorf("--gid-index %d: its address %v and %v are of different families", *l.over.GIDIndex, l.addr,
			to.Addr())
	}
	if err := id.ResolveAddr(src, to, resolve); err != nil {
		return err
	}
	for {
		ev, err := l.ch.GetContext(ctx)
		if err != nil {
			return err
		}
		switch ev.Type {
		case cverbs.CMEventAddrResolved:
			err = id.ResolveRoute(resolve)
		case cverbs.CMEventRouteResolved:
			err = id.Connect(l.param(qp, makePrivate(token, qp)))
		case cverbs.CMEventConnectResponse:
			if err = l.move(id, qp, ev.ResponderResources, ev.InitiatorDepth); err == nil {
				return id.Establish()
			}
		case cverbs.CMEventEstablished: // iWARP, where the driver has moved the queue pair
			return nil
		default:
			err = errors.Join(fmt.Errorf("%v", ev.Type), ev.Err())
		}
		if err != nil {
			return err
		}
	}
}

// move moves a queue pair from INIT to RTS, with the attributes that the connection manager returns
// for id. On iWARP it does nothing, because the driver moves the queue pair.
func (l *cverbsLink) move(id *cverbs.CMID, qp int, in, out uint8) error {
	if l.iwarp {
		return nil
	}
	for _, state := range []cverbs.QPState{cverbs.QPStateRTR, cverbs.QPStateRTS} {
		attr, mask, err := id.InitQPAttr(state)
		if err != nil {
			return err
		}
		attr.State = state
		mask |= cverbs.QPAttrState
		if state == cverbs.QPStateRTR {
			attr.MaxDestRDAtomic, attr.MinRNRTimer = min(in, uint8(l.c.ReadDepth)), minRNRTimer
		} else {
			attr.MaxRDAtomic, attr.RetryCnt, attr.RNRRetry = min(out, uint8(l.c.ReadDepth)), l.retry(), l.rnr()
		}
		l.over.Apply(&attr, mask)
		if mask, err = l.unreliable(qp, &attr, mask); err != nil {
			return err
		}
		if err := l.qps[qp].Modify(attr, mask); err != nil {
			return err
		}
	}
	return nil
}

// unreliable returns the mask of the attributes that a queue pair of the case's transport has. The
// arguments attr and mask are those of a reliable connection, from the connection manager. For UD,
// it also creates the address handle.
func (l *cverbsLink) unreliable(qp int, attr *cverbs.QPAttr, mask cverbs.QPAttrMask) (cverbs.QPAttrMask, error) {
	switch l.c.Transport {
	case result.UC:
		return mask &^ (cverbs.QPAttrMaxDestRDAtomic | cverbs.QPAttrMinRNRTimer | cverbs.QPAttrTimeout |
			cverbs.QPAttrRetryCnt | cverbs.QPAttrRNRRetry | cverbs.QPAttrMaxRDAtomic), nil
	case result.UD:
		if attr.State == cverbs.QPStateRTS {
			return cverbs.QPAttrState | cverbs.QPAttrSQPSN, nil
		}
		ah, err := l.pd.CreateAH(attr.AH)
		if ah, err = keep(l, ah, err); err != nil {
			return 0, err
		}
		if l.paths == nil {
			l.paths = make([]datagramPath, len(l.qps))
		}
		l.paths[qp] = datagramPath{ah, attr.DestQPNum}
		return cverbs.QPAttrState, nil
	}
	return mask, nil
}
