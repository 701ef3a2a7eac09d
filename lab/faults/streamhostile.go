package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/godat/godat/rdmanet"
	"github.com/godat/godat/udat"
)

// trespass returns the function of a scenario. The function starts an echo server and a raw peer,
// and calls onConnected, which attacks the server with the peer. Afterwards a proper client must be
// served.
func trespass(lc rdmanet.ListenConfig, onConnected func(r *round, s *echoServer, p *rawPeer) error) func(*round) error {
	return served(lc, func(r *round, s *echoServer) error {
		p, err := newRawPeer(r)
		if err == nil {
			err = onConnected(r, s, p)
		}
		return errors.Join(err, p.side.close(), s.settled(patience))
	})
}

// wrongGreetings sends requests with private data that no proper client sends. Each must be
// rejected with the reason.
func wrongGreetings(r *round, s *echoServer, p *rawPeer) error {
	good := p.greeting()
	with := func(change func(g *greeting)) []byte {
		g := good
		change(&g)
		return g.bytes()
	}
	for _, t := range []struct {
		what, want string
		private    []byte
	}{
		{"nothing", "no program of package rdmanet", nil},
		{"the beginning", "", []byte("RDN4")}, // some fabrics pad private data with zeros
		{"another protocol", "no program of package rdmanet", with(func(g *greeting) { g.magic = "HTTP" })},
		{"an older version", "version '3'", with(func(g *greeting) { g.magic = "RDN3" })},
		{"a newer version", "version '5'", with(func(g *greeting) { g.magic = "RDN5" })},
		{"no ring", "ring has 0 bytes", with(func(g *greeting) { g.size = 0 })},
		{"a small ring", "ring has 2048 bytes", with(func(g *greeting) { g.size = 2048 })},
		{"an odd ring", "ring has 4097 bytes", with(func(g *greeting) { g.size = 4097 })},
		{"a ring beyond 1 GiB", "ring has", with(func(g *greeting) { g.size = 2 << 30 })},
		{"a huge ring", "ring has", with(func(g *greeting) { g.size = 1 << 63 })},
		{"the end of memory", "address space", with(func(g *greeting) { g.address = 1<<64 - 100 })},
		{"no receives", "0 receives", with(func(g *greeting) { g.slots = 0 })},
		{"few receives", "15 receives", with(func(g *greeting) { g.slots = 15 })},
		{"many receives", "1025 receives", with(func(g *greeting) { g.slots = 1025 })},
	} {
		err := p.connect(s, t.private)
		if err == nil || !strings.Contains(err.Error(), "PEER_REJECTED") || !strings.Contains(err.Error(), t.want) {
			return fmt.Errorf("a request with %s: %w, wanted %q", t.what, err, t.want)
		}
		if err := errors.Join(p.leave(), s.proper()); err != nil {
			return fmt.Errorf("after a request with %s: %w", t.what, err)
		}
	}
	return nil
}

// wrongMessages sends messages that the protocol does not allow, each as the first message and as a
// later one.
func wrongMessages(r *round, s *echoServer, p *rawPeer) error {
	at := func(kind uint32, value uint64) note { return note{kind: kind, limit: rawRingSize, value: value} }
	for _, t := range []struct {
		what, want string
		say        [][]byte
	}{
		{"nothing", "0 bytes, must have 32", [][]byte{nil}},
		{"31 bytes", "31 bytes, must have 32", [][]byte{make([]byte, 31)}},
		{"kind 0", "kind 0", [][]byte{make([]byte, 32)}},
		{"a kind too many", "kind 8", [][]byte{at(rawKinds, 0).bytes()}},
		{"a kind beyond a byte", "kind 257", [][]byte{at(257, 0).bytes()}},
		{"a limit that shrinks", "may be written", [][]byte{note{kind: rawCredit, limit: 4095, value: 4096}.bytes()}},
		{"a limit beyond the ring", "may be written", [][]byte{note{kind: rawCredit, limit: 4097, value: 4096}.bytes()}},
		{"no window", "a window of 0 bytes", [][]byte{at(rawCredit, 0).bytes()}},
		{"a window beyond the ring", "a window of 4097", [][]byte{at(rawCredit, 4097).bytes()}},
		{"receives that were not used", "posted again",
			[][]byte{note{kind: rawCredit, slots: 99, limit: rawRingSize, value: 4096}.bytes()}},
		{"receives that go back", "posted again",
			[][]byte{note{kind: rawCredit, slots: 1<<32 - 1, limit: rawRingSize, value: 4096}.bytes()}},
		{"no data", "0 bytes are written", [][]byte{at(rawData, 0).bytes()}},
		{"data beyond the ring", "4097 bytes are written", [][]byte{at(rawData, 4097).bytes()}},
		{"data of a huge size", "are written", [][]byte{at(rawData, 1<<64-1).bytes()}},
		{"data beyond the credit, the second time", "are written",
			[][]byte{at(rawData, 4000).bytes(), at(rawData, 1<<30).bytes()}},
		{"a ring of the same size", "is offered", [][]byte{note{kind: rawRing, limit: rawRingSize, size: 4096}.bytes()}},
		{"a ring of an odd size", "must be a power", [][]byte{note{kind: rawRing, limit: rawRingSize, size: 9000}.bytes()}},
		{"a ring at the end of memory", "address space",
			[][]byte{note{kind: rawRing, limit: rawRingSize, value: 1<<64 - 100, size: 8192}.bytes()}},
		{"another ring, unasked", "a larger ring is used", [][]byte{at(rawMoved, 0).bytes()}},
		{"a wrong end", "the stream ends after 5", [][]byte{at(rawFin, 5).bytes()}},
		{"a wrong end of a close", "the stream ends after 5", [][]byte{at(rawClose, 5).bytes()}},
		{"an answer to no close", "was not sent", [][]byte{at(rawClosed, 0).bytes()}},
		{"data after the end", "", [][]byte{at(rawFin, 0).bytes(), at(rawData, 5).bytes()}},
		{"data after a close", "", [][]byte{at(rawClose, 0).bytes(), at(rawData, 5).bytes()}},
		{"a second end, elsewhere", "", [][]byte{at(rawFin, 0).bytes(), at(rawFin, 9).bytes()}},
	} {
		for _, first := range []bool{true, false} {
			s.forget()
			err := p.connect(s, p.greeting().bytes())
			if err == nil && !first {
				err = p.tell(credit)
			}
			if err == nil {
				err = p.say(t.say...)
			}
			if err == nil {
				err = p.lost()
			}
			if err == nil && !first && t.want != "" {
				err = s.ended(t.want)
			}
			if err != nil && !errors.Is(err, errEnded) {
				return fmt.Errorf("%s, as the first message %v: %w", t.what, first, err)
			}
			if err := errors.Join(p.leave(), s.proper()); err != nil {
				return fmt.Errorf("after %s: %w", t.what, err)
			}
		}
	}
	return nil
}

// falseRing grants memory that does not exist: the server's write must break the connection.
func falseRing(r *round, s *echoServer, p *rawPeer) error {
	for _, larger := range []bool{false, true} {
		g := p.greeting()
		notes := []note{credit, {kind: rawData, limit: rawRingSize, value: 5}}
		if larger {
			offer := note{kind: rawRing, limit: rawRingSize, value: g.address, key: g.key ^ 0xff00, size: 8192}
			notes = slices.Insert(notes, 1, offer)
		} else {
			g.key ^= 0xff00
		}
		if err := p.connect(s, g.bytes()); err != nil {
			return err
		}
		if err := p.tell(notes...); err != nil && !errors.Is(err, errEnded) {
			return err
		} else if err == nil {
			if err := p.lost(); err != nil {
				return fmt.Errorf("a ring that is not there, in the greeting %v: %w", !larger, err)
			}
		}
		if err := errors.Join(p.leave(), s.proper()); err != nil {
			return err
		}
	}
	return nil
}

// steps are the messages of a proper client, in the order in which it sends them.
var steps = []note{credit, {kind: rawData, limit: rawRingSize, value: 5},
	{kind: rawFin, limit: rawRingSize, value: 5}, {kind: rawClose, limit: rawRingSize, value: 5}}

// leavings ends connections during the setup and after each of the steps, in each of three ways.
func leavings(r *round, s *echoServer, p *rawPeer) error {
	for n := -2; n <= len(steps); n++ {
		for _, leave := range []func() error{
			func() error { return nil }, // p.leave below frees the endpoint
			func() error { return p.ep.Disconnect(udat.CloseAbrupt) },
			func() error { return p.ep.Disconnect(udat.CloseGraceful) },
		} {
			err := p.request(s, p.greeting().bytes(), rawSlots)
			if err == nil && n > -2 {
				_, err = p.await(patience)
			}
			if err == nil {
				err = p.tell(steps[:max(n, 0)]...)
			}
			if err == nil {
				leave() // fails if the server has been faster
			}
			if err := errors.Join(err, p.leave(), s.proper()); err != nil {
				return fmt.Errorf("leaving after step %d: %w", n, err)
			}
		}
	}
	return s.settled(promptly)
}

// silences makes a connection for each prefix of steps. It sends the prefix, and then nothing more,
// but keeps the connection open. The server must end the connection without a first message.
func silences(r *round, s *echoServer, p *rawPeer) error {
	first := 0 // the first connection sends no message at all
	if r.short {
		first = 1
	}
	for n := first; n <= len(steps); n++ {
		if err := p.connect(s, p.greeting().bytes()); err != nil {
			return err
		}
		if err := p.tell(steps[:n]...); err != nil {
			return err
		}
	}
	if err := s.proper(); err != nil {
		return err
	}
	if first == 0 {
		if err := p.lost(); err != nil {
			return err
		}
	}
	return errors.Join(s.proper(), p.leave(), s.settled(patience))
}

// requestFlood sends many connection requests, and sends no message on any of the connections.
func requestFlood(r *round, s *echoServer, p *rawPeer) error {
	n := r.many(1500, 1000, 200)
	for range n {
		if err := p.request(s, p.greeting().bytes(), 4); err != nil {
			return err
		}
	}
	for range 5 {
		if err := s.properWithin(promptly); err != nil {
			return fmt.Errorf("during the flood: %w; %+v", err, s.l.Stats())
		}
	}
	if err := p.leave(); err != nil {
		return err
	}
	return s.settled(patience)
}

// noteFlood sends many messages that are allowed.
func noteFlood(r *round, s *echoServer, p *rawPeer) error {
	n := r.many(5000, 5000, 500)
	for _, flood := range []note{credit, {kind: rawFin, limit: rawRingSize}} {
		if err := p.connect(s, p.greeting().bytes()); err != nil {
			return err
		}
		if err := p.tell(credit); err != nil {
			return err
		}
		for i := range n {
			err := p.tell(flood)
			if errors.Is(err, errEnded) && r.iwarp { // the message found no receive
				break
			}
			if err != nil {
				return fmt.Errorf("message %d of kind %d: %w", i, flood.kind, err)
			}
		}
		if err := errors.Join(s.proper(), p.leave()); err != nil {
			return err
		}
	}
	return nil
}

// randomNotes sends messages of random content. None of them may do harm.
func randomNotes(r *round, s *echoServer, p *rawPeer) error {
	for range r.many(200, 100, 30) {
		if err := p.connect(s, p.greeting().bytes()); err != nil {
			return err
		}
		for range 20 {
			pick := func(values ...uint64) uint64 { return values[r.random.IntN(len(values))] }
			any := r.random.Uint64()
			n := note{kind: uint32(pick(1, 2, 3, 4, 5, 6, 7, 8, any)), slots: uint32(pick(0, 0, 0, 1, any)),
				limit: pick(rawRingSize, rawRingSize, rawRingSize, any), value: pick(0, 1, 5, rawRingSize, any),
				key: uint32(pick(0, any)), size: uint32(pick(0, 8192, 1<<30, any))}
			if err := p.tell(n); err != nil {
				if !errors.Is(err, errEnded) {
					return err
				}
				break
			}
		}
		if err := p.leave(); err != nil {
			return err
		}
	}
	return nil
}

// asUsual are the settings of a server that leaves all to the defaults.
var asUsual rdmanet.ListenConfig

const onlyItself = "its connection ends at both ends, with the reason; a proper client is served beside each"

var streamHostileRows = []scenario{
	rdmanetRow("14 wrong greetings: versions, sizes, receives",
		"each is rejected with the reason; a proper client is served beside each",
		trespass(asUsual, wrongGreetings), once),
	rdmanetRow("25 wrong messages, as the first one and later", onlyItself, trespass(asUsual, wrongMessages), once),
	rdmanetRow("rings that are not there", onlyItself, trespass(asUsual, falseRing), once),
	rdmanetRow("random messages", "a proper client is served; all is given back", trespass(asUsual, randomNotes), once),
	rdmanetRow("a peer that leaves after each step, in three ways",
		"a proper client is served beside each; all is given back", trespass(asUsual, leavings), once),
	rdmanetRow("a peer that is silent after each step",
		"a connection without a first message ends after 15 s, the others stay; all is given back",
		trespass(asUsual, silences), once),
	rdmanetRow("1,500 requests without a first message, in the virtual machine 200",
		"a proper client is served during the flood and after it", trespass(rdmanet.ListenConfig{}, requestFlood), once),
	rdmanetRow("floods of credit and of ends", "a proper client is served beside each",
		trespass(rdmanet.ListenConfig{}, noteFlood), once),
}
