package tcpfabric

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/softnic"
	"github.com/godat/godat/udat/internal/tcpfabric/iwarp"
	"gotest.tools/v3/assert"
)

// send is a Send of a peer, which has plenty of receives if it is of this library.
func send(msn, mo uint32, last bool) iwarp.Header {
	return iwarp.Header{Op: iwarp.OpSend, Last: last, MSN: msn, MO: mo, Word: iwarp.Word(0, plenty)}
}

// TestHostileFrames: a frame that breaks a rule ends its connection, with a terminate that names
// the rule. The victim's program gets the end, the victim's memory is unharmed, and the victim
// serves others.
func TestHostileFrames(t *testing.T) {
	v := newVictim(t)
	key, readOnly, foreign := v.mr.RKey(), v.readOnly.RKey(), v.foreign.RKey()
	data := bytes.Repeat([]byte{0xBD}, 32)
	write := func(key uint32, offset uint64) iwarp.Header {
		return iwarp.Header{Op: iwarp.OpWrite, Last: true, Key: key, Offset: offset}
	}
	read := func(msn, key uint32, offset uint64, length uint32) iwarp.Header {
		return iwarp.Header{Op: iwarp.OpReadRequest, MSN: msn, SinkKey: 7, Key: key, Offset: offset, Length: length}
	}
	for name, c := range map[string]struct {
		do   func(p *peer)
		want []iwarp.Fault // the reason must be one of these
		crc  bool
	}{
		"a message number too high": {func(p *peer) { p.write(send(2, 0, true), data) }, faults(iwarp.FaultMSN), false},
		"a message number twice": {func(p *peer) {
			p.write(send(1, 0, true), data)
			p.write(send(1, 0, true), data)
		}, faults(iwarp.FaultMSN), false},
		"message number 0":                {func(p *peer) { p.write(send(0, 0, true), data) }, faults(iwarp.FaultMSN), false},
		"a message without its beginning": {func(p *peer) { p.write(send(1, 32, true), data) }, faults(iwarp.FaultMO), false},
		"a gap in a message": {func(p *peer) {
			p.write(send(1, 0, false), data)
			p.write(send(1, 33, true), data)
		}, faults(iwarp.FaultMO), false},
		"a segment twice": {func(p *peer) {
			p.write(send(1, 0, false), data)
			p.write(send(1, 0, true), data)
		}, faults(iwarp.FaultMO), false},
		"another message before the end of one": {func(p *peer) {
			p.write(send(1, 0, false), data)
			p.write(send(2, 0, true), data)
		},
			faults(iwarp.FaultMSN), false},
		"another kind of send in the middle": {func(p *peer) {
			p.write(send(1, 0, false), data)
			p.write(iwarp.Header{Op: iwarp.OpSendInv, Last: true, MSN: 1, MO: 32, Word: key}, data)
		}, faults(iwarp.FaultOpcode, iwarp.FaultOperation), false},
		"a message longer than the receive": {func(p *peer) {
			p.write(send(1, 0, true), make([]byte, receiveSize+1))
		}, faults(iwarp.FaultTooLong), false},
		"a message longer by its second segment": {func(p *peer) {
			p.write(send(1, 0, false), make([]byte, receiveSize))
			p.write(send(1, receiveSize, true), data[:1])
		}, faults(iwarp.FaultTooLong), false},
		"more messages than receives": {func(p *peer) {
			for i := range uint32(receives + 1) {
				p.write(send(i+1, 0, true), data)
			}
		}, faults(iwarp.FaultNoBuffer), false},

		"a key that nobody has":            {func(p *peer) { p.write(write(key+1, v.at(0)), data) }, protection, false},
		"key 0":                            {func(p *peer) { p.write(write(0, v.at(0)), data) }, protection, false},
		"a key of another zone":            {func(p *peer) { p.write(write(foreign, v.at(0)), data) }, protection, false},
		"a write to what may only be read": {func(p *peer) { p.write(write(readOnly, v.at(0)), data) }, protection, false},
		"a write before the region":        {func(p *peer) { p.write(write(key, v.at(-1)), data) }, protection, false},
		"a write behind the region":        {func(p *peer) { p.write(write(key, v.at(roomSize)), data) }, protection, false},
		"a write across the region's end": {func(p *peer) {
			p.write(write(key, v.at(roomSize-31)), data)
		}, protection, false},
		"a write's later segment behind the region": {func(p *peer) {
			h := write(key, v.at(roomSize-32))
			h.Last = false
			p.write(h, data)
			p.write(write(key, v.at(roomSize)), data[:1])
		}, protection, false},
		"a write that wraps": {func(p *peer) { p.write(write(key, math.MaxUint64-30), data) }, protection, false},
		"a write to the last byte": {func(p *peer) {
			p.write(write(key, math.MaxUint64), nil)
			p.write(write(key, math.MaxUint64), data[:1])
		}, protection, false},
		"a key to invalidate that is none": {func(p *peer) {
			p.write(iwarp.Header{Op: iwarp.OpSendInv, Last: true, MSN: 1, Word: key + 1}, data)
		}, faults(iwarp.FaultInvalidate, iwarp.FaultProtectInv), false},

		"a read of what nobody has": {func(p *peer) { p.write(read(1, key+1, v.at(0), 8), nil) }, protection, false},
		"a read of another zone":    {func(p *peer) { p.write(read(1, foreign, v.at(0), 8), nil) }, protection, false},
		"a read before the region":  {func(p *peer) { p.write(read(1, key, v.at(-1), 8), nil) }, protection, false},
		"a read across the region's end": {func(p *peer) {
			p.write(read(1, key, v.at(roomSize-7), 8), nil)
		}, protection, false},
		"a read of 4 GiB": {func(p *peer) {
			p.write(read(1, key, v.at(0), math.MaxUint32), nil)
		}, protection, false},
		"a read that wraps": {func(p *peer) {
			p.write(read(1, key, math.MaxUint64-6, 8), nil)
		}, protection, false},
		"a read's number too high": {func(p *peer) {
			p.write(read(2, key, v.at(0), 8), nil)
		}, faults(iwarp.FaultMSN), false},
		"a read's number twice": {func(p *peer) {
			p.write(read(1, key, v.at(0), 8), nil)
			p.write(read(1, key, v.at(0), 8), nil)
		}, faults(iwarp.FaultMSN), false},

		"an answer that nobody asked for": {func(p *peer) {
			p.write(iwarp.Header{Op: iwarp.OpReadResponse, Last: true, Key: key, Offset: v.at(0)}, data)
		}, anything, false},
		"an answer into the receives": {func(p *peer) {
			p.write(iwarp.Header{Op: iwarp.OpReadResponse, Last: true, Key: v.rx.LKey(), Offset: addressOf(v.mem[rxAt:])}, data)
		}, anything, false},
		"an atomic without agreement": {func(p *peer) {
			p.write(iwarp.Header{Op: iwarp.OpAtomicRequest, MSN: 1, Key: key, Offset: v.at(0), Operand: 1}, nil)
		}, faults(iwarp.FaultOpcode), false},
		"immediate data without agreement": {func(p *peer) {
			p.write(iwarp.Header{Op: iwarp.OpImmediate, MSN: 1}, nil)
		}, faults(iwarp.FaultOpcode), false},
		"a control message without agreement": {func(p *peer) {
			p.write(iwarp.Header{Op: iwarp.OpControl, MSN: 1, Control: iwarp.ControlAck, Value: 1}, nil)
		}, faults(iwarp.FaultOpcode), false},
		"an opcode that nobody knows": {func(p *peer) { p.bytes(crafted(2, 14)) }, faults(iwarp.FaultOpcode), false},
		"a version of DDP":            {func(p *peer) { p.bytes(crafted(2, 2)) }, faults(iwarp.FaultUntaggedVersion), false},
		"a version of RDMAP":          {func(p *peer) { p.bytes(crafted(3, 0x83)) }, faults(iwarp.FaultVersion), false},
		"another queue":               {func(p *peer) { p.bytes(crafted(11, 1)) }, faults(iwarp.FaultQueue), false},
		"a segment without headers":   {func(p *peer) { p.bytes([]byte{0, 0, 0, 0, 0, 0, 0, 0}) }, anything, false},
		"bytes of another protocol": {func(p *peer) {
			p.bytes([]byte("GET / HTTP/1.1\r\nHost: example.com\r\n\r\n"))
		}, anything, false},

		"a wrong checksum": {func(p *peer) {
			b := frame(write(key, v.at(0)), data, true)
			b[20] ^= 1
			p.bytes(b)
		}, faults(iwarp.FaultCRC), true},
		"a checksum left out": {func(p *peer) {
			p.bytes(frame(write(key, v.at(0)), data, false))
		}, faults(iwarp.FaultCRC), true},
		"a wrong checksum of the second segment": {func(p *peer) {
			p.write(send(1, 0, false), data)
			b := frame(send(1, 32, true), data, true)
			b[len(b)-1] ^= 0x80
			p.bytes(b)
		}, faults(iwarp.FaultCRC), true},
		"a length changed on the way": {func(p *peer) {
			b := frame(send(1, 0, true), data, true)
			b[1] -= 4
			p.bytes(b)
		}, faults(iwarp.FaultCRC), true},
	} {
		t.Run(name, func(t *testing.T) {
			w := *v
			w.t = t
			p := w.dial()
			options := 0
			if c.crc {
				options |= withCRC
			}
			reply := p.connect(setup(options))
			assert.Equal(t, reply.CRC, c.crc)
			assert.Assert(t, !reply.Reject && !reply.Extended)
			s := w.session()
			before := slices.Clone(w.room())
			c.do(p)
			reason, told := p.terminated()
			p.Close()
			assert.Assert(t, told, "no terminate")
			assert.Assert(t, c.want == nil || slices.Contains(c.want, reason), "terminated with %v", reason)
			s.ends()
			if c.crc {
				assert.DeepEqual(t, w.room(), before)
			}
			w.unharmed()
			w.serves()
		})
	}
}

// TestRefusedAtItsHeaders: a frame whose payload has no place is refused before all of it has come,
// and nothing of it is written.
func TestRefusedAtItsHeaders(t *testing.T) {
	v := newVictim(t)
	for _, c := range []struct {
		h       iwarp.Header
		payload int
		want    iwarp.Fault
	}{
		{iwarp.Header{Op: iwarp.OpWrite, Last: true, Key: v.mr.RKey(), Offset: v.at(roomSize - 31)}, 32,
			iwarp.FaultTaggedBounds},
		{send(1, 0, true), receiveSize + 1, iwarp.FaultTooLong},
	} {
		p := v.dial()
		p.connect(setup(0))
		s := v.session()
		before := slices.Clone(v.mem)
		b := frame(c.h, make([]byte, c.payload), false)
		p.bytes(b[:len(b)-c.payload/2])
		p.terminatedWith(c.want)
		p.Close()
		s.over()
		if c.h.Op == iwarp.OpSend {
			var wcs [1]fabric.WC
			within(t, "the receive does not complete", func() bool {
				n, err := v.cq.Poll(wcs[:], 1)
				assert.NilError(t, err)
				return n > 0 && wcs[0].Status != fabric.StatusFlush
			})
			assert.Equal(t, wcs[0].Status, fabric.StatusLocalLength)
		}
		assert.DeepEqual(t, v.mem, before)
	}
	v.serves()
}

func faults(f ...iwarp.Fault) []iwarp.Fault { return f }

// anything is for attacks that have no fault of their own.
var anything []iwarp.Fault

// protection are the faults of keys, rights and bounds.
var protection = faults(iwarp.FaultKey, iwarp.FaultBounds, iwarp.FaultAccess, iwarp.FaultKeyStream, iwarp.FaultWrap,
	iwarp.FaultProtection, iwarp.FaultTaggedKey, iwarp.FaultTaggedBounds, iwarp.FaultTaggedStream, iwarp.FaultTaggedWrap)

// crafted is the frame of a send with one byte changed.
func crafted(at int, to byte) []byte {
	b := frame(send(1, 0, true), nil, false)
	if at == 2 && to == 14 { // an opcode
		b[3] = 0x40 | to
		return b
	}
	b[at] = to
	if at == 2 {
		b[at] |= 0x40
	}
	return b
}

// ends waits until the victim's program has got the end of the connection.
func (s *session) ends() {
	s.v.t.Helper()
	s.expect(fabric.EventEstablished)
	s.expect(fabric.EventDisconnected)
}

// over waits for the end of a connection that may not have been established.
func (s *session) over() {
	s.v.t.Helper()
	ev := s.next()
	if ev.Kind == fabric.EventEstablished {
		ev = s.next()
	}
	ended := ev.Kind == fabric.EventDisconnected || ev.Kind == fabric.EventFailed
	assert.Assert(s.v.t, ended, "event %d: %v", ev.Kind, ev.Err)
}

// TestTooManyReads: if a peer reads no answers, no more of its reads are accepted than the depth,
// plus those whose answers fit into TCP's buffers. Then the peer gets the reason, after the
// answers.
func TestTooManyReads(t *testing.T) {
	v := newVictim(t)
	p := v.dial()
	p.connect(setup(0))
	s := v.session()
	assert.NilError(t, p.SetWriteDeadline(time.Now().Add(patience/4)))
	sent := 0
	for i := range uint32(1 << 15) {
		b := frame(iwarp.Header{Op: iwarp.OpReadRequest, MSN: i + 1, SinkKey: 7, Key: v.mr.RKey(), Offset: v.at(0),
			Length: roomSize}, nil, false)
		if _, err := p.Conn.Write(b); err != nil {
			break
		}
		sent++
	}
	reason, told := p.terminated()
	p.Close()
	assert.Assert(t, told, "%d reads", sent)
	assert.Equal(t, reason, iwarp.FaultReadDepth)
	s.ends()
	v.serves()
}

// TestBytesOneByOne: a peer that sends byte by byte is served like any other.
func TestBytesOneByOne(t *testing.T) {
	v := newVictim(t)
	p := v.dial()
	assert.NilError(t, p.Conn.(*net.TCPConn).SetNoDelay(true))
	request := setup(withCRC)
	request.Private = []byte("slow")
	stream, err := request.Append(nil)
	assert.NilError(t, err)
	slowly := func(b []byte) {
		for i := range b {
			_, err := p.Conn.Write(b[i : i+1])
			assert.NilError(t, err)
		}
	}
	slowly(stream)
	p.reply()
	s := v.session()
	slowly(frame(iwarp.Header{Op: iwarp.OpWrite, Last: true, Key: v.mr.RKey(), Offset: v.at(3)}, []byte("written"), true))
	slowly(frame(send(1, 0, false), []byte("se"), true))
	slowly(frame(iwarp.Header{Op: iwarp.OpReadRequest, MSN: 1, SinkKey: 9, Key: v.mr.RKey(), Offset: v.at(3), Length: 7},
		nil, true)) // another queue's message may come in between
	slowly(frame(send(1, 2, true), []byte("nt"), true))
	s.expect(fabric.EventEstablished)
	h, payload := p.read()
	assert.Equal(t, h.Op, iwarp.OpReadResponse)
	assert.Equal(t, string(payload), "written")
	within(t, "the send has not come", func() bool { return linkOf(s.qp.(*softnic.QP)).heard.executed.Load() == 3 })
	assert.Equal(t, string(v.mem[rxAt:rxAt+4]), "sent")
	v.unharmed()
}

// TestTruncation: a connection may end after any byte. The victim then gets the end, and whether it
// was within a frame. With checksums its memory contains whole frames only.
func TestTruncation(t *testing.T) {
	for name, options := range map[string]int{"with checksums": withCRC, "without": 0} {
		t.Run(name, func(t *testing.T) { truncates(t, options) })
	}
}

func truncates(t *testing.T, options int) {
	v := newVictim(t)
	request, crc := setup(options), options&withCRC != 0
	stream, err := request.Append(nil)
	assert.NilError(t, err)
	set := len(stream)
	written := []byte("0123456789")
	write := iwarp.Header{Op: iwarp.OpWrite, Last: true, Key: v.mr.RKey(), Offset: v.at(0)}
	stream = append(stream, frame(write, written, crc)...)
	first := len(stream)
	whole := []int{set, first}
	stream = append(stream, frame(send(1, 0, false), []byte("beginning"), crc)...)
	whole = append(whole, len(stream))
	stream = append(stream, frame(send(1, 9, true), []byte("end"), crc)...)
	whole = append(whole, len(stream))
	stream = append(stream, frame(iwarp.Header{Op: iwarp.OpTerminate, MSN: 1}, []byte{0x02, 0x07, 0, 0}, crc)...)
	for n := range stream {
		t.Logf("%d of %d bytes, frames begin at %d and %d", n, len(stream), set, first)
		clear(v.room())
		p := v.dial()
		p.bytes(stream[:n])
		if n >= set {
			p.reply()
		}
		p.closeWrite()
		if n < set {
			p.terminated() // closed, without a request
			select {
			case <-v.accepted:
				t.Fatalf("a request of %d bytes was accepted", n)
			default:
			}
			continue
		}
		s := v.session()
		ev := s.next()
		if ev.Kind == fabric.EventEstablished {
			ev = s.next()
		}
		want, within := fabric.EventDisconnected, !slices.Contains(whole, n)
		if within {
			want = fabric.EventFailed
		}
		assert.Equal(t, ev.Kind, want)
		assert.Equal(t, errors.Is(ev.Err, errMidFrame), within, "%v", ev.Err)
		assert.NilError(t, s.conn.Disconnect())
		p.terminated()
		if n >= first {
			assert.DeepEqual(t, v.room()[:len(written)], written)
		}
		assert.DeepEqual(t, v.room()[len(written):], make([]byte, roomSize-len(written)))
		v.unharmed()
		p.Close()
	}
	v.serves()
}

// TestBadSetups: a wrong request gets no answer, or a reject, and leads to no event.
func TestBadSetups(t *testing.T) {
	v := newVictim(t)
	markers := setup(0)
	markers.Markers = true
	wanted, err := markers.Append(nil)
	assert.NilError(t, err)
	good, err := (&iwarp.Setup{Revision: 2, Enhanced: true}).Append(nil)
	assert.NilError(t, err)
	changed := func(at int, to byte) []byte {
		b := slices.Clone(good)
		b[at] = to
		return b
	}
	for name, b := range map[string][]byte{
		"HTTP":               []byte("GET / HTTP/1.1\r\nHost: example.com\r\n\r\n"),
		"TLS":                {0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
		"zeroes":             make([]byte, 64),
		"a reply":            changed(9, 'p'),
		"revision 0":         changed(17, 0),
		"revision 255":       changed(17, 255),
		"65,535 bytes":       changed(18, 255),
		"depths left out":    changed(19, 2),
		"markers":            wanted,
		"bytes after it":     append(slices.Clone(good), 0),
		"a frame after it":   append(slices.Clone(good), frame(send(1, 0, true), nil, false)...),
		"a request after it": append(slices.Clone(good), good...),
	} {
		t.Run(name, func(t *testing.T) {
			w := *v
			w.t = t
			p := w.dial()
			p.bytes(b)
			early := bytes.HasPrefix(b, good)
			if early {
				// The request is good. Bytes that come too early may be read once the connection exists.
				p.Close()
				select {
				case s := <-w.accepted:
					s.close()
				case <-time.After(patience):
					t.Fatal("no request")
				}
			} else {
				p.closeWrite()
				got, _ := io.ReadAll(p)
				if len(got) > 0 {
					r, err := iwarp.ParseSetup(got, true)
					assert.NilError(t, err)
					assert.Assert(t, r.Reject)
				}
				select {
				case <-w.accepted:
					t.Fatal("it was accepted")
				default:
				}
			}
			w.serves()
		})
	}
}

// TestSilentHandshakes: peers that connect and send nothing, or only the beginning of a request,
// keep no other peer from connecting, however many they are.
func TestSilentHandshakes(t *testing.T) {
	many := 10000
	if testing.Short() {
		many = 1000
	}
	v := newVictim(t)
	var silent []net.Conn
	t.Cleanup(func() {
		for _, c := range silent {
			c.Close()
		}
	})
	for i := range many {
		c, err := net.DialTimeout("tcp", v.listener.Addr().String(), patience)
		if err != nil {
			t.Logf("%d connections: %v", i, err) // too few descriptors: this process has both ends
			break
		}
		silent = append(silent, c)
		c.Write([]byte("MPA ID Req Frame")[:i%17])
		if i%2500 == 2499 {
			v.serves()
		}
	}
	assert.Assert(t, len(silent) >= min(many, 4000))
	v.serves()
	fmt.Fprintln(t.Output(), len(silent), "silent connections")
}
