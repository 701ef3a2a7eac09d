package udat_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/godat/godat/udat"
)

// run connects and disconnects, and leaves both ends DISCONNECTED, with all work flushed.
func (p *crowdPair) run(cycles int) {
	r := p.c.rand()
	enough := time.Now().Add(crowdTime) // for slow machines
	for i := 0; i < cycles; i++ {
		if time.Now().After(enough) {
			i = cycles - 1
		}
		passive, err := p.connect(r)
		if err == nil && passive != nil {
			p.pause(r)
			err = p.disconnect(r, passive)
		}
		last := i == cycles-1
		if last && passive != p.b { // only a connection of b itself flushes its receives
			i--
		}
		if err == nil && !(last && passive == p.b) {
			err = p.rest(passive)
		}
		if err != nil {
			p.c.t.Errorf("%s: %v", p.name, err)
			return
		}
	}
}

func (p *crowdPair) pause(r *rand.Rand) { time.Sleep(time.Duration(r.IntN(15000)) * time.Microsecond) }

// connect connects a with b through a service point of any kind, or with an endpoint that the
// provider makes. It returns the passive end, or nil if that end has rejected.
func (p *crowdPair) connect(r *rand.Rand) (*crowdEnd, error) {
	const consumer, reserved, provided = 0, 1, 2
	way, qual, passive := r.IntN(3), p.consumer.Qual(), p.b
	if way == provided && p.c3 == nil {
		way = consumer
	}
	switch way {
	case provided:
		qual, passive = p.provider.Qual(), p.c3
	case reserved:
		var err error
		if qual, err = p.reserve(); err != nil {
			return nil, err
		}
	}
	p.a.face(passive)
	passive.face(p.a)
	private := make([]byte, r.IntN(40))
	for i := range private {
		private[i] = byte(r.Uint32())
	}
	if err := p.a.ep.Connect(p.c.ia.Addr(), qual, patience, private, udat.QoSBestEffort, udat.ConnectDefault); err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	ev, _, err := p.cr.Wait(patience, 1)
	if err != nil {
		return nil, fmt.Errorf("waiting for the request: %w", err)
	}
	param, err := ev.CR.Query()
	if err != nil || !bytes.HasPrefix(param.PrivateData, private) {
		return nil, fmt.Errorf("the request has private data %x, want %x: %w", param.PrivateData, private, err)
	}
	ep := passive.ep
	if way != consumer {
		ep = nil
	}
	if r.IntN(6) == 0 {
		if err := ev.CR.Reject(nil); err != nil {
			return nil, err
		}
		return nil, p.a.hear(udat.EventConnectionPeerRejected)
	}
	if way == provided {
		if err := passive.adopt(param.LocalEP); err != nil {
			return nil, err
		}
	}
	if err := ev.CR.Accept(ep, nil); err != nil {
		return nil, fmt.Errorf("accept: %w", err)
	}
	if err := errors.Join(p.a.hear(udat.EventConnectionEstablished),
		passive.hear(udat.EventConnectionEstablished)); err != nil {
		return nil, err
	}
	return passive, nil
}

// reserve makes a reserved service point for b on a free qualifier.
func (p *crowdPair) reserve() (udat.ConnQual, error) {
	_, psp, err := p.c.ia.CreatePSPAny(p.cr, udat.PSPConsumer)
	if err != nil {
		return 0, err
	}
	qual := psp.Qual()
	if err := psp.Free(); err != nil {
		return 0, err
	}
	_, err = p.c.ia.CreateRSP(qual, p.b.ep, p.cr)
	return qual, err
}

// face sets the peer whose memory the end's posters use.
func (e *crowdEnd) face(peer *crowdEnd) {
	e.mu.Lock()
	e.peer = peer
	e.mu.Unlock()
}

// adopt takes an endpoint that the provider has made.
func (e *crowdEnd) adopt(ep *udat.EP) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ep = ep
	return ep.Modify(udat.EPFieldPZ|udat.EPFieldRecvEVD|udat.EPFieldRequestEVD|udat.EPFieldConnectEVD,
		udat.EPParam{PZ: e.c.pz, RecvEVD: e.recv.evd, RequestEVD: e.request.evd, ConnectEVD: e.conn.evd})
}

// hear waits for the end's next connection event, which must be one of those in want.
func (e *crowdEnd) hear(want ...udat.EventNumber) error {
	select {
	case ev := <-e.conns:
		if ev.EP != e.ep {
			return fmt.Errorf("%s: the event is another endpoint's: %s", e.name, describe(ev))
		}
		for _, n := range want {
			if ev.Number == n {
				return nil
			}
		}
		return fmt.Errorf("%s: %s, want %v", e.name, describe(ev), want)
	case <-time.After(patience):
		s, recvIdle, requestIdle, err := e.ep.GetStatus()
		return fmt.Errorf("%s: no event, want %v; the endpoint is %v, receives idle %v, requests idle %v: %v", e.name, want,
			s, recvIdle, requestIdle, err)
	}
}

// disconnect ends the connection from one end or both at once, graceful or not.
func (p *crowdPair) disconnect(r *rand.Rand, passive *crowdEnd) error {
	ends := []*crowdEnd{p.a, passive}
	var calls sync.WaitGroup
	errs := make([]error, len(ends))
	for i, e := range ends {
		graceful, both, wait := r.IntN(2) == 0, r.IntN(2) == 0, time.Duration(r.IntN(3000))*time.Microsecond
		calls.Go(func() {
			if graceful {
				errs[i] = e.ep.Disconnect(udat.CloseGraceful)
				time.Sleep(wait)
			}
			if i == 0 || both { // a Send without a receive may keep the peer from draining
				errs[i] = errors.Join(errs[i], e.ep.Disconnect(udat.CloseAbrupt))
			}
		})
	}
	calls.Wait()
	for i, e := range ends {
		if errs[i] != nil {
			return fmt.Errorf("%s: disconnect: %w", e.name, errs[i])
		}
	}
	return errors.Join(p.a.hear(udat.EventConnectionDisconnected, udat.EventConnectionBroken),
		passive.hear(udat.EventConnectionDisconnected, udat.EventConnectionBroken))
}

// rest prepares both ends for a new connection. The endpoint that the provider made is freed when
// all work has completed.
func (p *crowdPair) rest(passive *crowdEnd) error {
	if err := p.a.ep.Reset(); err != nil {
		return err
	}
	if passive == nil {
		return nil
	}
	if passive != p.c3 {
		return passive.ep.Reset()
	}
	passive.mu.Lock()
	defer passive.mu.Unlock()
	if !soon(func() bool { return passive.load.Load() == 0 }) {
		return fmt.Errorf("%s: %d operations do not complete", passive.name, passive.load.Load())
	}
	ep := passive.ep
	passive.ep = nil
	return ep.Free()
}
