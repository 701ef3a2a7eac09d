package iwarp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"testing"

	"gotest.tools/v3/assert"
)

// frames are written by hand from RFC 5041 sections 4.1 to 4.3, RFC 5040 section 4, and RFC 7306
// sections 4 to 6: the length, the two control bytes, DDP's header, RDMAP's.
var frames = []struct {
	name   string
	frame  string
	header Header
}{
	{"write", "0012 c1 40 11223344 0102030405060708",
		Header{Op: OpWrite, Last: true, Payload: 4, Key: 0x11223344, Offset: 0x0102030405060708}},
	{"write, more follows", "ffff 81 40 00000001 0000000000000000",
		Header{Op: OpWrite, Payload: 65535 - 14, Key: 1}},
	{"write of nothing, a ready message", "000e c1 40 00000000 0000000000000000", Header{Op: OpWrite, Last: true}},
	{"read request", "002e 41 41 00000000 00000001 00000007 00000000" +
		"aabbccdd 1111111122222222 00010000 99887766 3333333344444444",
		Header{Op: OpReadRequest, Last: true, MSN: 7, SinkKey: 0xaabbccdd, SinkOffset: 0x1111111122222222,
			Length: 65536, Key: 0x99887766, Offset: 0x3333333344444444}},
	{"read response", "000f c1 42 aabbccdd 1111111122222222",
		Header{Op: OpReadResponse, Last: true, Payload: 1, Key: 0xaabbccdd, Offset: 0x1111111122222222}},
	{"send", "0012 41 43 00000000 00000000 00000001 00000000", Header{Op: OpSend, Last: true, MSN: 1}},
	{"send that acknowledges", "0012 41 43 fffffffe 00000000 00000001 00000000",
		Header{Op: OpSend, Last: true, MSN: 1, Word: math.MaxUint32 - 1}},
	{"send, second segment", "0015 01 43 00000000 00000000 ffffffff 00000578",
		Header{Op: OpSend, Payload: 3, MSN: math.MaxUint32, MO: 1400}},
	{"send with invalidate", "0012 41 44 cafef00d 00000000 00000000 00000000",
		Header{Op: OpSendInv, Last: true, Word: 0xcafef00d}},
	{"solicited send", "0012 41 45 00000000 00000000 00000002 00000000", Header{Op: OpSendSE, Last: true, MSN: 2}},
	{"solicited send that acknowledges", "0012 41 45 00000001 00000000 00000002 00000000",
		Header{Op: OpSendSE, Last: true, MSN: 2, Word: 1}},
	{"solicited send with invalidate", "0012 41 46 cafef00d 00000000 00000003 00000000",
		Header{Op: OpSendSEInv, Last: true, MSN: 3, Word: 0xcafef00d}},
	{"terminate", "0016 41 47 00000000 00000002 00000001 00000000",
		Header{Op: OpTerminate, Last: true, Payload: 4, MSN: 1}},
	{"immediate data", "001a 41 48 00000000 00000000 00000004 00000000 0000000500000006",
		Header{Op: OpImmediate, Last: true, MSN: 4, Value: 5<<32 | 6}},
	{"solicited immediate data", "001a 41 49 00000000 00000000 00000005 00000000 fedcba9876543210",
		Header{Op: OpImmediateSE, Last: true, MSN: 5, Value: 0xfedcba9876543210}},
	{"fetch and add", "0046 41 4a 00000000 00000001 00000002 00000000" +
		"00000000 00000009 00c0ffee 0000000000001000 0000000000000005 0000000000000000 0000000000000000 0000000000000000",
		Header{Op: OpAtomicRequest, Last: true, MSN: 2, Atomic: FetchAdd, ID: 9, Key: 0xc0ffee, Offset: 0x1000, Operand: 5}},
	{"compare and swap", "0046 41 4a 00000000 00000001 00000003 00000000" +
		"00000002 0000000a 00c0ffee 0000000000001008 0000000000000006 ffffffffffffffff 0000000000000007 ffffffffffffffff",
		Header{Op: OpAtomicRequest, Last: true, MSN: 3, Atomic: CmpSwap, ID: 10, Key: 0xc0ffee, Offset: 0x1008,
			Operand: 6, Compare: 7}},
	{"atomic response", "001e 41 4b 00000000 00000003 00000001 00000000 0000000a 8877665544332211",
		Header{Op: OpAtomicResponse, Last: true, MSN: 1, ID: 10, Value: 0x8877665544332211}},
	{"send with immediate data", "0014 41 4c 12345678 00000000 00000006 00000000",
		Header{Op: OpSendImm, Last: true, Payload: 2, MSN: 6, Word: 0x12345678}},
	{"solicited send with immediate data", "0014 01 4d 12345678 00000000 00000006 00000002",
		Header{Op: OpSendSEImm, Payload: 2, MSN: 6, MO: 2, Word: 0x12345678}},
	{"acknowledgement", "001e 41 4f 00000000 00000004 00000002 00000000 01000000 0000000100000002",
		Header{Op: OpControl, Last: true, MSN: 2, Control: ControlAck, Value: 1<<32 | 2}},
}

func TestHeader(t *testing.T) {
	for _, c := range frames {
		t.Run(c.name, func(t *testing.T) {
			b := unhex(t, c.frame)
			n, err := HeaderSize(b[:PrefixSize], true)
			assert.NilError(t, err)
			assert.Equal(t, n, len(b))
			var got Header
			assert.NilError(t, got.Parse(b, true))
			assert.DeepEqual(t, got, c.header)
			var built [MaxHeader]byte
			assert.DeepEqual(t, built[:c.header.Put(built[:])], b)
		})
	}
}

// TestExtended: opcodes beyond RFC 5040 are refused unless both ends have agreed.
func TestExtended(t *testing.T) {
	for _, c := range frames {
		_, err := HeaderSize(unhex(t, c.frame), false)
		if c.header.Op <= OpTerminate {
			assert.NilError(t, err)
		} else {
			assert.ErrorIs(t, err, FaultOpcode, c.name)
		}
	}
}

// TestReserved: reserved bits are ignored, as the RFCs demand.
func TestReserved(t *testing.T) {
	var h Header
	assert.NilError(t, h.Parse(unhex(t, "0012 7d 73 ffffffff 00000000 00000001 00000000"), false))
	assert.DeepEqual(t, h, Header{Op: OpSend, Last: true, MSN: 1})
}

func TestHeaderRefused(t *testing.T) {
	untagged := func(op, queue, rest string) string {
		return "0012 41 " + op + " 00000000 " + queue + " 00000001 " + rest
	}
	const request = "002e 41 41 00000000 00000001 00000001 00000000"
	const atomic = "0046 41 4a 00000000 00000001 00000002 00000000"
	const word = " 00000001 00c0ffee 0000000000001000 0000000000000006 "
	const ones, none, seven = "ffffffffffffffff", "0000000000000000", "0000000000000007"
	for name, c := range map[string]struct {
		frame string
		fault Fault
	}{
		"no segment":                  {"0000 c140", FaultLength},
		"half of the control":         {"0001 c140", FaultLength},
		"a write too short":           {"000d c1 40 00000000 0000000000000000", FaultLength},
		"a send too short":            {"0011 41 43 00000000 00000000 00000001 00000000", FaultLength},
		"a read request short":        {"002d 41 41", FaultLength},
		"a read request long":         {"002f 41 41", FaultLength},
		"an atomic with payload":      {"0047 41 4a", FaultLength},
		"immediate data short":        {"0019 41 48", FaultLength},
		"an acknowledgement long":     {"001f 41 4f", FaultLength},
		"DDP version 0, tagged":       {"0012 c0 40", FaultTaggedVersion},
		"DDP version 2, tagged":       {"0012 c2 40", FaultTaggedVersion},
		"DDP version 3, untagged":     {"0012 43 43", FaultUntaggedVersion},
		"RDMAP version 0":             {"0012 41 03", FaultVersion},
		"RDMAP version 2":             {"0012 41 83", FaultVersion},
		"opcode 14":                   {"0012 41 4e", FaultOpcode},
		"a write, untagged":           {"0012 41 40", FaultOpcode},
		"a response, untagged":        {"0012 41 42", FaultOpcode},
		"a send, tagged":              {"0012 c1 43", FaultOpcode},
		"a read request, tagged":      {"002e c1 41", FaultOpcode},
		"a terminate, tagged":         {"0016 c1 47", FaultOpcode},
		"a control, tagged":           {"001e c1 4f", FaultOpcode},
		"a send, queue 1":             {untagged("43", "00000001", "00000000"), FaultQueue},
		"a send, queue 2^31":          {untagged("43", "80000000", "00000000"), FaultQueue},
		"a terminate, queue 0":        {untagged("47", "00000000", "00000000"), FaultQueue},
		"an offset that ends in time": {"0012 c1 40 00000001 fffffffffffffffb", 0},
		"an offset that wraps by one": {"0012 c1 40 00000001 fffffffffffffffc", FaultTaggedWrap},
		"MO wraps":                    {"0014 41 43 00000000 00000000 00000001 fffffffe", FaultMO},
		"a terminate with MO":         {"0016 41 47 00000000 00000002 00000001 00000001", FaultMO},
		"half a terminate":            {"0016 01 47 00000000 00000002 00000001 00000000", FaultLength},
		"half a read request": {"002e 01 41" + request[10:] + "00000001 0000000000000000 00000001 00000001 0000000000000000",
			FaultLength},
		"a read's source wraps": {request + "00000001 0000000000000000 00000002 00000001 fffffffffffffffe",
			FaultWrap},
		"a read's sink that ends in time": {request + "00000001 ffffffff00000000 ffffffff 00000001 0000000000000000", 0},
		"a read's sink wraps by one": {request + "00000001 ffffffff00000001 ffffffff 00000001 0000000000000000",
			FaultWrap},
		"atomic 1":         {atomic + "00000001" + word + ones + seven + ones, FaultOperation},
		"a masked add":     {atomic + "00000000" + word + "8000000000000000" + none + none, FaultOperation},
		"a masked swap":    {atomic + "00000002" + word + "00000000ffffffff" + seven + ones, FaultOperation},
		"a masked compare": {atomic + "00000002" + word + ones + seven + "00000000ffffffff", FaultOperation},
		"an atomic's address wraps": {atomic + "00000000 00000001 00c0ffee fffffffffffffff8" + none + none + none +
			none, FaultWrap},
		"an unknown control": {"001e 41 4f 00000000 00000004 00000002 00000000 05000000 0000000000000002", FaultOperation},
	} {
		t.Run(name, func(t *testing.T) {
			b := unhex(t, c.frame)
			_, err := HeaderSize(b, true)
			if err == nil {
				err = new(Header).Parse(b, true)
			}
			if c.fault == 0 {
				assert.NilError(t, err)
				return
			}
			var f Fault
			assert.Assert(t, errors.As(err, &f), "%v", err)
			assert.Equal(t, f, c.fault, "%v", err)
		})
	}
}

// TestHeaderSize: no prefix leads beyond the largest header, and none of the sizes is that of a
// header longer than its segment.
func TestHeaderSize(t *testing.T) {
	for control := range 1 << 16 {
		for _, segment := range []int{0, 1, 2, 13, 14, 17, 18, 26, 30, 46, 70, 71, 1000, MaxSegment} {
			b := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, uint16(segment)), uint16(control))
			n, err := HeaderSize(b, true)
			if err == nil && (n > MaxHeader || n > lengthSize+segment || n < lengthSize+taggedSize) {
				t.Fatalf("%x: %d", b, n)
			}
		}
	}
}

func TestOpcodes(t *testing.T) {
	for op := range Opcode(16) {
		solicited := op == OpSendSE || op == OpSendSEInv || op == OpImmediateSE || op == OpSendSEImm
		assert.Equal(t, op.Solicited(), solicited)
		assert.Equal(t, op.Tagged(), op == OpWrite || op == OpReadResponse)
		assert.Assert(t, op.Queue() < Queues)
	}
	assert.Equal(t, fmt.Sprint(OpReadRequest, Opcode(14), OpControl), "read request opcode 14 control")
}

// TestNoAllocation: a frame costs no allocation at either end.
func TestNoAllocation(t *testing.T) {
	var h Header
	var head [MaxHeader]byte
	var tail [MaxTrailer]byte
	payload := make([]byte, 100)
	for _, c := range frames {
		assert.Equal(t, testing.AllocsPerRun(100, func() {
			n := c.header.Put(head[:])
			sum := Checksum(Checksum(0, head[:n]), payload)
			m := PutTrailer(tail[:], n-lengthSize+len(payload), sum, true)
			size, err := HeaderSize(head[:PrefixSize], true)
			if err != nil || h.Parse(head[:size], true) != nil || CheckTrailer(tail[:m], sum) != nil {
				t.Error("not parsed")
			}
		}), 0.0, c.name)
	}
}

// FuzzHeader: headers that are accepted are encoded to headers that mean the same.
func FuzzHeader(f *testing.F) {
	for _, c := range frames {
		var b [MaxHeader]byte
		f.Add(b[:c.header.Put(b[:])], true)
	}
	f.Add(make([]byte, MaxHeader), false)
	f.Fuzz(func(t *testing.T, b []byte, extended bool) {
		if len(b) < PrefixSize {
			return
		}
		var h, again Header
		n, err := HeaderSize(b, extended)
		if err == nil && len(b) >= n {
			err = h.Parse(b[:n], extended)
		}
		var fault Fault
		if err != nil {
			assert.Assert(t, errors.As(err, &fault) && fault != 0)
			return
		}
		if len(b) < n {
			return
		}
		assert.Assert(t, h.Offset <= math.MaxUint64-uint64(h.Payload) && h.MO <= math.MaxUint32-uint32(h.Payload))
		var built [MaxHeader]byte
		assert.Equal(t, h.Put(built[:]), n)
		assert.NilError(t, again.Parse(built[:n], extended))
		assert.Equal(t, again, h)
	})
}
