package main

import (
	"flag"
	"fmt"
	"net/netip"

	"github.com/godat/godat/udat"
)

// The protocol of dtestcm: a greeting over TCP and private data as dtest's; many connections, of
// which the client requests a burst at a time; no messages; the client disconnects all.
type dtestcmSwitches struct {
	connections, burst int
	manyPorts          bool
}

func parseDtestcm(switches []string) (o dtestcmSwitches, err error) {
	f := flag.NewFlagSet("dtestcm", flag.ContinueOnError)
	f.IntVar(&o.connections, "c", 1000, "connections")
	f.IntVar(&o.burst, "b", 100, "connections that the client requests at once")
	f.BoolVar(&o.manyPorts, "m", false, "the connections of a burst have ports of their own")
	f.Bool("w", false, "the C program waits for each connection")
	if err = f.Parse(switches); err == nil && (o.connections < 1 || o.burst < 1) {
		err = fmt.Errorf("-c %d -b %d: too small", o.connections, o.burst)
	}
	return o, err
}

// ports are those of the connections of a burst, by turns.
func (o *dtestcmSwitches) ports() []udat.ConnQual {
	ports := []udat.ConnQual{dtestQual}
	for o.manyPorts && len(ports) < o.burst {
		ports = append(ports, dtestQual+udat.ConnQual(len(ports)))
	}
	return ports
}

// newDtestcm makes the endpoints.
func newDtestcm(addr netip.Addr, switches []string) (e *end, eps []*udat.EP, o dtestcmSwitches, err error) {
	if o, err = parseDtestcm(switches); err != nil {
		return nil, nil, o, err
	}
	if e, err = newEnd(addr, 1, o.connections, 1); err != nil {
		return nil, nil, o, err
	}
	if eps, err = e.newEPs(o.connections); err != nil {
		e.close()
	}
	return e, eps, o, err
}

func dtestcmServer(addr netip.Addr, switches []string) error {
	e, eps, o, err := newDtestcm(addr, switches)
	if err != nil {
		return err
	}
	defer e.close()
	requests, err := e.listen(o.ports()...)
	if err != nil {
		return err
	}
	if err := tellClient(addr, false); err != nil {
		return err
	}
	for _, ep := range eps {
		cr, err := e.request(requests, pattern(1))
		if err != nil {
			return err
		}
		if err := cr.Accept(ep, pattern(2)); err != nil {
			return err
		}
	}
	if err := e.established(len(eps)); err != nil {
		return err
	}
	return e.disconnected(len(eps))
}

func dtestcmClient(addr netip.Addr, switches []string) error {
	e, eps, o, err := newDtestcm(addr, switches)
	if err != nil {
		return err
	}
	defer e.close()
	server, err := askServer(addr, false)
	if err != nil {
		return err
	}
	ports := o.ports()
	for begin := 0; begin < len(eps); begin += o.burst {
		stop := min(begin+o.burst, len(eps))
		for i := begin; i < stop; i++ {
			if err := connect(eps[i], server, ports[(i-begin)%len(ports)], pattern(1)); err != nil {
				return err
			}
		}
		for range stop - begin {
			ev, err := e.await(e.connected, udat.EventConnectionEstablished)
			if err != nil {
				return err
			}
			if err := checkPrivate(ev.PrivateData(), pattern(2)); err != nil {
				return err
			}
		}
	}
	return e.disconnect(eps...)
}
