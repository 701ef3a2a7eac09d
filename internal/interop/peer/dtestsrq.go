package main

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/godat/godat/udat"
)

// The protocol of dtestsrq: several connections, whose number is in the private data both ways; in
// each round the client sends messages on all of them, and the server answers each. A message names
// the sender's role, the connection and its own number, from 1. Here both sides receive into a
// shared receive queue.
const (
	srqPort        = udat.ConnQual(45248)
	srqConnections = 4   // -c
	srqBurst       = 3   // -B, messages of a round on each connection
	srqRounds      = 3   // -t
	srqSize        = 256 // -b
	srqInFlight    = srqConnections * srqBurst
	srqClient      = 0x55 // the first byte of a message
	srqServer      = 0xaa
)

// srqEnd is an end whose endpoints share a receive queue. Its memory has a buffer for each receive,
// which the cookie numbers, and one for each message that it sends.
type srqEnd struct {
	*end
	srq  *udat.SRQ
	eps  []*udat.EP
	last [srqConnections]uint32 // number of the message received last
	role byte
}

func newSRQEnd(addr netip.Addr, role byte) (s *srqEnd, err error) {
	s = &srqEnd{role: role}
	if s.end, err = newEnd(addr, 2*srqInFlight*srqSize, srqConnections, srqInFlight); err != nil {
		return nil, err
	}
	if s.srq, err = s.ia.CreateSRQ(s.pz, udat.SRQAttr{MaxRecvDTOs: srqInFlight, MaxRecvIOV: 1}); err != nil {
		return s, err
	}
	for range srqConnections {
		attr := &udat.EPAttr{MaxRequestDTOs: srqBurst}
		ep, err := s.ia.CreateEPWithSRQ(s.pz, s.receives, s.requests, s.connected, s.srq, attr)
		if err != nil {
			return s, err
		}
		s.eps = append(s.eps, ep)
	}
	for i := range srqInFlight {
		if err := s.postReceive(udat.Cookie(i)); err != nil {
			return s, err
		}
	}
	return s, nil
}

func (s *srqEnd) postReceive(slot udat.Cookie) error {
	return s.srq.PostRecv(s.iov(int(slot)*srqSize, srqSize), slot)
}

// send sends the messages of a round.
func (s *srqEnd) send(round int) error {
	for number, ep := range s.eps {
		for i := range srqBurst {
			at := (srqInFlight + number*srqBurst + i) * srqSize
			b := s.bytes(at, srqSize)
			b[0] = s.role
			binary.BigEndian.PutUint32(b[4:], uint32(number))
			binary.BigEndian.PutUint32(b[8:], uint32(round*srqBurst+i+1))
			if err := ep.PostSend(s.iov(at, srqSize), udat.Cookie(at), udat.CompletionDefault); err != nil {
				return err
			}
		}
	}
	return s.awaitAll(s.requests, srqInFlight, udat.EventDTOCompletion)
}

// receive takes the peer's messages of a round and checks them.
func (s *srqEnd) receive() error {
	for range srqInFlight {
		ev, err := s.received(srqSize)
		if err != nil {
			return err
		}
		b := s.bytes(int(ev.Cookie)*srqSize, srqSize)
		role, number, message := b[0], binary.BigEndian.Uint32(b[4:]), binary.BigEndian.Uint32(b[8:])
		if role == s.role || number >= srqConnections || message != s.last[number]+1 {
			return fmt.Errorf("message %d of connection %d from role 0x%x, want message %v", message, number, role, s.last)
		}
		if ev.EP != s.eps[number] {
			return fmt.Errorf("a message of connection %d came from another", number)
		}
		s.last[number] = message
		if err := s.postReceive(ev.Cookie); err != nil {
			return err
		}
	}
	return nil
}

func dtestsrqServer(addr netip.Addr, _ []string) error {
	s, err := newSRQEnd(addr, srqServer)
	if s != nil && s.end != nil {
		defer s.close()
	}
	if err != nil {
		return err
	}
	requests, err := s.listen(srqPort)
	if err != nil {
		return err
	}
	for range srqConnections {
		ev, err := s.await(requests, udat.EventConnectionRequest)
		if err != nil {
			return err
		}
		p, err := ev.CR.Query()
		if err != nil {
			return err
		}
		if len(p.PrivateData) < 4 {
			return fmt.Errorf("%d bytes of private data, want 4", len(p.PrivateData))
		}
		number := binary.BigEndian.Uint32(p.PrivateData)
		if number >= srqConnections {
			return fmt.Errorf("connection %d, there are %d", number, srqConnections)
		}
		if err := ev.CR.Accept(s.eps[number], p.PrivateData[:4]); err != nil {
			return err
		}
	}
	if err := s.established(srqConnections); err != nil {
		return err
	}
	for round := range srqRounds {
		if err := s.receive(); err != nil {
			return err
		}
		if err := s.send(round); err != nil {
			return err
		}
	}
	return s.disconnected(srqConnections)
}

func dtestsrqClient(addr netip.Addr, _ []string) error {
	s, err := newSRQEnd(addr, srqClient)
	if s != nil && s.end != nil {
		defer s.close()
	}
	if err != nil {
		return err
	}
	for number, ep := range s.eps {
		if err := connect(ep, addr, srqPort, binary.BigEndian.AppendUint32(nil, uint32(number))); err != nil {
			return err
		}
	}
	if err := s.established(srqConnections); err != nil {
		return err
	}
	for round := range srqRounds {
		if err := s.send(round); err != nil {
			return err
		}
		if err := s.receive(); err != nil {
			return err
		}
	}
	return s.disconnect(s.eps...)
}
