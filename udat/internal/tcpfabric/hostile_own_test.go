package tcpfabric

import (
	"math"
	"slices"
	"testing"

	"github.com/godat/godat/udat/internal/fabric"
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
	said, err := iwarp.ParseHello(h.Value)
	assert.NilError(p.t, err)
	want := iwarp.Hello{Segment: iwarp.MaxSegment, Window: receives, Limit: receives}
	if said.Shared {
		want = iwarp.Hello{Segment: iwarp.MaxSegment, Window: sharedWindow, Shared: true}
	}
	assert.Equal(p.t, said, want)
}

func control(msn uint32, c iwarp.Control, value uint64) iwarp.Header {
	return iwarp.Header{Op: iwarp.OpControl, MSN: msn, Control: c, Value: value}
}

// plenty is more receives than any test needs.
const plenty = 1 << 15

// hello is the frame that a peer of this library with plenty of receives sends first.
var hello = control(1, iwarp.ControlHello, iwarp.Hello{Segment: iwarp.MaxSegment, Window: plenty,
	Limit: plenty}.Value())

// acks is the acknowledgement of a peer that said hello.
func acks(msn, executed uint32) iwarp.Header {
	return control(msn, iwarp.ControlAck, iwarp.Counts(executed, plenty))
}

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
	acking := func(n uint32) iwarp.Header {
		return iwarp.Header{Op: iwarp.OpSendSE, Last: true, MSN: 1, Word: iwarp.Word(uint16(n), plenty)}
	}
	operation := faults(iwarp.FaultOperation)
	for name, c := range map[string]struct {
		frames []iwarp.Header
		want   []iwarp.Fault
	}{
		"a send before the hello":       {[]iwarp.Header{send(1, 0, true)}, faults(iwarp.FaultOpcode)},
		"a ready message for the hello": {[]iwarp.Header{{Op: iwarp.OpWrite, Last: true}}, faults(iwarp.FaultOpcode)},
		"an acknowledgement for the hello": {[]iwarp.Header{acks(1, 0)},
			faults(iwarp.FaultOpcode)},
		"a hello of version 0":          {[]iwarp.Header{control(1, iwarp.ControlHello, 0xFFFF0000)}, operation},
		"a hello with segments of 0":    {[]iwarp.Header{control(1, iwarp.ControlHello, 2<<56)}, operation},
		"a hello of the version before": {[]iwarp.Header{control(1, iwarp.ControlHello, 1<<56|0xFFFF0000)}, operation},
		"a hello with more receives than its window": {[]iwarp.Header{control(1, iwarp.ControlHello,
			iwarp.Hello{Segment: iwarp.MaxSegment, Window: 1, Limit: 2}.Value())}, operation},
		"a hello with receives of a shared queue": {[]iwarp.Header{control(1, iwarp.ControlHello,
			iwarp.Hello{Segment: iwarp.MaxSegment, Window: 1, Limit: 1, Shared: true}.Value())}, operation},
		"two hellos": {[]iwarp.Header{hello, control(2, iwarp.ControlHello, hello.Value)},
			operation},
		"the hello's number twice":            {[]iwarp.Header{hello, acks(1, 0)}, faults(iwarp.FaultMSN)},
		"an acknowledgement of nothing":       {[]iwarp.Header{hello, acks(2, 1)}, operation},
		"an acknowledgement of everything":    {[]iwarp.Header{hello, acks(2, math.MaxUint32)}, operation},
		"a send that acknowledges":            {[]iwarp.Header{hello, acking(1)}, operation},
		"a send that acknowledges everything": {[]iwarp.Header{hello, acking(math.MaxUint32)}, operation},
		"more receives than its window": {[]iwarp.Header{hello,
			control(2, iwarp.ControlAck, iwarp.Counts(0, plenty+1))}, operation},
		"fewer receives than before": {[]iwarp.Header{hello, control(2, iwarp.ControlAck, iwarp.Counts(0, plenty-1))},
			operation},
		"a grant of nothing":  {[]iwarp.Header{hello, control(2, iwarp.ControlGrant, iwarp.Counts(0, plenty))}, operation},
		"an ask for nothing":  {[]iwarp.Header{hello, control(2, iwarp.ControlAsk, 0)}, operation},
		"an ask for too much": {[]iwarp.Header{hello, control(2, iwarp.ControlAsk, mostAsked+1)}, operation},
		"an ask of 64 bits":   {[]iwarp.Header{hello, control(2, iwarp.ControlAsk, 1<<32+1)}, operation},
		"an ask for less than before": {[]iwarp.Header{hello, control(2, iwarp.ControlAsk, 9), control(3, iwarp.ControlAsk,
			8)},
			operation},
		"an ask for what it has sent": {[]iwarp.Header{hello, send(1, 0, true), control(2, iwarp.ControlAsk, 1)}, operation},
		"an unknown control message":  {[]iwarp.Header{hello, control(2, iwarp.ControlGrant+1, 0)}, operation},
		"a message above the limit": {[]iwarp.Header{hello, send(1, 0, true), send(2, 0, true), send(3, 0, true),
			send(4, 0, true), send(5, 0, true)}, faults(iwarp.FaultNoBuffer)},
		"immediate data above the limit": {[]iwarp.Header{hello, send(1, 0, true), send(2, 0, true), send(3, 0, true),
			send(4, 0, true), {Op: iwarp.OpWrite, Last: true}, {Op: iwarp.OpImmediate, MSN: 5}}, faults(iwarp.FaultNoBuffer)},
		"an atomic across words":        {[]iwarp.Header{hello, atomic(1, key, v.at(4))}, operation},
		"an atomic behind the region":   {[]iwarp.Header{hello, atomic(1, key, v.at(roomSize))}, protection},
		"an atomic of what may be read": {[]iwarp.Header{hello, atomic(1, v.readOnly.RKey(), v.at(0))}, protection},
		"an atomic of another zone":     {[]iwarp.Header{hello, atomic(1, v.foreign.RKey(), v.at(0))}, protection},
		"an atomic's number too high":   {[]iwarp.Header{hello, atomic(2, key, v.at(0))}, faults(iwarp.FaultMSN)},
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
