//go:build unix

package main

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/godat/godat/udat"
)

const (
	depth  = 32 // requests in flight
	signal = 8  // one request in this number is signalled
)

// endpoint is an end that uses udat: Sends, and RDMA writes into the peer's memory.
type endpoint struct {
	ia           *udat.IA
	ep           *udat.EP
	evd          *udat.EVD
	mem          *udat.LMR
	size         int
	places       int // buffers at the peer, for the writes of a reader
	remote       udat.RMRTriplet
	posted, done int
}

func newEndpoint(w *work) (*endpoint, error) {
	var opts []udat.Option
	if w.checksums {
		opts = append(opts, udat.WithChecksums(true))
	}
	if w.spin >= 0 {
		opts = append(opts, udat.WithSpin(w.spin))
	}
	ia, err := udat.Open(w.device, opts...)
	if err != nil {
		return nil, err
	}
	e := &endpoint{ia: ia, size: w.size, places: depth / 2}
	if w.buffer > 0 { // as much memory as the buffer of a stream
		e.places = max(4, min(e.places, w.buffer/w.size))
	}
	pz, err := ia.CreatePZ()
	if err != nil {
		return nil, err
	}
	if e.evd, err = ia.CreateEVD(4*depth, udat.EVDDTO|udat.EVDConnection|udat.EVDCR, nil); err != nil {
		return nil, err
	}
	// MaxRequestDTOs is greater than depth, because the peer may answer a request before the device
	// reports the completion of that request.
	attr := &udat.EPAttr{MaxRequestDTOs: 4 * depth, MaxRecvDTOs: depth}
	if e.ep, err = ia.CreateEP(pz, e.evd, e.evd, e.evd, attr); err != nil {
		return nil, err
	}
	if e.mem, err = ia.AllocLMR(pz, (e.places+1)*w.size, udat.PrivAll); err != nil {
		return nil, err
	}
	for range e.places {
		if err := e.receiveNext(); err != nil {
			return nil, err
		}
	}
	return e, nil
}

func listenDAT(w *work, address func(string)) (end, error) {
	e, err := newEndpoint(w)
	if err != nil {
		return nil, err
	}
	port, psp, err := e.ia.CreatePSPAny(e.evd, udat.PSPConsumer)
	if err != nil {
		return nil, err
	}
	defer psp.Free()
	address(netip.AddrPortFrom(e.ia.Addr(), uint16(port)).String())
	ev, _, err := e.evd.Wait(patience, 1)
	if err != nil {
		return nil, err
	}
	memory, err := e.mem.RMRTriplet(0, e.places*w.size).MarshalBinary()
	if err != nil {
		return nil, err
	}
	if err := ev.CR.Accept(e.ep, memory); err != nil {
		return nil, err
	}
	_, err = e.connected()
	return e, err
}

func dialDAT(w *work, address string) (end, error) {
	e, err := newEndpoint(w)
	if err != nil {
		return nil, err
	}
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, err
	}
	err = e.ep.Connect(to.Addr(), udat.ConnQual(to.Port()), patience, nil, udat.QoSBestEffort, udat.ConnectDefault)
	if err != nil {
		return nil, err
	}
	private, err := e.connected()
	if err != nil {
		return nil, err
	}
	return e, e.remote.UnmarshalBinary(private[:udat.RMRTripletSize])
}

func (e *endpoint) connected() (private []byte, err error) {
	ev, _, err := e.evd.Wait(patience, 1)
	if err == nil && ev.Number != udat.EventConnectionEstablished {
		err = fmt.Errorf("not connected: %v", ev.Number)
	}
	return ev.PrivateData(), err
}

func (e *endpoint) receiveNext() error {
	return e.ep.PostRecv([]udat.LMRTriplet{e.mem.Triplet(e.places*e.size, e.size)}, 0, udat.CompletionDefault)
}

func (e *endpoint) send() error {
	return e.ep.PostSend([]udat.LMRTriplet{e.mem.Triplet(0, e.size)}, 1, udat.CompletionSuppress)
}

func (e *endpoint) receive() error {
	ev, _, err := e.evd.Wait(patience, 1)
	if err == nil && (ev.Number != udat.EventDTOCompletion || ev.Status != udat.DTOSuccess) {
		err = fmt.Errorf("%v: %v", ev.Number, ev.Status)
	}
	if err != nil {
		return err
	}
	return e.receiveNext()
}

// poller is an endpoint that polls for messages instead of waiting for events.
type poller struct {
	*endpoint
	events [4]udat.Event
}

func listenPoller(w *work, address func(string)) (end, error) {
	e, err := listenDAT(w, address)
	if err != nil {
		return nil, err
	}
	return &poller{endpoint: e.(*endpoint)}, nil
}

func dialPoller(w *work, address string) (end, error) {
	e, err := dialDAT(w, address)
	if err != nil {
		return nil, err
	}
	return &poller{endpoint: e.(*endpoint)}, nil
}

func (p *poller) receive() error {
	for {
		n, err := p.evd.DequeueSpin(p.events[:1], 32)
		switch {
		case errors.Is(err, udat.ErrQueueEmpty):
		case err != nil:
			return err
		case n > 0:
			if ev := &p.events[0]; ev.Number != udat.EventDTOCompletion || ev.Status != udat.DTOSuccess {
				return fmt.Errorf("%v: %v", ev.Number, ev.Status)
			}
			return p.receiveNext()
		}
	}
}

// place returns the address of buffer i at the peer.
func (e *endpoint) place(i int) udat.RMRTriplet {
	to := e.remote
	to.TargetAddress += uint64(i * e.size)
	to.SegmentLength = uint64(e.size)
	return to
}

func (e *endpoint) write() error {
	for e.posted-e.done >= depth {
		ev, _, err := e.evd.Wait(patience, 1)
		if err == nil && ev.Status != udat.DTOSuccess {
			err = fmt.Errorf("%v: %v", ev.Number, ev.Status)
		}
		if err != nil {
			return err
		}
		e.done += signal
	}
	e.posted++
	flags := udat.CompletionSuppress
	if e.posted%signal == 0 {
		flags = udat.CompletionDefault
	}
	return e.ep.PostRDMAWrite([]udat.LMRTriplet{e.mem.Triplet(0, e.size)}, 1, e.place(0), flags)
}

// take waits until the connection ends. The peer's writes cause no events at this end.
func (e *endpoint) take() error {
	for {
		ev, _, err := e.evd.Wait(patience, 1)
		if err != nil || ev.Number != udat.EventDTOCompletion {
			return err
		}
	}
}

func (e *endpoint) close() error { return e.ia.Close(udat.CloseAbrupt) }

// reader is an endpoint whose peer reads the data that arrives. Each write goes to the next of
// several buffers at the peer, with immediate data, and the peer copies the data out of the buffer.
// After a quarter of the buffers, the peer sends a message that says that they are free.
type reader struct{ *endpoint }

func listenReader(w *work, address func(string)) (end, error) {
	e, err := listenDAT(w, address)
	if err != nil {
		return nil, err
	}
	return reader{e.(*endpoint)}, nil
}

func dialReader(w *work, address string) (end, error) {
	e, err := dialDAT(w, address)
	if err != nil {
		return nil, err
	}
	return reader{e.(*endpoint)}, nil
}

func (r reader) write() error {
	for r.posted-r.done >= r.places {
		ev, _, err := r.evd.Wait(patience, 1)
		if err == nil && ev.Status != udat.DTOSuccess {
			err = fmt.Errorf("%v: %v", ev.Number, ev.Status)
		}
		if err != nil {
			return err
		}
		if ev.Operation == udat.DTOReceive {
			r.done += r.places / 4
			if err := r.receiveNext(); err != nil {
				return err
			}
		}
	}
	to := r.place(r.posted % r.places)
	r.posted++
	return r.ep.PostRDMAWriteImmediate([]udat.LMRTriplet{r.mem.Triplet(0, r.size)}, 1, to, 0, udat.CompletionSuppress)
}

func (r reader) take() error {
	p := make([]byte, r.size)
	for n := 0; ; {
		ev, _, err := r.evd.Wait(patience, 1)
		if err != nil || ev.Number != udat.EventDTOCompletion {
			return err
		}
		if ev.Operation != udat.DTOReceiveWriteImm || ev.Status != udat.DTOSuccess {
			continue
		}
		copy(p, r.mem.Bytes()[n%r.places*r.size:])
		if err := r.receiveNext(); err != nil {
			return err
		}
		if n++; n%(r.places/4) == 0 {
			iov := []udat.LMRTriplet{r.mem.Triplet(0, 1)}
			if err := r.ep.PostSend(iov, 1, udat.CompletionSuppress); err != nil {
				return err
			}
		}
	}
}
