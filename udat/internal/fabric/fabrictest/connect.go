package fabrictest

import (
	"bytes"
	"fmt"
	"net/netip"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat/internal/fabric"
)

func testAttr(t *testing.T, cfg Config) {
	n := newNode(t, cfg, fabric.Options{})
	a := n.dev.Attr()
	assert.Assert(t, a.Info.Name != "" && a.Info.Fabric != "" && a.Info.Detail != "" && a.Info.Addr.IsValid() &&
		a.Transport != "", "%+v", a)
	for name, v := range map[string]int{
		"MaxQP": a.MaxQP, "MaxQPWR": a.MaxQPWR, "MaxSGE": a.MaxSGE, "MaxReadSGE": a.MaxReadSGE, "MaxCQ": a.MaxCQ,
		"MaxCQE": a.MaxCQE, "MaxMR": a.MaxMR, "MaxPD": a.MaxPD, "MaxReadIn": a.MaxReadIn, "MaxReadOut": a.MaxReadOut,
		"MaxConnData": a.MaxConnData, "MaxAcceptData": a.MaxAcceptData, "MaxRejectData": a.MaxRejectData, "MTU": a.MTU,
		"PageSize": a.PageSize,
	} {
		assert.Assert(t, v > 0, name)
	}
	assert.Assert(t, a.MaxMessage > 0 && a.MaxMRSize > 0)
}

// Both ends receive EventEstablished once, and know each other's address. Data flows both ways.
func testConnect(t *testing.T, cfg Config) {
	n := newNode(t, cfg, fabric.Options{})
	a, b := n.newEnd(settings{}), n.newEnd(settings{})
	s := n.listen()
	assert.Equal(t, s.Addr().Addr(), n.dev.Attr().Info.Addr)
	assert.Assert(t, s.Addr().Port() > 1023)
	a.connect(s, fabric.ConnectParams{})
	assert.Equal(t, a.conn.RemoteAddr(), s.Addr())
	r := s.request()
	assert.Equal(t, r.LocalAddr(), s.Addr())
	b.accept(r, fabric.AcceptParams{})
	a.event(fabric.EventEstablished)
	b.event(fabric.EventEstablished)
	assert.Equal(t, a.conn.LocalAddr(), b.conn.RemoteAddr())
	assert.Equal(t, b.conn.LocalAddr(), s.Addr())
	exchange(a, b)
	exchange(b, a)
	a.noEvent()
	b.noEvent()
}

// exchange sends a message.
func exchange(from, to *end) {
	from.t.Helper()
	copy(from.mem, "a message")
	to.recv(7, 100, 100)
	from.send(fabric.SendWR{ID: 8, Opcode: fabric.OpSend, Flags: fabric.Signaled}, 0, 9)
	awaitOne(from.t, from.scq, 8, fabric.StatusSuccess)
	wc := awaitOne(from.t, to.rcq, 7, fabric.StatusSuccess)
	assert.Equal(from.t, wc.ByteLen, uint32(9))
	assert.Equal(from.t, wc.QPNum, to.qp.Num())
	assert.Equal(from.t, string(to.mem[100:109]), "a message")
}

func testConnectBadArguments(t *testing.T, cfg Config) {
	n := newNode(t, cfg, fabric.Options{})
	e, s, attr := n.newEnd(settings{}), n.listen(), n.dev.Attr()
	_, err := n.dev.Connect(e.qp, fabric.ConnectParams{Remote: s.Addr(), Private: make([]byte, attr.MaxConnData+1)}, e.on)
	assert.ErrorIs(t, err, fabric.ErrInvalid)
	for _, addr := range []netip.AddrPort{{}, netip.AddrPortFrom(s.Addr().Addr(), 0),
		netip.AddrPortFrom(netip.Addr{}, s.Addr().Port())} {
		_, err = n.dev.Connect(e.qp, fabric.ConnectParams{Remote: addr}, e.on)
		assert.ErrorIs(t, err, fabric.ErrAddrInvalid)
	}
	_, err = n.dev.Connect(e.qp, fabric.ConnectParams{Remote: s.Addr()}, nil)
	assert.ErrorIs(t, err, fabric.ErrInvalid)
	_, err = n.dev.Connect(nil, fabric.ConnectParams{Remote: s.Addr()}, e.on)
	assert.ErrorIs(t, err, fabric.ErrInvalid)
	if attr.MaxReadIn < 255 {
		_, err = n.dev.Connect(e.qp, fabric.ConnectParams{Remote: s.Addr(), ReadIn: uint8(attr.MaxReadIn + 1)}, e.on)
		assert.ErrorIs(t, err, fabric.ErrInvalid)
	}
	if attr.MaxReadOut < 255 {
		_, err = n.dev.Connect(e.qp, fabric.ConnectParams{Remote: s.Addr(), ReadOut: uint8(attr.MaxReadOut + 1)}, e.on)
		assert.ErrorIs(t, err, fabric.ErrInvalid)
	}
	_, err = n.dev.Listen(0, nil, nil)
	assert.ErrorIs(t, err, fabric.ErrInvalid)

	// After all these errors the queue pair can still be connected.
	e.connect(s, fabric.ConnectParams{})
	r := s.request()
	_, err = r.Accept(n.newEnd(settings{}).qp, fabric.AcceptParams{Private: make([]byte, attr.MaxAcceptData+1)}, e.on)
	assert.ErrorIs(t, err, fabric.ErrInvalid)
	assert.ErrorIs(t, r.Reject(make([]byte, attr.MaxRejectData+1), true), fabric.ErrInvalid)
	b := n.newEnd(settings{})
	b.accept(r, fabric.AcceptParams{})
	e.event(fabric.EventEstablished)
	b.event(fabric.EventEstablished)
}

func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i + 1)
	}
	return b
}

// contents has functions that fill private data. The bytes look like the length or the marker that
// a fabric may store in the same field.
var contents = map[string]func(b []byte){
	"counting":        func(b []byte) { copy(b, pattern(len(b))) },
	"zeroes":          func(b []byte) { clear(b) },
	"ones":            func(b []byte) { copy(b, bytes.Repeat([]byte{0xFF}, len(b))) },
	"zeroes at end":   func(b []byte) { copy(b, pattern(len(b)/2)) },
	"an old trailer":  func(b []byte) { copy(b[max(len(b)-4, 0):], "\xDA\x7A\xC3\x05") },
	"the marker":      func(b []byte) { copy(b, "\x02\x00\x02\x00\x02\x00\x02\x00") },
	"another marker":  func(b []byte) { copy(b, "\xDA\x7A\xC3\x05\xDA\x7A\xC3\x05") },
	"markers at ends": func(b []byte) { copy(b, "\xDA\x7A\xC3\x01"); copy(b[max(len(b)-4, 0):], "\x02\x00\x02\x00") },
}

func content(n int, fill func([]byte)) []byte {
	b := make([]byte, n)
	fill(b)
	return b
}

// checkPrivate checks that private data from an end of this library has arrived unchanged.
func checkPrivate(t *testing.T, got []byte, padded bool, want []byte, what string) {
	t.Helper()
	assert.Assert(t, bytes.Equal(got, want), "%s of %d bytes %x arrived as %d: %x", what, len(want), want, len(got), got)
	assert.Assert(t, !padded, "%s of %d bytes is said to be padded", what, len(want))
}

// Private data of every length and content arrives unchanged, in both directions.
func testPrivateData(t *testing.T, cfg Config) {
	n := newNode(t, cfg, fabric.Options{})
	attr := n.dev.Attr()
	s := n.listen()
	both := func(up, down []byte) {
		a, b := n.newEnd(settings{}), n.newEnd(settings{})
		sent := bytes.Clone(up)
		a.connect(s, fabric.ConnectParams{Private: sent})
		clear(sent) // the fabric has a copy
		r := s.request()
		got, padded := r.Private()
		checkPrivate(t, got, padded, up, "request")
		sent = bytes.Clone(down)
		b.accept(r, fabric.AcceptParams{Private: sent})
		clear(sent)
		ev := a.event(fabric.EventEstablished)
		checkPrivate(t, ev.Private, ev.Padded, down, "reply")
		assert.Equal(t, len(b.event(fabric.EventEstablished).Private), 0)
		for _, e := range []*end{a, b} {
			assert.NilError(t, e.conn.Close())
			for _, c := range []closer{e.qp, e.scq, e.rcq} {
				assert.NilError(t, c.Close())
			}
		}
	}
	for size := 0; size <= min(attr.MaxConnData, 100); size++ {
		both(pattern(size), pattern(attr.MaxAcceptData-size))
	}
	for _, fill := range contents {
		for _, less := range []int{0, 1, 2, 3, 4, 5, 40} {
			both(content(attr.MaxConnData-less, fill), content(attr.MaxAcceptData-less, fill))
		}
		both(content(4, fill), content(4, fill))
	}
}

func testRejectByConsumer(t *testing.T, cfg Config) {
	n := newNode(t, cfg, fabric.Options{})
	attr := n.dev.Attr()
	s := n.listen()
	a := n.newEnd(settings{})
	try := func(data []byte) {
		a.connect(s, fabric.ConnectParams{}) // with the same queue pair each time, which a reject does not change
		assert.NilError(t, s.request().Reject(data, true))
		ev := a.event(fabric.EventPeerRejected)
		checkPrivate(t, ev.Private, ev.Padded, data, "reject")
		assert.NilError(t, a.conn.Close())
	}
	for size := range attr.MaxRejectData + 1 {
		try(pattern(size))
	}
	for _, fill := range contents {
		for _, size := range []int{4, 5, 100, attr.MaxRejectData - 5, attr.MaxRejectData - 4, attr.MaxRejectData - 1,
			attr.MaxRejectData} {
			try(content(size, fill))
		}
	}
}

// A reject may carry data even if no consumer has sent it. The length of that data is not known.
func testRejectOtherwise(t *testing.T, cfg Config) {
	n := newNode(t, cfg, fabric.Options{})
	s := n.listen()
	a := n.newEnd(settings{})
	a.connect(s, fabric.ConnectParams{})
	assert.NilError(t, s.request().Reject(nil, false))
	assert.Equal(t, len(a.event(fabric.EventRejected).Private), 0)
	a.noEvent()
	assert.NilError(t, a.conn.Close())
	a.connect(s, fabric.ConnectParams{})
	assert.NilError(t, s.request().Reject([]byte("full"), false))
	ev := a.event(fabric.EventRejected)
	assert.Equal(t, string(bytes.TrimRight(ev.Private, "\x00")), "full")
	assert.Equal(t, ev.Padded, len(ev.Private) > 4)
	a.noEvent()
}

func testNobodyListens(t *testing.T, cfg Config) {
	n := newNode(t, cfg, fabric.Options{})
	s := n.listen()
	assert.NilError(t, s.Close())
	a := n.newEnd(settings{})
	a.connect(s, fabric.ConnectParams{})
	ev := a.event(fabric.EventRejected)
	assert.Assert(t, ev.Err != nil)
	a.noEvent()
}

func testUnreachable(t *testing.T, cfg Config) {
	if !cfg.Unreachable.IsValid() {
		t.Skip("no unreachable address")
	}
	n := newNode(t, cfg, fabric.Options{})
	a := n.newEnd(settings{})
	a.connectTo(cfg.Unreachable, fabric.ConnectParams{})
	ev := a.event(fabric.EventUnreachable)
	assert.Assert(t, ev.Err != nil)
	a.noEvent()
	// The queue pair can try elsewhere.
	assert.NilError(t, a.conn.Close())
	n.join(a, n.newEnd(settings{}))
}

// The fabric does not limit requests: the handler gets every request, no matter how many await an
// answer.
func testManyRequests(t *testing.T, cfg Config) {
	n := newNode(t, cfg, fabric.Options{})
	s := n.listen()
	ends := map[byte]*end{}
	var requests []fabric.Request
	for i := range byte(20) {
		e := n.newEnd(settings{})
		e.connect(s, fabric.ConnectParams{Private: []byte{i}})
		ends[i] = e
	}
	for range ends {
		requests = append(requests, s.request())
	}
	for _, e := range ends {
		e.noEvent()
	}
	for _, r := range requests {
		assert.NilError(t, r.Reject(nil, true))
		data, _ := r.Private()
		ends[data[0]].event(fabric.EventPeerRejected)
	}
}

func testAddrInUse(t *testing.T, cfg Config) {
	n := newNode(t, cfg, fabric.Options{})
	s := n.listen()
	_, err := n.dev.Listen(s.Addr().Port(), nil, func(fabric.Request) {})
	assert.ErrorIs(t, err, fabric.ErrAddrInUse)
	assert.NilError(t, s.Close())
	l, err := n.dev.Listen(s.Addr().Port(), nil, func(fabric.Request) {})
	assert.NilError(t, err)
	assert.Equal(t, l.Addr(), s.Addr())
	assert.NilError(t, l.Close())
	assert.ErrorIs(t, l.Close(), fabric.ErrClosed)
}

// A request outlives its listener.
func testListener(t *testing.T, cfg Config) {
	n := newNode(t, cfg, fabric.Options{})
	s := n.listen()
	a, b := n.newEnd(settings{}), n.newEnd(settings{})
	a.connect(s, fabric.ConnectParams{Private: []byte("hello")})
	r := s.request()
	assert.NilError(t, s.Close())
	data, _ := r.Private()
	assert.Equal(t, string(data), "hello")
	b.accept(r, fabric.AcceptParams{})
	a.event(fabric.EventEstablished)
	b.event(fabric.EventEstablished)
	exchange(a, b)
}

func testRequestAnsweredOnce(t *testing.T, cfg Config) {
	n := newNode(t, cfg, fabric.Options{})
	s := n.listen()
	a, b := n.newEnd(settings{}), n.newEnd(settings{})
	a.connect(s, fabric.ConnectParams{})
	r := s.request()
	b.accept(r, fabric.AcceptParams{})
	_, err := r.Accept(n.newEnd(settings{}).qp, fabric.AcceptParams{}, b.on)
	assert.ErrorIs(t, err, fabric.ErrClosed)
	assert.ErrorIs(t, r.Reject(nil, true), fabric.ErrClosed)
	a.event(fabric.EventEstablished)
	b.event(fabric.EventEstablished)
}

// If a requester gives up before the answer, Accept succeeds, and an event then reports the
// failure. Reject succeeds too, and has no effect.
func testRequesterGone(t *testing.T, cfg Config) {
	n := newNode(t, cfg, fabric.Options{})
	s := n.listen()
	b := n.newEnd(settings{})
	b.recv(1, 0, 8)
	for _, accept := range []bool{true, false} {
		t.Run(fmt.Sprint("accept=", accept), func(t *testing.T) {
			a := n.newEnd(settings{})
			a.connect(s, fabric.ConnectParams{})
			r := s.request()
			assert.NilError(t, a.conn.Close())
			a.noEvent() // a closed connection reports nothing; meanwhile the message arrives
			if !accept {
				assert.NilError(t, r.Reject([]byte("no"), true))
				return
			}
			b.accept(r, fabric.AcceptParams{})
			b.failAccept()
			b.noEvent()
			assert.NilError(t, b.qp.SetError())
			awaitOne(t, b.rcq, 1, fabric.StatusFlush)
		})
	}
}

// The read depth of each direction is the smaller of the depths that the two ends offer for it.
func testReadDepths(t *testing.T, cfg Config) {
	n := newNode(t, cfg, fabric.Options{})
	if n.dev.Attr().MaxReadIn < 8 || n.dev.Attr().MaxReadOut < 8 {
		t.Skip("read depths under 8")
	}
	s := n.listen()
	a, b := n.newEnd(settings{}), n.newEnd(settings{})
	a.connect(s, fabric.ConnectParams{ReadIn: 2, ReadOut: 6})
	r := s.request()
	in, out := r.ReadDepths()
	assert.Equal(t, in, uint8(6))
	assert.Equal(t, out, uint8(2))
	b.accept(r, fabric.AcceptParams{ReadIn: 3, ReadOut: 8})
	a.event(fabric.EventEstablished)
	b.event(fabric.EventEstablished)
	in, out = a.conn.ReadDepths()
	assert.Equal(t, in, uint8(2))
	if n.iwarp() {
		assert.Assert(t, out <= 6) // iWARP's handshake does not always carry the depth that the peer has accepted
	} else {
		assert.Equal(t, out, uint8(3))
	}
	in, out = b.conn.ReadDepths()
	assert.Equal(t, in, uint8(3))
	assert.Equal(t, out, uint8(2))
}

// A queue pair can have only one connection, or attempt to connect, at a time. Once it is in error,
// it cannot be connected.
func testQPClaims(t *testing.T, cfg Config) {
	n := newNode(t, cfg, fabric.Options{})
	s := n.listen()
	a := n.newEnd(settings{})
	a.connect(s, fabric.ConnectParams{})
	_, err := n.dev.Connect(a.qp, fabric.ConnectParams{Remote: s.Addr()}, a.on)
	assert.ErrorIs(t, err, fabric.ErrQPState)
	r := s.request()
	_, err = r.Accept(a.qp, fabric.AcceptParams{}, a.on)
	assert.ErrorIs(t, err, fabric.ErrQPState)
	b := n.newEnd(settings{})
	assert.NilError(t, b.qp.SetError())
	_, err = n.dev.Connect(b.qp, fabric.ConnectParams{Remote: s.Addr()}, b.on)
	assert.ErrorIs(t, err, fabric.ErrQPState)
	_, err = r.Accept(b.qp, fabric.AcceptParams{}, b.on)
	assert.ErrorIs(t, err, fabric.ErrQPState)
	c := n.newEnd(settings{})
	assert.NilError(t, c.qp.Close())
	_, err = r.Accept(c.qp, fabric.AcceptParams{}, c.on)
	assert.ErrorIs(t, err, fabric.ErrClosed)
	assert.NilError(t, r.Reject(nil, false))
	a.event(fabric.EventRejected)
}
