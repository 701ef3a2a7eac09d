package main

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/godat/godat/cverbs"
	"github.com/godat/godat/udat"
)

// strangers are peers that use the connection manager directly, without udat, as any program can.
// They send what this library never sends.
type strangers struct {
	*attack
	qual    udat.ConnQual // the victim's service point
	givenUp []*udat.EP    // accepts that the victim has given up

	ctx *cverbs.Context
	pd  *cverbs.PD
	cq  *cverbs.CQ
	ch  *cverbs.EventChannel
	ids []*cverbs.CMID
	qps []*cverbs.QP
}

// Largest number of bytes of private data in a request, a reply and a reject on InfiniBand and
// RoCE.
const roomRequest, roomReply, roomReject = 56, 196, 148

func stranger(operations func(*strangers) error) func(*attack) error {
	return func(k *attack) (err error) {
		s := &strangers{attack: k}
		defer func() { err = errors.Join(err, s.close()) }()
		if err := s.open(); err != nil {
			return err
		}
		var psp *udat.PSP
		if s.qual, psp, err = k.v.ia.CreatePSPAny(k.v.evd, udat.PSPConsumer); err != nil {
			return err
		}
		if err := operations(s); err != nil {
			return err
		}
		if err := s.proper(); err != nil {
			return fmt.Errorf("the proper client after all: %w", err)
		}
		return psp.Free()
	}
}

func (s *strangers) open() (err error) {
	if s.ctx, err = cverbs.OpenDevice(s.r.device); err != nil {
		return err
	}
	if s.pd, err = s.ctx.AllocPD(); err != nil {
		return err
	}
	if s.cq, err = s.ctx.CreateCQ(1, nil, 0); err != nil {
		return err
	}
	s.ch, err = cverbs.CreateEventChannel()
	return err
}

// leave closes all queue pairs, and all ids except the first nKept. Soft-iWARP supports only few
// queue pairs and few ids.
func (s *strangers) leave(nKept int) (err error) {
	nKept = min(nKept, len(s.ids))
	for _, id := range s.ids[nKept:] {
		id.Close() // its error is ignored: the id may be closed already
	}
	for _, qp := range s.qps {
		err = errors.Join(err, qp.Close())
	}
	s.ids, s.qps = s.ids[:nKept], nil
	return err
}

func (s *strangers) close() (err error) {
	err = s.leave(0)
	if s.ch != nil {
		err = errors.Join(err, s.ch.Close())
	}
	if s.cq != nil {
		err = errors.Join(err, s.cq.Close())
	}
	if s.pd != nil {
		err = errors.Join(err, s.pd.Close())
	}
	if s.ctx != nil {
		err = errors.Join(err, s.ctx.Close())
	}
	return err
}

// id creates a CMID, which leave closes.
func (s *strangers) id() (*cverbs.CMID, error) {
	id, err := s.ch.CreateID(cverbs.PortSpaceTCP)
	if err == nil {
		s.ids = append(s.ids, id)
	}
	return id, err
}

// qpNum makes a queue pair that never transfers anything, and returns its number.
func (s *strangers) qpNum() (uint32, error) {
	qp, err := s.pd.CreateQP(cverbs.QPInit{Type: cverbs.QPTypeRC, SendCQ: s.cq, RecvCQ: s.cq,
		Cap: cverbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}})
	if err != nil {
		return 0, err
	}
	s.qps = append(s.qps, qp)
	return qp.Num(), nil
}

// event returns the next event of an id, which must be of the type in the parameter want. If id is
// nil, event waits for an event of that type, from any id. It drops events of other ids.
func (s *strangers) event(id *cverbs.CMID, want cverbs.CMEventType) (cverbs.CMEvent, error) {
	for {
		ev, err := s.ch.Get(time.Now().Add(patience))
		switch {
		case err != nil:
			return ev, fmt.Errorf("a stranger without %v: %w", want, err)
		case id == nil && ev.Type == want:
			s.ids = append(s.ids, ev.ID)
			return ev, nil
		case id != nil && ev.ID == id && ev.Type == want:
			return ev, nil
		case id != nil && ev.ID == id:
			return ev, fmt.Errorf("a stranger gets %v instead of %v: %v", ev.Type, want, ev.Err())
		}
	}
}

// call sends a request to the victim's service point.
func (s *strangers) call(private []byte, options *cverbs.ECE) (*cverbs.CMID, error) {
	id, err := s.id()
	if err != nil {
		return nil, err
	}
	if options != nil {
		if err := id.SetLocalECE(*options); err != nil {
			return nil, err
		}
	}
	to := netip.AddrPortFrom(s.v.ia.Addr(), uint16(s.qual))
	if err := id.ResolveAddr(netip.AddrPort{}, to, patience); err != nil {
		return nil, err
	}
	if _, err := s.event(id, cverbs.CMEventAddrResolved); err != nil {
		return nil, err
	}
	if err := id.ResolveRoute(patience); err != nil {
		return nil, err
	}
	if _, err := s.event(id, cverbs.CMEventRouteResolved); err != nil {
		return nil, err
	}
	num, err := s.qpNum()
	if err != nil {
		return nil, err
	}
	return id, id.Connect(cverbs.ConnParam{PrivateData: private, QPNum: num, RetryCount: 7, RNRRetryCount: 7})
}

// victim returns the victim's next event. The event must be of one of the kinds in want. Unless ep
// is nil, it must be an event of ep. For each accept that was given up, it appends the endpoint to
// the field givenUp. On iWARP an accept connects at once, so victim drops the events of connections
// of other endpoints.
func (s *strangers) victim(ep *udat.EP, want ...udat.EventNumber) (udat.Event, error) {
	for {
		ev, err := s.v.next()
		switch {
		case err != nil:
			return ev, fmt.Errorf("the victim gets none of %v: %w", want, err)
		case slices.Contains(want, ev.Number) && (ep == nil || ev.EP == ep):
			return ev, nil
		case ev.Number == udat.EventConnectionAcceptError:
			s.givenUp = append(s.givenUp, ev.EP)
		case s.r.iwarp && ev.Number != udat.EventConnectionRequest && ev.EP != ep:
		default:
			return ev, fmt.Errorf("the victim gets %v: %v", ev.Number, ev.Err())
		}
	}
}

// request sends a request. It returns the sender's id and the request that the victim gets.
func (s *strangers) request(private []byte, options *cverbs.ECE) (*cverbs.CMID, *udat.CR, error) {
	id, err := s.call(private, options)
	if err != nil {
		return nil, nil, err
	}
	ev, err := s.victim(nil, udat.EventConnectionRequest)
	return id, ev.CR, err
}

func (s *strangers) endpoint(of *side) (*udat.EP, error) {
	return of.ia.CreateEP(of.pz, of.evd, of.evd, of.evd, &udat.EPAttr{MaxRecvDTOs: 1, MaxRequestDTOs: 1})
}

// proper connects a client of this library to the victim's service point, and disconnects it.
func (s *strangers) proper() error {
	client, err1 := s.endpoint(s.a)
	server, err2 := s.endpoint(s.v)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	s.a.drain()
	err := client.Connect(s.v.ia.Addr(), s.qual, patience, nil, udat.QoSBestEffort, udat.ConnectDefault)
	if err != nil {
		return err
	}
	ev, err := s.victim(nil, udat.EventConnectionRequest)
	if err != nil {
		return err
	}
	if err := ev.CR.Accept(server, nil); err != nil {
		return err
	}
	if _, err := s.victim(server, udat.EventConnectionEstablished); err != nil {
		return err
	}
	if ev, err := s.a.next(); err != nil || ev.Number != udat.EventConnectionEstablished {
		return fmt.Errorf("the client gets %v (%v): %w", ev.Number, err, ev.Err())
	}
	if err := client.Disconnect(udat.CloseAbrupt); err != nil {
		return err
	}
	if _, err := s.victim(server, ended...); err != nil {
		return err
	}
	return errors.Join(client.Free(), server.Free())
}

// halfOpen floods the victim with requests whose senders never confirm the answer. If there are
// more than 128, udat gives up the oldest after 2 s.
func halfOpen(s *strangers) error {
	const requests, kept, age = 200, 128, 2 * time.Second
	var accepted []*udat.EP
	begun := time.Now()
	for n := range requests + 1 {
		if n == requests {
			time.Sleep(age) // the next accept then finds that the others are old enough
		}
		id, cr, err := s.request(nil, nil)
		if err != nil {
			return fmt.Errorf("request %d: %w", n, err)
		}
		ep, err := s.endpoint(s.v)
		if err != nil {
			return err
		}
		accepted = append(accepted, ep)
		if err := cr.Accept(ep, nil); err != nil {
			return fmt.Errorf("accept %d: %w", n, err)
		}
		if _, err := s.event(id, cverbs.CMEventConnectResponse); err != nil {
			return err
		}
		if n%40 == 39 {
			if err := s.proper(); err != nil {
				return fmt.Errorf("the proper client during the flood, after %d requests: %w", n+1, err)
			}
		}
	}
	for len(s.givenUp) < len(accepted)-kept {
		ev, err := s.victim(nil, udat.EventConnectionAcceptError)
		if err != nil {
			return fmt.Errorf("only %d of %d requests are given up: %w", len(s.givenUp), len(accepted), err)
		}
		s.givenUp = append(s.givenUp, ev.EP)
	}
	if time.Since(begun) < 30*time.Second { // later, each would be given up for its age alone
		if !slices.Equal(s.givenUp, accepted[:len(accepted)-kept]) {
			return fmt.Errorf("%d of %d requests are given up: too many, or not the oldest", len(s.givenUp), len(accepted))
		}
	}
	for _, ep := range accepted {
		if err := ep.Free(); err != nil {
			return err
		}
	}
	return nil
}

// bytesUpTo returns between 0 and limit random bytes.
func (s *strangers) bytesUpTo(limit int) []byte {
	b := make([]byte, s.r.random.IntN(limit+1))
	for i := range b {
		b[i] = byte(s.r.random.Uint32())
	}
	return b
}

// sameData reports whether the private data that was received equals the data that was sent, apart
// from zeroes at its end.
func sameData(got, sent []byte, room int) bool {
	return len(got) <= max(room, len(sent)) && bytes.Equal(bytes.TrimRight(got, "\x00"), bytes.TrimRight(sent, "\x00"))
}

// requestsWithGarbage sends requests with random private data, and with options that lie about its
// length. A third of the senders close before the answer. On soft-iWARP none of them does so,
// because the close would wait up to 10 s for the answer.
func requestsWithGarbage(s *strangers) error {
	random := s.r.random
	for n := range s.many() {
		sent := s.bytesUpTo(roomRequest)
		if s.r.iwarp {
			sent = s.bytesUpTo(251) // more than this library sends; the driver refuses 252
		}
		var options *cverbs.ECE
		if !s.r.iwarp {
			options = &cverbs.ECE{VendorID: 1 << 24, // what this library sends: a tag, a port, the length
				Options: []uint32{0xda << 24, random.Uint32()}[random.IntN(2)] | random.Uint32()&0xffffff}
		}
		id, cr, err := s.request(sent, options)
		if err != nil {
			return fmt.Errorf("request %d: %w", n, err)
		}
		p, err := cr.Query()
		if err != nil || !sameData(p.PrivateData, sent, roomRequest) {
			return fmt.Errorf("request %d: private data %x instead of %x (%v)", n, p.PrivateData, sent, err)
		}
		gone := !s.r.iwarp && random.IntN(3) == 0
		if gone {
			if err := id.Close(); err != nil {
				return err
			}
		}
		if random.IntN(2) == 0 {
			if err := cr.Reject(s.bytesUpTo(roomReject - 4)); err != nil && !gone {
				return fmt.Errorf("reject %d: %w", n, err)
			}
			if !gone {
				if _, err := s.event(id, cverbs.CMEventRejected); err != nil {
					return err
				}
			}
			if err := s.leave(0); err != nil {
				return err
			}
			continue
		}
		ep, err := s.endpoint(s.v)
		if err != nil {
			return err
		}
		answer := s.bytesUpTo(roomReply)
		if err := cr.Accept(ep, answer); err != nil && !gone {
			return fmt.Errorf("accept %d: %w", n, err)
		}
		if !gone && !s.r.iwarp {
			in, err := s.event(id, cverbs.CMEventConnectResponse)
			if err != nil || !sameData(in.PrivateData, answer, roomReply) {
				return fmt.Errorf("answer %d: private data %x instead of %x (%v)", n, in.PrivateData, answer, err)
			}
		}
		if err := errors.Join(ep.Free(), s.leave(0)); err != nil {
			return err
		}
	}
	return nil
}

// answersWithGarbage answers requests of the victim in several ways: with random private data, with
// rejects that lie about their length, or not at all.
func answersWithGarbage(s *strangers) error {
	random := s.r.random
	l, err := s.id()
	if err != nil {
		return err
	}
	if err := l.BindAddr(netip.AddrPortFrom(s.v.ia.Addr(), 0)); err != nil {
		return err
	}
	if err := l.Listen(16); err != nil {
		return err
	}
	for n := range s.many() {
		ep, err := s.endpoint(s.v)
		if err != nil {
			return err
		}
		qual := udat.ConnQual(l.LocalAddr().Port())
		err = ep.Connect(s.v.ia.Addr(), qual, patience, s.bytesUpTo(roomRequest), udat.QoSBestEffort, udat.ConnectDefault)
		if err != nil {
			return err
		}
		req, err := s.event(nil, cverbs.CMEventConnectRequest)
		if err != nil {
			return err
		}
		var sent []byte
		want := []udat.EventNumber{udat.EventConnectionPeerRejected, udat.EventConnectionNonPeerRejected}
		accept := false
		switch random.IntN(4) {
		case 0: // the only answer is that the id is closed
		case 1:
			sent = s.bytesUpTo(roomReject)
			err = req.ID.Reject(sent)
		case 2: // the marker and the length of this library's rejects, and of OpenFabrics DAPL's
			head := [][]byte{{0xda, 0x7a, 0xc3, byte(random.Uint32())}, {2, 0, 2, 0}}[random.IntN(2)]
			sent = append(head, s.bytesUpTo(roomReject-4)...)
			err = req.ID.Reject(sent)
		case 3:
			accept = true
			sent, want = s.bytesUpTo(roomReply), []udat.EventNumber{udat.EventConnectionEstablished}
			num, err := s.qpNum()
			if err != nil {
				return err
			}
			if err := req.ID.Accept(cverbs.ConnParam{QPNum: num, PrivateData: sent}); err != nil {
				return err
			}
		}
		if err != nil {
			return err
		}
		if !accept {
			err = req.ID.Close()
		}
		ev, err2 := s.victim(ep, want...)
		if err := errors.Join(err, err2); err != nil {
			return fmt.Errorf("answer %d: %w", n, err)
		}
		got := ev.PrivateData()
		if !sameData(got, sent, roomReply) && !bytes.HasSuffix(bytes.TrimRight(sent, "\x00"), bytes.TrimRight(got, "\x00")) {
			return fmt.Errorf("answer %d: private data %x instead of %x", n, got, sent)
		}
		if accept {
			if err := req.ID.Close(); err != nil {
				return err
			}
			if _, err := s.victim(ep, ended...); err != nil {
				return fmt.Errorf("answer %d: %w", n, err)
			}
		}
		if err := errors.Join(ep.Free(), s.leave(1)); err != nil {
			return err
		}
	}
	return nil
}

// many returns the number of requests of a round.
func (s *strangers) many() int {
	if s.r.long {
		return 300
	}
	return 40
}

const unharmedByStrangers = "each request and each answer is one event, with the bytes that were sent; " +
	"a proper client is served after them; other connections go on"

func strangerRow(name, promise string, operations func(*strangers) error, notOn ...string) scenario {
	notOn = append(notOn, "mem: all peers are this library", "tcp: raw sockets, above")
	return hostileRow(name, promise, stranger(operations), notOn...)
}

var strangerGroup = []scenario{
	strangerRow("200 requests whose answer is never confirmed",
		"beyond 128 the oldest are given up after 2 s; a proper client is served during the flood and after; "+
			"other connections go on", halfOpen, "siw: needs no confirmation"),
	strangerRow("requests with random private data; on soft-RoCE also lies about its length, and senders that have gone",
		unharmedByStrangers, requestsWithGarbage),
	strangerRow("rejects and answers with random private data and lies about its length, and no answer",
		unharmedByStrangers, answersWithGarbage),
}
