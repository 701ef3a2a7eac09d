package tcpfabric

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"
	"unsafe"

	"github.com/godat/godat/internal/leaktest"
	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/tcpfabric/iwarp"
	"gotest.tools/v3/assert"
)

// patience limits every wait that must succeed.
var patience = leaktest.Patience

const (
	roomSize    = 4096 // size of the room: the victim's region that a peer may read and write
	receiveSize = 64
	receives    = 4
	readDepth   = 3
)

// canary is the value of the victim's memory where no peer may write.
const canary = 0xC5

// victim is a device that accepts every connection, each on a queue pair of its own. All use the
// same memory: receives, and a region for the peer (the room) in the middle of memory that is not
// for the peer.
type victim struct {
	t        *testing.T
	dev      fabric.Device
	listener fabric.Listener
	pd       fabric.PD
	cq       fabric.CQ
	mem      []byte    // canary, room, canary, receives, canary
	mr       fabric.MR // room
	readOnly fabric.MR
	foreign  fabric.MR // room too, in another domain
	rx       fabric.MR
	depth    int        // of the send queue of a session
	shared   fabric.SRQ // the receive queue of all sessions; nil: each has a filled queue of its own
	accepted chan *session
	reports  chan fabric.AsyncEvent // of the device
}

// session is the victim's end of one connection.
type session struct {
	v      *victim
	qp     fabric.QP
	conn   fabric.Conn
	events chan fabric.ConnEvent
	failed error // of Accept
}

const (
	roomAt = 4096
	rxAt   = roomAt + roomSize + 4096
	memEnd = rxAt + receives*receiveSize + 4096
)

func newVictim(t *testing.T) *victim {
	t.Helper()
	return newVictimWith(t, fabric.Options{RNRRetry: 7, Retry: 7})
}

func newVictimWith(t *testing.T, o fabric.Options) *victim {
	t.Helper()
	v := &victim{t: t, depth: 4, accepted: make(chan *session, 1024), mem: bytes.Repeat([]byte{canary}, memEnd),
		reports: make(chan fabric.AsyncEvent, 1024)}
	v.dev = openDevice(t, o, func(ev fabric.AsyncEvent) { v.reports <- ev })
	var err error
	v.pd, err = v.dev.AllocPD()
	assert.NilError(t, err)
	other, err := v.dev.AllocPD()
	assert.NilError(t, err)
	v.cq, err = v.dev.CreateCQ(1024)
	assert.NilError(t, err)
	room := v.mem[roomAt : roomAt+roomSize]
	reg := func(pd fabric.PD, buf []byte, access fabric.Access) fabric.MR {
		mr, err := pd.RegMR(buf, access)
		assert.NilError(t, err)
		t.Cleanup(func() { assert.NilError(t, mr.Close()) })
		return mr
	}
	t.Cleanup(func() {
		assert.NilError(t, v.cq.Close())
		assert.NilError(t, errors.Join(v.pd.Close(), other.Close()))
	})
	v.mr = reg(v.pd, room, fabric.RemoteWrite|fabric.RemoteRead|fabric.RemoteAtomic)
	v.readOnly = reg(v.pd, room, fabric.RemoteRead)
	v.foreign = reg(other, room, fabric.RemoteWrite|fabric.RemoteRead)
	v.rx = reg(v.pd, v.mem[rxAt:rxAt+receives*receiveSize], fabric.LocalWrite)
	v.listener, err = v.dev.Listen(0, nil, v.request)
	assert.NilError(t, err)
	t.Cleanup(func() { assert.NilError(t, v.listener.Close()) })
	return v
}

// request accepts a connection.
func (v *victim) request(r fabric.Request) {
	s := &session{v: v, events: make(chan fabric.ConnEvent, 16)}
	var err error
	s.qp, err = v.dev.CreateQP(fabric.QPInit{PD: v.pd, SendCQ: v.cq, RecvCQ: v.cq, MaxSend: v.depth, MaxRecv: receives,
		MaxSendSGE: 1, MaxRecvSGE: 1, SRQ: v.shared})
	if err == nil && v.shared == nil {
		for i := range receives {
			sge := fabric.SGE{Addr: addressOf(v.mem[rxAt+i*receiveSize:]), Length: receiveSize, LKey: v.rx.LKey()}
			_, e := s.qp.PostRecv([]fabric.RecvWR{{ID: uint64(i), NumSGE: 1}}, []fabric.SGE{sge})
			err = errors.Join(err, e)
		}
	}
	if err == nil {
		s.conn, err = r.Accept(s.qp, fabric.AcceptParams{ReadIn: readDepth, ReadOut: readDepth},
			func(ev fabric.ConnEvent) { s.events <- ev })
	}
	s.failed = err
	v.accepted <- s
}

// session returns the victim's end of the latest connection.
func (v *victim) session() *session {
	v.t.Helper()
	select {
	case s := <-v.accepted:
		v.t.Cleanup(s.close)
		assert.NilError(v.t, s.failed)
		return s
	case <-time.After(patience):
		v.t.Fatal("no connection request")
		return nil
	}
}

func (s *session) close() {
	if s.conn != nil {
		assert.NilError(s.v.t, s.conn.Close())
	}
	assert.NilError(s.v.t, s.qp.Close())
}

// next returns the next event of the connection.
func (s *session) next() fabric.ConnEvent {
	s.v.t.Helper()
	return nextOf(s.v.t, s.events)
}

func nextOf(t *testing.T, events chan fabric.ConnEvent) fabric.ConnEvent {
	t.Helper()
	select {
	case ev := <-events:
		return ev
	case <-time.After(patience):
		t.Fatal("no event")
		return fabric.ConnEvent{}
	}
}

func (s *session) expect(kind fabric.ConnEventKind) {
	s.v.t.Helper()
	ev := s.next()
	assert.Equal(s.v.t, ev.Kind, kind, "%v", ev.Err)
}

// unharmed checks that nothing was written outside of the room and the receives.
func (v *victim) unharmed() {
	v.t.Helper()
	for i, b := range v.mem {
		inside := i >= roomAt && i < roomAt+roomSize || i >= rxAt && i < rxAt+receives*receiveSize
		if b != canary && !inside {
			v.t.Fatalf("byte %d of the victim's memory has changed", i)
		}
	}
}

// room returns the peer's memory.
func (v *victim) room() []byte { return v.mem[roomAt : roomAt+roomSize] }

// serves checks that the victim still serves a peer that keeps the rules.
func (v *victim) serves() {
	v.t.Helper()
	p := v.dial()
	p.connect(setup(0))
	s := v.session()
	data := []byte("still here")
	p.write(iwarp.Header{Op: iwarp.OpWrite, Last: true, Key: v.mr.RKey(), Offset: v.at(16)}, data)
	p.write(iwarp.Header{Op: iwarp.OpReadRequest, MSN: 1, SinkKey: 1, SinkOffset: 2, Length: uint32(len(data)),
		Key: v.mr.RKey(), Offset: v.at(16)}, nil)
	s.expect(fabric.EventEstablished)
	h, payload := p.read()
	assert.Equal(v.t, h.Op, iwarp.OpReadResponse)
	assert.Equal(v.t, h.Key, uint32(1))
	assert.Equal(v.t, h.Offset, uint64(2))
	assert.DeepEqual(v.t, payload, data)
	p.Close()
	s.expect(fabric.EventDisconnected)
	v.unharmed()
}

// at returns the address of the byte at the offset in the room.
func (v *victim) at(offset int) uint64 { return addressOf(v.room()) + uint64(offset) }

// peer is a raw socket that is connected to a victim, or to another listener.
type peer struct {
	net.Conn
	t   *testing.T
	crc bool
}

func (v *victim) dial() *peer {
	v.t.Helper()
	return dial(v.t, v.listener.Addr())
}

func dial(t *testing.T, addr netip.AddrPort) *peer {
	t.Helper()
	c, err := net.DialTimeout("tcp", addr.String(), patience)
	assert.NilError(t, err)
	t.Cleanup(func() { c.Close() })
	assert.NilError(t, c.SetDeadline(time.Now().Add(patience)))
	return &peer{Conn: c, t: t}
}

// setup is the request of a peer that is not of this library. options is what a case changes in the
// request.
func setup(options int) iwarp.Setup {
	s := iwarp.Setup{Revision: 2, CRC: options&withCRC != 0, Enhanced: true, In: readDepth, Out: readDepth}
	if options&extended != 0 {
		s.Extended = true
	}
	return s
}

const (
	withCRC  = 1 << iota
	extended // behaves as an end of this library
)

// connect sends a request and reads the reply.
func (p *peer) connect(s iwarp.Setup) iwarp.Setup {
	p.t.Helper()
	frame, err := s.Append(nil)
	assert.NilError(p.t, err)
	_, err = p.Conn.Write(frame)
	assert.NilError(p.t, err)
	return p.reply()
}

// reply reads a reply.
func (p *peer) reply() iwarp.Setup {
	p.t.Helper()
	head := make([]byte, iwarp.SetupHeaderSize, iwarp.MaxSetupSize)
	_, err := io.ReadFull(p, head)
	assert.NilError(p.t, err)
	n, err := iwarp.SetupSize(head, true)
	assert.NilError(p.t, err)
	head = head[:n]
	_, err = io.ReadFull(p, head[iwarp.SetupHeaderSize:])
	assert.NilError(p.t, err)
	r, err := iwarp.ParseSetup(head, true)
	assert.NilError(p.t, err)
	p.crc = r.CRC
	return r
}

// frame encodes a frame.
func frame(h iwarp.Header, payload []byte, crc bool) []byte {
	h.Payload = len(payload)
	b := make([]byte, iwarp.MaxHeader)
	b = append(b[:h.Put(b)], payload...)
	var tail [iwarp.MaxTrailer]byte
	n := iwarp.PutTrailer(tail[:], len(b)-2, iwarp.Checksum(0, b), crc)
	return append(b, tail[:n]...)
}

func (p *peer) write(h iwarp.Header, payload []byte) {
	p.t.Helper()
	p.bytes(frame(h, payload, p.crc))
}

// bytes writes bytes; the other end may have closed the connection already.
func (p *peer) bytes(b []byte) { p.Conn.Write(b) }

// read reads a frame.
func (p *peer) read() (iwarp.Header, []byte) {
	p.t.Helper()
	h, payload, err := p.readFrame()
	assert.NilError(p.t, err)
	return h, payload
}

func (p *peer) readFrame() (h iwarp.Header, payload []byte, err error) {
	b := make([]byte, iwarp.PrefixSize, iwarp.MaxHeader+iwarp.MaxSegment)
	if _, err = io.ReadFull(p, b); err != nil {
		return h, nil, err
	}
	segment := int(binary.BigEndian.Uint16(b))
	n, err := iwarp.HeaderSize(b, true)
	if err != nil {
		return h, nil, err
	}
	b = b[:2+segment+iwarp.TrailerSize(segment)]
	if _, err = io.ReadFull(p, b[iwarp.PrefixSize:]); err != nil {
		return h, nil, err
	}
	if p.crc {
		if err = iwarp.CheckTrailer(b[2+segment:], iwarp.Checksum(0, b[:2+segment])); err != nil {
			return h, nil, err
		}
	}
	err = h.Parse(b[:n], true)
	return h, b[n : 2+segment], err
}

// terminated reads until the victim ends the connection, and returns the reason in the terminate.
func (p *peer) terminated() (reason iwarp.Fault, told bool) {
	p.t.Helper()
	for {
		h, payload, err := p.readFrame()
		if err != nil {
			var timeout net.Error
			if errors.Is(err, os.ErrDeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout() {
				p.t.Fatal("the victim keeps the connection")
			}
			return reason, told
		}
		assert.Assert(p.t, !told, "a frame after the terminate")
		if h.Op == iwarp.OpTerminate {
			term, err := iwarp.ParseTerminate(payload)
			assert.NilError(p.t, err)
			reason, told = term, true
		}
	}
}

// terminatedWith reads until the victim ends the connection, with a terminate for this reason.
func (p *peer) terminatedWith(want iwarp.Fault) {
	p.t.Helper()
	reason, told := p.terminated()
	assert.Assert(p.t, told, "no terminate")
	assert.Equal(p.t, reason, want)
}

// openDevice opens the device of the loopback address.
func openDevice(t *testing.T, o fabric.Options, async func(fabric.AsyncEvent)) fabric.Device {
	t.Helper()
	d, err := New().Open("tcp:127.0.0.1", o, async)
	assert.NilError(t, err)
	t.Cleanup(func() { assert.NilError(t, d.Close()) })
	return d
}

func addressOf(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }

func (p *peer) closeWrite() { p.Conn.(*net.TCPConn).CloseWrite() }
