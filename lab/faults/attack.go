package main

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/godat/godat/udat"
)

// secretByte fills the victim's regions. An attack must neither read nor change any of these bytes.
const secretByte = 0x5e

const regionSize = 4096

// side is one end of a connection that a row makes in addition to the links of the round.
type side struct {
	ia  *udat.IA
	pz  *udat.PZ
	evd *udat.EVD
	ep  *udat.EP
	mem *memory
}

func newSide(device, name string) (*side, error) {
	s := &side{}
	var err error
	if s.ia, err = udat.Open(device, udat.WithRNRRetry(7)); err != nil {
		return nil, err
	}
	if s.pz, err = s.ia.CreatePZ(); err != nil {
		return s, err
	}
	s.evd, err = s.ia.CreateEVD(256, udat.EVDDTO|udat.EVDConnection|udat.EVDCR|udat.EVDRMRBind, nil)
	if err != nil {
		return s, err
	}
	s.mem, err = newMemory(s.ia, s.pz, name, regionSize, udat.PrivAll)
	return s, err
}

// close closes the adapter and frees the objects that it still has.
func (s *side) close() error {
	if s == nil {
		return nil
	}
	return s.ia.Close(udat.CloseAbrupt)
}

// next returns the next event.
func (s *side) next() (udat.Event, error) {
	ev, _, err := s.evd.Wait(patience, 1)
	return ev, err
}

// drain drops the events that are queued.
func (s *side) drain() {
	for _, err := s.evd.Dequeue(); err == nil; {
		_, err = s.evd.Dequeue()
	}
}

// attack is a connection whose active end is hostile.
type attack struct {
	r       *round
	a, v    *side
	victims []*memory // regions of the victim of which no byte may change
	granted *memory   // the region of the victim that the attacker may read and write
	rmr     *udat.RMR
	read    bool // the latest operation is an RDMA read
}

// connected creates new endpoints at both ends and connects them.
func (k *attack) connected() error {
	for _, s := range []*side{k.a, k.v} {
		if s.ep != nil {
			if err := s.ep.Free(); err != nil {
				return err
			}
		}
		s.drain()
		var err error
		attr := &udat.EPAttr{MaxRequestDTOs: 64, MaxRDMAReadIn: 4}
		if s.ep, err = s.ia.CreateEP(s.pz, s.evd, s.evd, s.evd, attr); err != nil {
			return err
		}
	}
	qual, psp, err := k.v.ia.CreatePSPAny(k.v.evd, udat.PSPConsumer)
	if err != nil {
		return err
	}
	defer psp.Free()
	if err := k.a.ep.Connect(k.v.ia.Addr(), qual, patience, nil, udat.QoSBestEffort, udat.ConnectDefault); err != nil {
		return err
	}
	ev, err := k.v.next()
	if err != nil || ev.Number != udat.EventConnectionRequest {
		return fmt.Errorf("the victim gets %v (%v) instead of a request", ev.Number, err)
	}
	if err := ev.CR.Accept(k.v.ep, nil); err != nil {
		return err
	}
	for _, s := range []*side{k.a, k.v} {
		if ev, err := s.next(); err != nil || ev.Number != udat.EventConnectionEstablished {
			return fmt.Errorf("%v (%v) instead of ESTABLISHED: %v", ev.Number, err, ev.Err())
		}
	}
	return nil
}

// refused waits until a refused operation has ended the connection at both ends. On iWARP a Send or
// write completes before the peer has seen it.
func (k *attack) refused() error {
	for _, s := range []*side{k.a, k.v} {
		failed := false
		for {
			ev, err := s.next()
			if err != nil {
				return fmt.Errorf("no end of the connection: %w", err)
			}
			if ev.Number == udat.EventDTOCompletion || ev.Number == udat.EventRMRBindCompletion {
				failed = failed || ev.Status != udat.DTOSuccess
				if s == k.a && ev.Status == udat.DTOSuccess && (!k.r.iwarp || ev.Operation == udat.DTORDMARead) {
					return errors.New("the operation succeeds")
				}
				continue
			}
			if !slices.Contains(ended, ev.Number) {
				return fmt.Errorf("event %v", ev.Number)
			}
			break
		}
		if s == k.a && !failed && (!k.r.iwarp || k.read) {
			return errors.New("the operation has no completion")
		}
	}
	return k.unchanged()
}

// unchanged checks that no byte of the victim has changed and that the attacker has read none.
func (k *attack) unchanged() error {
	for _, m := range append([]*memory{k.granted}, k.victims...) {
		if i := changed(m.buf, secretByte); i >= 0 {
			return fmt.Errorf("byte %d of region %s has changed", i, m.name)
		}
		if err := m.check(); err != nil {
			return err
		}
	}
	if i := slices.Index(k.a.mem.buf, secretByte); i >= 0 {
		return fmt.Errorf("the attacker has read a byte, which is at %d", i)
	}
	return k.a.mem.check()
}

// permitted is the control experiment: a read of the granted memory and a write to it must succeed.
func (k *attack) permitted() error {
	if err := k.connected(); err != nil {
		return err
	}
	grant := k.granted.lmr.RMRTriplet(0, regionSize)
	for _, read := range []bool{true, false} {
		if err := k.succeed(read, grant.RMRContext, grant.TargetAddress+regionSize-16, 16); err != nil {
			return err
		}
		if read && changed(k.a.mem.buf[:16], secretByte) >= 0 {
			return errors.New("the bytes read are not the victim's")
		}
		set(k.a.mem.buf, emptyByte)
	}
	until := time.Now().Add(patience) // on iWARP a write completes before it is placed
	for changed(k.granted.buf[regionSize-16:], emptyByte) >= 0 {
		if time.Now().After(until) {
			return errors.New("the write has not arrived")
		}
		time.Sleep(time.Millisecond)
	}
	set(k.granted.buf, secretByte)
	return nil
}

// put posts a write of n bytes to the remote memory, or a read from it.
func (k *attack) put(read bool, context uint32, address uint64, n int) error {
	remote := udat.RMRTriplet{RMRContext: context, TargetAddress: address, SegmentLength: uint64(n)}
	iov := k.a.mem.iov(0, n)
	k.read = read
	if read {
		return k.a.ep.PostRDMARead(iov, 1, remote, udat.CompletionDefault)
	}
	return k.a.ep.PostRDMAWrite(iov, 1, remote, udat.CompletionDefault)
}

// succeed is like put, and waits for the completion, which must be a success.
func (k *attack) succeed(read bool, context uint32, address uint64, n int) error {
	if err := k.put(read, context, address, n); err != nil {
		return err
	}
	if ev, err := k.a.next(); err != nil || ev.Status != udat.DTOSuccess {
		return fmt.Errorf("%v %v (%v)", ev.Operation, ev.Status, err)
	}
	return nil
}

// try makes a new connection, posts one forbidden write or read, and expects its refusal.
func (k *attack) try(what string, read bool, context uint32, address uint64, n int) error {
	err := k.connected()
	if err == nil {
		if err = k.put(read, context, address, n); err == nil {
			err = k.refused()
		}
	}
	if err != nil {
		way := "write"
		if read {
			way = "read"
		}
		return fmt.Errorf("%s (%s): %w", what, way, err)
	}
	return nil
}

// tryBoth calls try for a write and for a read.
func (k *attack) tryBoth(what string, context uint32, address uint64, n int) error {
	if err := k.try(what, false, context, address, n); err != nil {
		return err
	}
	return k.try(what, true, context, address, n)
}

// region registers a new region of the victim. No byte of this region may change.
func (k *attack) region(name string, pz *udat.PZ, priv udat.MemPriv) (*memory, udat.RMRTriplet, error) {
	m, err := newMemory(k.v.ia, pz, name, regionSize, priv)
	if err != nil {
		return nil, udat.RMRTriplet{}, err
	}
	set(m.buf, secretByte)
	k.victims = append(k.victims, m)
	return m, m.lmr.RMRTriplet(0, regionSize), nil
}

// attacking returns the function of a scenario: a hostile peer performs the operations on a
// connection of its own, while the round's links must continue their traffic.
func attacking(operations func(*attack) error) func(*round) error {
	return func(r *round) error {
		return attacked(r, func(k *attack) error { return k.run(operations) })
	}
}

// attacked opens both adapters of an attack, calls f, and closes the adapters.
func attacked(r *round, f func(*attack) error) (err error) {
	k := &attack{r: r}
	defer func() {
		for _, s := range []*side{k.a, k.v} {
			err = errors.Join(err, s.close())
		}
	}()
	if k.v, err = newSide(r.device, "grant"); err != nil {
		return err
	}
	if k.a, err = newSide(r.device, "attacker"); err != nil {
		return err
	}
	k.granted = k.v.mem
	set(k.granted.buf, secretByte)
	return f(k)
}

func (k *attack) run(operations func(*attack) error) error {
	r := k.r
	if err := k.permitted(); err != nil {
		return fmt.Errorf("the control: %w", err)
	}
	if err := operations(k); err != nil {
		return err
	}
	if err := k.unchanged(); err != nil {
		return err
	}
	return r.goOn()
}
