package tcpfabric

import (
	"encoding/binary"
	"math"
	"slices"
	"testing"

	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/softnic"
	"github.com/godat/godat/udat/internal/tcpfabric/iwarp"
	"gotest.tools/v3/assert"
)

// greet connects as an end of this library, and reads the victim's hello.
func (p *peer) greet() {
	p.t.Helper()
	reply := p.connect(setup(extended))
	assert.Assert(p.t, reply.Extended)
	h, _ := p.read()
	assert.Equal(p.t, h.Op, iwarp.OpControl)
	assert.Equal(p.t, h.Control, iwarp.ControlHello)
	assert.Equal(p.t, h.Value, iwarp.Hello)
}

func control(msn uint32, c iwarp.Control, value uint64) iwarp.Header {
	return iwarp.Header{Op: iwarp.OpControl, MSN: msn, Control: c, Value: value}
}

// hello is the frame that a peer of this library sends first.
var hello = control(1, iwarp.ControlHello, iwarp.Hello)

// joined returns a connected peer that behaves as an end of this library, and the victim's end.
func (v *victim) joined() (*peer, *session) {
	v.t.Helper()
	p := v.dial()
	p.greet()
	s := v.session()
	p.write(hello, nil)
	s.expect(fabric.EventEstablished)
	return p, s
}

// TestHostileOwnEnd: a peer that claims to be an end of this library is trusted no more than
// others.
func TestHostileOwnEnd(t *testing.T) {
	v := newVictim(t)
	key := v.mr.RKey()
	atomic := func(msn, key uint32, offset uint64) iwarp.Header {
		return iwarp.Header{Op: iwarp.OpAtomicRequest, MSN: msn, Atomic: iwarp.FetchAdd, ID: msn, Key: key, Offset: offset,
			Operand: 1}
	}
	acking := func(n uint32) iwarp.Header { return iwarp.Header{Op: iwarp.OpSendSE, Last: true, MSN: 1, Word: n} }
	operation := faults(iwarp.FaultOperation)
	for name, c := range map[string]struct {
		frames []iwarp.Header
		want   []iwarp.Fault
	}{
		"a send before the hello":       {[]iwarp.Header{send(1, 0, true)}, faults(iwarp.FaultOpcode)},
		"a ready message for the hello": {[]iwarp.Header{{Op: iwarp.OpWrite, Last: true}}, faults(iwarp.FaultOpcode)},
		"an acknowledgement for the hello": {[]iwarp.Header{control(1, iwarp.ControlAck, 0)},
			faults(iwarp.FaultOpcode)},
		"a hello of version 0":          {[]iwarp.Header{control(1, iwarp.ControlHello, 0xFFFF0000)}, operation},
		"a hello with segments of 0":    {[]iwarp.Header{control(1, iwarp.ControlHello, 1<<56)}, operation},
		"two hellos":                    {[]iwarp.Header{hello, control(2, iwarp.ControlHello, hello.Value)}, operation},
		"the hello's number twice":      {[]iwarp.Header{hello, control(1, iwarp.ControlAck, 0)}, faults(iwarp.FaultMSN)},
		"an acknowledgement of nothing": {[]iwarp.Header{hello, control(2, iwarp.ControlAck, 1)}, operation},
		"an acknowledgement of everything": {[]iwarp.Header{hello, control(2, iwarp.ControlAck, math.MaxUint64)},
			operation},
		"a send that acknowledges":            {[]iwarp.Header{hello, acking(1)}, operation},
		"a send that acknowledges everything": {[]iwarp.Header{hello, acking(math.MaxUint32)}, operation},
		"not ready for nothing":               {[]iwarp.Header{hello, control(2, iwarp.ControlNotReady, 0)}, operation},
		"ready for nothing":                   {[]iwarp.Header{hello, control(2, iwarp.ControlReady, 0)}, operation},
		"nothing to resume":                   {[]iwarp.Header{hello, control(2, iwarp.ControlResume, 0)}, operation},
		"an atomic across words":              {[]iwarp.Header{hello, atomic(1, key, v.at(4))}, operation},
		"an atomic behind the region":         {[]iwarp.Header{hello, atomic(1, key, v.at(roomSize))}, protection},
		"an atomic of what may be read":       {[]iwarp.Header{hello, atomic(1, v.readOnly.RKey(), v.at(0))}, protection},
		"an atomic of another zone":           {[]iwarp.Header{hello, atomic(1, v.foreign.RKey(), v.at(0))}, protection},
		"an atomic's number too high":         {[]iwarp.Header{hello, atomic(2, key, v.at(0))}, faults(iwarp.FaultMSN)},
		"an atomic's answer that nobody asked for": {[]iwarp.Header{hello, {Op: iwarp.OpAtomicResponse, MSN: 1, ID: 1}},
			faults(iwarp.FaultOpcode)},
		"a key of another zone": {[]iwarp.Header{hello,
			{Op: iwarp.OpWrite, Last: true, Key: v.foreign.RKey(), Offset: v.at(0), Payload: 1}}, protection},
		"a read across the region": {[]iwarp.Header{hello,
			{Op: iwarp.OpReadRequest, MSN: 1, Key: key, Offset: v.at(1), Length: roomSize}}, protection},
		"immediate data in the middle of a send": {[]iwarp.Header{hello, send(1, 0, false), {Op: iwarp.OpImmediate, MSN: 2}},
			faults(iwarp.FaultOpcode, iwarp.FaultMSN)},
	} {
		t.Run(name, func(t *testing.T) {
			w := *v
			w.t = t
			before := slices.Clone(w.room())
			p := w.dial()
			p.greet()
			s := w.session()
			for _, h := range c.frames {
				p.write(h, make([]byte, h.Payload))
			}
			reason, told := p.terminated()
			p.Close()
			assert.Assert(t, told, "no terminate")
			assert.Assert(t, slices.Contains(c.want, reason), "terminated with %v", reason)
			s.over()
			assert.DeepEqual(t, w.room(), before)
			w.unharmed()
			w.serves()
		})
	}
}

// TestWaitingSends: a peer of this library whose sends find no receive gets ControlNotReady once,
// whatever it sends after that. None of it is executed. A resume of another request is refused.
func TestWaitingSends(t *testing.T) {
	v := newVictim(t)
	p := v.dial()
	p.greet()
	s := v.session()
	p.write(hello, nil)
	for i := range uint32(receives + 1000) {
		p.write(send(i+1, 0, true), []byte("message"))
	}
	p.write(iwarp.Header{Op: iwarp.OpWrite, Last: true, Key: v.mr.RKey(), Offset: v.at(0)}, []byte("written"))
	p.write(control(2, iwarp.ControlResume, receives+1), nil) // not the request that ControlReady names
	told, refused := 0, false
	for {
		h, payload, err := p.readFrame()
		if err != nil {
			break
		}
		if h.Op == iwarp.OpControl && h.Control == iwarp.ControlNotReady {
			assert.Equal(t, h.Value, uint64(receives))
			told++
		}
		if h.Op == iwarp.OpTerminate {
			term, err := iwarp.ParseTerminate(payload)
			assert.NilError(t, err)
			assert.Equal(t, term, iwarp.FaultOperation)
			refused = true
		}
	}
	p.Close()
	assert.Equal(t, told, 1)
	assert.Assert(t, refused)
	assert.Assert(t, string(v.room()[:7]) != "written")
	s.over()
	v.unharmed()
	v.serves()
}

// TestHostileNotReady: a peer says once that a send waits for a receive, and then that there is one
// for this send.
func TestHostileNotReady(t *testing.T) {
	v := newVictim(t)
	for name, frames := range map[string][]iwarp.Header{
		"not ready for what it has executed": {control(2, iwarp.ControlNotReady, 1)},
		"not ready twice":                    {control(2, iwarp.ControlNotReady, 0), control(3, iwarp.ControlNotReady, 0)},
		"ready for a later send":             {control(2, iwarp.ControlNotReady, 0), control(3, iwarp.ControlReady, 1)},
	} {
		t.Run(name, func(t *testing.T) {
			w := *v
			w.t = t
			p, s := w.joined()
			_, err := s.qp.PostSend([]fabric.SendWR{{Opcode: fabric.OpSend}}, nil)
			assert.NilError(t, err)
			h, _ := p.read()
			assert.Equal(t, h.Op, iwarp.OpSend)
			l := linkOf(s.qp.(*softnic.QP))
			l.inTurn(func() { // one after the other, before this end prepares to send again
				for _, h := range frames {
					p.write(h, nil)
				}
				within(t, "they are not refused", l.refusing.Load)
			})
			p.terminatedWith(iwarp.FaultOperation)
			p.Close()
			s.over()
		})
	}
}

// TestAnswersToWaitingSends: while a peer's send waits for a receive, the peer's answers are used,
// and its other requests ignored.
func TestAnswersToWaitingSends(t *testing.T) {
	v := newVictim(t)
	p, s := v.joined()
	for i := range uint32(receives + 1) {
		p.write(send(i+1, 0, true), []byte("message"))
	}
	for h := (iwarp.Header{}); h.Control != iwarp.ControlNotReady; {
		h, _ = p.read()
	}
	want := slices.Clone(v.room())
	copy(want, "answered")
	binary.NativeEndian.PutUint64(want[8:], 77)
	for _, wr := range []fabric.SendWR{{ID: 98, Opcode: fabric.OpRead}, {ID: 99, Opcode: fabric.OpFetchAdd}} {
		wr.NumSGE = 1
		sge := fabric.SGE{Addr: v.at(int(wr.ID-98) * 8), Length: 8, LKey: v.mr.LKey()}
		_, err := s.qp.PostSend([]fabric.SendWR{wr}, []fabric.SGE{sge})
		assert.NilError(t, err)
	}
	p.write(iwarp.Header{Op: iwarp.OpWrite, Last: true, Key: v.mr.RKey(), Offset: v.at(16)}, []byte("ignored"))
	h, _ := p.read()
	assert.Equal(t, h.Op, iwarp.OpReadRequest)
	p.write(iwarp.Header{Op: iwarp.OpReadResponse, Last: true, Key: h.SinkKey, Offset: h.SinkOffset}, []byte("answered"))
	h, _ = p.read()
	assert.Equal(t, h.Op, iwarp.OpAtomicRequest)
	p.write(iwarp.Header{Op: iwarp.OpAtomicResponse, MSN: 1, ID: h.ID, Value: 77}, nil)
	l := linkOf(s.qp.(*softnic.QP))
	within(t, "the requests do not complete", func() bool { return l.qp.Sends().Len() == 0 })
	assert.DeepEqual(t, v.room(), want)
	p.Close()
	s.expect(fabric.EventDisconnected)
}
