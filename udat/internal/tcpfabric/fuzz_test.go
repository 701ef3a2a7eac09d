package tcpfabric

import (
	"encoding/binary"
	"slices"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/softnic"
	"github.com/godat/godat/udat/internal/tcpfabric/iwarp"
)

// How a conversation begins: the first byte of the input.
const (
	fuzzOwn = 1 << iota
	fuzzSums
	fuzzGreets // it sends a correct hello
	fuzzShared // the victim has a shared receive queue
	fuzzBusy   // the victim's reads and atomics in flight are as many as the depth
)

// fuzzRecord is how many bytes of the input say a frame.
const fuzzRecord = 12

// fuzzFrame makes a frame of a record. Numbers are relative to the correct ones, so that what is
// almost correct is found.
func (x *liar) fuzzFrame(b []byte, queues *[iwarp.Queues]uint32) []byte {
	v, op := x.s.v, iwarp.Opcode(b[0]&15)
	keys := [...]uint32{v.mr.RKey(), v.readOnly.RKey(), v.foreign.RKey(), v.rx.RKey(), x.l.sinkKey + 1, x.l.sinkKey + 2,
		uint32(b[1])}
	key := keys[int(b[1])%len(keys)]
	length := int(binary.BigEndian.Uint16(b[6:])) % (roomSize + 100)
	h := iwarp.Header{Op: op, Last: b[0]&0x80 == 0, Key: key, Offset: v.at(int(int16(binary.BigEndian.Uint16(b[4:])))),
		SinkKey: key, Length: uint32(length), Atomic: iwarp.Atomic(b[10] & 2), ID: key, Operand: uint64(b[8]),
		Control: iwarp.Control(b[10] % 5), MO: uint32(int8(b[3])), Word: iwarp.Word(uint16(b[8]), uint16(b[9])+plenty)}
	h.Value = iwarp.Counts(uint32(int8(b[8])), uint32(int8(b[9]))+plenty)
	switch {
	case op == iwarp.OpReadResponse:
		h.Offset = uint64(int8(b[3]))
	case op == iwarp.OpControl && h.Control == iwarp.ControlHello:
		h.Value = iwarp.Hello{Segment: iwarp.MaxSegment, Window: uint16(b[8]), Limit: uint16(b[9])}.Value()
	case op == iwarp.OpControl && h.Control == iwarp.ControlAsk:
		h.Value = uint64(b[8])
	}
	if !op.Tagged() && int(op.Queue()) < len(queues) {
		n := &queues[op.Queue()]
		*n++
		h.MSN = *n + uint32(int8(b[2]))
	}
	if op == iwarp.OpReadRequest || op == iwarp.OpControl || op >= iwarp.OpImmediate && op <= iwarp.OpAtomicResponse {
		length = 0
	}
	whole := frame(h, make([]byte, length), x.crc)
	if b[0]&0x40 != 0 {
		whole[int(b[11])%len(whole)] ^= 1 << (b[10] & 7)
	}
	return whole
}

// FuzzConversation has a peer that says a whole conversation: a set-up, and frames of every kind,
// correct and not, to a victim with a read, a Send and an atomic in flight. The connection ends,
// each request completes once, no memory changes but what the peer may write, and the victim has
// counted nothing that it had not written before, and no message without a receive.
func FuzzConversation(f *testing.F) {
	record := func(op iwarp.Opcode, rest ...byte) []byte {
		return append(append([]byte{byte(op)}, rest...), make([]byte, fuzzRecord-1-len(rest))...)
	}
	said := func(begin byte, records ...[]byte) (b []byte) {
		b = []byte{begin}
		for _, r := range records {
			b = append(b, r...)
		}
		return b
	}
	const joins = fuzzOwn | fuzzGreets
	write, send := record(iwarp.OpWrite, 0, 0, 0, 0, 9, 0, 99), record(iwarp.OpSend)
	read := record(iwarp.OpReadRequest, 1)
	answer := record(iwarp.OpReadResponse, 4, 0, 0, 0, 0, 0, 8)
	old := record(iwarp.OpAtomicResponse, 5)
	ack := record(iwarp.OpControl, 0, 0, 0, 0, 0, 0, 0, 2, 0, byte(iwarp.ControlAck))
	early := record(iwarp.OpControl, 0, 0, 0, 0, 0, 0, 0, 9, 0, byte(iwarp.ControlAck))
	ask := record(iwarp.OpControl, 0, 0, 0, 0, 0, 0, 0, 9, 0, byte(iwarp.ControlAsk))
	grant := record(iwarp.OpControl, 0, 0, 0, 0, 0, 0, 0, 0, 0, byte(iwarp.ControlGrant))
	piece := record(iwarp.OpSend|0x80, 0, 0, 0, 0, 0, 0, 8)
	flipped := record(iwarp.OpWrite|0x40, 0, 0, 0, 0, 9, 0, 99, 0, 0, 3, 17)
	for _, b := range [][]byte{{0}, said(fuzzOwn, write), said(joins, write, send, answer, ack, old),
		said(joins, answer, answer), said(joins, early), said(joins, ask, send, ask), said(joins|fuzzShared, ask, send, send),
		said(joins|fuzzBusy, answer, old, answer),
		said(joins, slices.Repeat([][]byte{send}, receives+1)...),
		said(joins, grant), said(joins|fuzzSums, read, piece, write, send), said(joins, flipped), said(0, write, read, send),
		said(fuzzSums, flipped, write), said(joins, record(iwarp.OpTerminate, 0, 0, 0, 0, 0, 0, 4))} {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) == 0 || len(b) > 64*fuzzRecord {
			return
		}
		v := newVictim(t)
		begin := b[0]
		if begin&fuzzShared != 0 {
			v.share(receives)(receives)
		}
		p := v.dial()
		options := 0
		if begin&fuzzSums != 0 {
			options = withCRC
		}
		if begin&fuzzOwn != 0 {
			options |= extended
		}
		offer := setup(options)
		if begin&fuzzBusy != 0 {
			offer.In = 2
		}
		p.connect(offer)
		s := v.session()
		l := linkOf(s.qp.(*softnic.QP))
		var queues [iwarp.Queues]uint32
		posted := 0
		if begin&(fuzzGreets|fuzzOwn) == fuzzGreets|fuzzOwn {
			p.write(hello, nil)
			queues[iwarp.QueueControl]++
			s.expect(fabric.EventEstablished)
			s.sends([]fabric.SendWR{{Opcode: fabric.OpRead}, {Opcode: fabric.OpSend}, {Opcode: fabric.OpFetchAdd}},
				[]uint32{8, 8, 8}, func() {})
			posted = 3
		}
		x := &liar{peer: p, s: s, l: l}
		for b = b[1:]; len(b) >= fuzzRecord; b = b[fuzzRecord:] {
			p.bytes(x.fuzzFrame(b, &queues))
		}
		p.bytes(b)
		p.closeWrite()
		s.over()
		assert.NilError(t, s.conn.Disconnect())
		s.statuses(posted)
		v.unharmed()
		h, out := &l.heard, &l.sent
		assert.Assert(t, h.answered.Load() <= out.reads.Load() && h.grants.Load() <= out.asks.Load())
		if l.own {
			assert.Assert(t, h.acked.Load() <= out.requests.Load() && h.messages.Load() <= out.limit.Load())
		}
	})
}
