package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/godat/godat/udat"
)

// Kinds of control messages in the protocol of rdmanet: see rdmanet/hello.go and rdmanet/wire.go.
const (
	rawCredit uint32 = iota + 1
	rawData
	rawRing
	rawMoved
	rawFin
	rawClose
	rawClosed
	rawKinds
)

const (
	rawRingSize = regionSize
	rawSlots    = 32 // receives of each end
	rawMessage  = 32 // bytes of a control message
)

// greeting is the private data of a request: 28 bytes.
type greeting struct {
	magic   string
	flags   byte
	slots   uint16
	address uint64
	key     uint32
	size    uint64
}

func (g greeting) bytes() []byte {
	b := append([]byte(g.magic), g.flags, 0)
	b = binary.BigEndian.AppendUint16(b, g.slots)
	b = binary.BigEndian.AppendUint64(b, g.address)
	b = binary.BigEndian.AppendUint32(b, g.key)
	return binary.BigEndian.AppendUint64(b, g.size)
}

// note is a control message.
type note struct {
	kind  uint32
	slots uint32
	limit uint64
	value uint64
	key   uint32
	size  uint32
}

func (n note) bytes() []byte {
	b := binary.BigEndian.AppendUint32(nil, n.kind)
	b = binary.BigEndian.AppendUint32(b, n.slots)
	b = binary.BigEndian.AppendUint64(b, n.limit)
	b = binary.BigEndian.AppendUint64(b, n.value)
	b = binary.BigEndian.AppendUint32(b, n.key)
	return binary.BigEndian.AppendUint32(b, n.size)
}

// credit is the first message of a proper client.
var credit = note{kind: rawCredit, limit: rawRingSize, value: rawRingSize}

// rawPeer is a client of an rdmanet server. It is written on udat, so that it can send anything.
type rawPeer struct {
	*side
	eps []*udat.EP
}

func newRawPeer(r *round) (*rawPeer, error) {
	s, err := newSide(r.device, "raw peer")
	return &rawPeer{side: s}, err
}

// greeting returns the greeting of a proper client.
func (p *rawPeer) greeting() greeting {
	t := p.mem.lmr.RMRTriplet(0, rawRingSize)
	return greeting{"RDN4", 1, rawSlots, t.TargetAddress, t.RMRContext, rawRingSize}
}

// request posts receives and sends a connection request with private data. The argument receives is
// the number of receives.
func (p *rawPeer) request(s *echoServer, private []byte, receives int) (err error) {
	p.ep, err = p.ia.CreateEP(p.pz, p.evd, p.evd, p.evd, &udat.EPAttr{MaxRecvDTOs: receives, MaxRequestDTOs: receives})
	if err != nil {
		return err
	}
	p.eps = append(p.eps, p.ep)
	for range receives {
		if err := p.ep.PostRecv(p.mem.iov(rawRingSize-rawMessage, rawMessage), 0, udat.CompletionDefault); err != nil {
			return err
		}
	}
	to := s.address()
	return p.ep.Connect(to.Addr(), udat.ConnQual(to.Port()), patience, private, udat.QoSBestEffort, udat.ConnectDefault)
}

// await returns the next event that is not a completion.
func (p *rawPeer) await(d time.Duration) (udat.Event, error) {
	for {
		ev, _, err := p.evd.Wait(d, 1)
		if err != nil || ev.Number != udat.EventDTOCompletion {
			return ev, err
		}
	}
}

// connect connects with private data; the error is the server's refusal.
func (p *rawPeer) connect(s *echoServer, private []byte) error {
	if err := p.request(s, private, rawSlots); err != nil {
		return err
	}
	ev, err := p.await(patience)
	if err == nil && ev.Number != udat.EventConnectionEstablished {
		err = fmt.Errorf("%v %q", ev.Number, ev.PrivateData())
	}
	return err
}

// say sends messages of any bytes. It returns when the Sends have completed.
func (p *rawPeer) say(messages ...[]byte) error {
	for _, m := range messages {
		copy(p.mem.buf, m)
		if err := p.ep.PostSend(p.mem.iov(0, len(m)), 1, udat.CompletionDefault); err != nil {
			return err
		}
		for {
			ev, _, err := p.evd.Wait(patience, 1)
			if err != nil {
				return err
			}
			if ev.Number != udat.EventDTOCompletion { // the server has ended the connection
				return errEnded
			}
			if ev.Operation == udat.DTOSend {
				break
			}
		}
	}
	return nil
}

var errEnded = errors.New("the server has ended the connection")

func (p *rawPeer) tell(notes ...note) error {
	for _, n := range notes {
		if err := p.say(n.bytes()); err != nil {
			return err
		}
	}
	return nil
}

// leave frees all endpoints, without a disconnect.
func (p *rawPeer) leave() (err error) {
	for _, ep := range p.eps {
		err = errors.Join(err, ep.Free())
	}
	p.eps = nil
	p.drain()
	return err
}

// lost waits for the end of the connection.
func (p *rawPeer) lost() error {
	ev, err := p.await(patience)
	if err == nil && !slices.Contains(ended, ev.Number) {
		err = fmt.Errorf("%v", ev.Number)
	}
	if err != nil {
		return fmt.Errorf("instead of the connection's end: %w", err)
	}
	return nil
}
