package iwarp

import (
	"bytes"
	"encoding/binary"
	"math"
	"testing"

	"gotest.tools/v3/assert"
)

// TestForms checks for each opcode how long its headers are, which queue it has, and whether its
// messages may have payload and several segments.
func TestForms(t *testing.T) {
	for op, want := range map[Opcode]struct {
		head          int // without the frame's length
		queue         Queue
		data, several bool
	}{
		OpWrite: {14, 0, true, true}, OpReadResponse: {14, 0, true, true},
		OpSend: {18, 0, true, true}, OpSendInv: {18, 0, true, true},
		OpSendSE: {18, 0, true, true}, OpSendSEInv: {18, 0, true, true},
		OpSendImm: {18, 0, true, true}, OpSendSEImm: {18, 0, true, true},
		OpReadRequest: {46, 1, false, false}, OpAtomicRequest: {70, 1, false, false},
		OpTerminate: {18, 2, true, false}, OpAtomicResponse: {30, 3, false, false},
		OpControl: {30, 4, false, false}, OpImmediate: {26, 0, false, false}, OpImmediateSE: {26, 0, false, false},
	} {
		var b [MaxHeader]byte
		h := Header{Op: op, Last: true}
		assert.Equal(t, h.Put(b[:]), lengthSize+want.head, op)
		assert.NilError(t, h.Parse(b[:lengthSize+want.head], true), op)
		assert.Equal(t, op.Queue(), want.queue, op)
		more := b
		binary.BigEndian.PutUint16(more[:], uint16(want.head+1))
		_, err := HeaderSize(more[:], true)
		assert.Equal(t, err == nil, want.data, "%v: %v", op, err)
		half := b
		half[2] &^= ddpLast
		err = h.Parse(half[:lengthSize+want.head], true)
		assert.Equal(t, err == nil, want.several, "%v: %v", op, err)
	}
	assert.Equal(t, QueueSend, OpSend.Queue())
	assert.Equal(t, Queues, int(OpControl.Queue())+1)
}

// TestAtomicWide: every number of an atomic keeps all its bits, in both directions. The compare
// value of a fetch and add is not used.
func TestAtomicWide(t *testing.T) {
	const head = "0046 41 4a 00000000 00000001 00000002 00000000 "
	const at = " fedcba98 00c0ffee fffffffffffffff7 "
	const ones, none = " ffffffffffffffff ", " 0000000000000000 "
	add := Header{Op: OpAtomicRequest, Last: true, MSN: 2, Atomic: FetchAdd, ID: 0xfedcba98, Key: 0xc0ffee,
		Offset: math.MaxUint64 - 8, Operand: 0x8877665544332211}
	swap := add
	swap.Atomic, swap.Compare = CmpSwap, 0x1122334455667788
	for frame, want := range map[string]Header{
		head + "00000000" + at + "8877665544332211" + none + none + none:               add,
		head + "00000002" + at + "8877665544332211" + ones + "1122334455667788" + ones: swap,
	} {
		b := unhex(t, frame)
		var got Header
		assert.NilError(t, got.Parse(b, true))
		assert.DeepEqual(t, got, want)
		var built [MaxHeader]byte
		assert.DeepEqual(t, built[:want.Put(built[:])], b)
	}
	var got Header
	assert.NilError(t, got.Parse(unhex(t, head+"00000000"+at+"8877665544332211"+none+"1122334455667788"+none), true))
	assert.DeepEqual(t, got, add)
	for _, kind := range []string{"00000001", "00000002", "00000003"} { // with masks of 0 only a fetch and add is valid
		err := got.Parse(unhex(t, head+kind+at+none+none+none+none), true)
		assert.ErrorIs(t, err, FaultOperation, kind)
	}
}

// TestBounds: the last numbers that are allowed, and the first that are not.
func TestBounds(t *testing.T) {
	var h Header
	assert.NilError(t, h.Parse(unhex(t, "0014 41 43 00000000 00000000 00000001 fffffffd"), true))
	for _, rest := range []string{"0000", "4140", "ffff"} { // bytes that follow do not belong to this frame
		for _, n := range []string{"0000", "0001"} {
			_, err := HeaderSize(unhex(t, n+rest), true)
			assert.ErrorIs(t, err, FaultLength, n+rest)
		}
	}
	_, err := HeaderSize(unhex(t, "0002c040"), true)
	assert.ErrorIs(t, err, FaultTaggedVersion)
	least, err := ParseHello(2<<56 | 1096<<16)
	assert.NilError(t, err)
	assert.Equal(t, least.Segment, 1096)
	_, err = ParseHello(2<<56 | 1095<<16)
	assert.ErrorContains(t, err, "at least 1096")
	_, err = ParseHello(2<<56 - 1)
	assert.ErrorContains(t, err, "version 1")
	assert.Equal(t, SegmentLimit(0), 122)
	longest := 0
	for segment := range 8 {
		longest = max(longest, TrailerSize(segment))
	}
	assert.Equal(t, longest, MaxTrailer)
}

// TestUsedMemory: encoders overwrite all old bytes in the caller's memory. Of a header they use
// only the fields of its opcode.
func TestUsedMemory(t *testing.T) {
	for segment := range 4 {
		b := bytes.Repeat([]byte{0xFF}, MaxTrailer)
		n := PutTrailer(b, segment, 0, false)
		assert.DeepEqual(t, b[:n], make([]byte, n))
	}
	for _, c := range frames {
		b, clean := bytes.Repeat([]byte{0xFF}, MaxHeader), make([]byte, MaxHeader)
		h := c.header
		if !forms[h.Op].word {
			h.Word = 0xcafef00d
		}
		assert.DeepEqual(t, b[:h.Put(b)], clean[:c.header.Put(clean)])
	}
}

// TestFaultTexts: the error contains the value that was found, with all its digits.
func TestFaultTexts(t *testing.T) {
	const atomic = "0046 41 4a 00000000 00000001 00000002 00000000 00000002 00000001 00c0ffee "
	for frame, want := range map[string]string{
		"0012 c2 40":                           "DDP: unknown DDP version: 2",
		"0012 43 43":                           "DDP: unknown DDP version: 3",
		"0012 41 83":                           "RDMAP: unknown RDMAP version: 2",
		"0012 c1 40 00000001 fffffffffffffffc": "0xfffffffffffffffc and 4 bytes",
		"0014 41 43 00000000 00000000 00000001 fffffffe": "4294967294 and 2 bytes of a send",
		"002e 41 41 00000000 00000001 00000001 00000000 00000001 fedcba9876543210 00000002 00000001 ffffffffffffffff"://
		"0xffffffffffffffff to 0xfedcba9876543210, 2 bytes",
		atomic + "fffffffffffffff8 0000000000000006 ffffffffffffffff 0000000000000007 ffffffffffffffff"://
		"0xfffffffffffffff8 and 8 bytes",
		atomic + "0000000000001000 0000000000000006 fffffffeffffffff 0000000000000007 fffffffdffffffff"://
		"atomic 2 with masks 0xfffffffeffffffff and 0xfffffffdffffffff",
	} {
		b := append(unhex(t, frame), make([]byte, MaxHeader)...)
		n, err := HeaderSize(b, true)
		if err == nil {
			err = new(Header).Parse(b[:n], true)
		}
		assert.ErrorContains(t, err, want)
	}
	assert.Equal(t, Fault(0x3201).Error(), "layer 3: type 2, code 1")
}

// TestNumbers: numbers on which a peer or its kernel relies.
func TestNumbers(t *testing.T) {
	assert.Equal(t, PrefixSize, 4)
	assert.Equal(t, MinMSS, 128)
	assert.Equal(t, MaxPrivateKernel, 251)
	assert.Equal(t, MaxTerminate, 52)
	wrong := unhex(t, hexRequest+"00 01 0000")
	wrong[15] ^= 1 // the last byte of the key
	_, err := SetupSize(wrong, false)
	assert.ErrorIs(t, err, FaultSetup)
}

// TestWord: the opcodes for which the first field of DDP's header has a meaning, between ends of
// this library and otherwise.
func TestWord(t *testing.T) {
	for op := range Opcode(16) {
		sends := op == OpSend || op == OpSendSE
		assert.Equal(t, op.Acknowledges(), sends, op)
		always := op == OpSendInv || op == OpSendSEInv || op == OpSendImm || op == OpSendSEImm
		if forms[op].name == "" || op.Tagged() {
			continue
		}
		var b [MaxHeader]byte
		n := (&Header{Op: op, Last: true}).Put(b[:])
		binary.BigEndian.PutUint32(b[4:], 0xcafef00d)
		for _, extended := range []bool{false, true} {
			var h Header
			assert.NilError(t, h.Parse(b[:n], extended), op)
			want := uint32(0)
			if always || sends && extended {
				want = 0xcafef00d
			}
			assert.Equal(t, h.Word, want, "%v, extended %t", op, extended)
		}
	}
}

// TestBusyBits: an end is busy if its reply rejects, is of this library, and says so.
func TestBusyBits(t *testing.T) {
	for flags, want := range map[byte]bool{0x2b: true, 0x2a: false, 0x29: false, 0x23: false, 0x0b: false, 0x01: false} {
		frame := unhex(t, hexReply+"00 02 0000")
		frame[16] = flags
		s, err := ParseSetup(frame, true)
		assert.NilError(t, err)
		assert.Equal(t, s.Busy, want, "flags %02x", flags)
		assert.Equal(t, s.Reject, flags&0x20 != 0)
		built, err := s.Append(nil)
		assert.NilError(t, err)
		assert.Equal(t, built[16]&1 != 0, want, "flags %02x", flags)
	}
	s := Setup{Reply: true, Revision: 2, Extended: true, Busy: true} // this reply accepts
	built, err := s.Append(nil)
	assert.NilError(t, err)
	assert.Equal(t, built[16], byte(0x0a))
}

// TestTerminateUsedMemory: a terminate contains no old bytes of the caller's memory and no bytes
// after the frame at fault. Nothing after its end is changed.
func TestTerminateUsedMemory(t *testing.T) {
	const read = "002e 41 41 00000000 00000001 00000007 00000000" +
		"aabbccdd 1111111122222222 00010000 99887766 3333333344444444"
	whole := unhex(t, read)
	for have, want := range map[int]int{3: 4, 4: 4, 5: 4, 19: 4, 20: 24, 47: 24, 48: 52} {
		b := bytes.Repeat([]byte{0xFF}, MaxTerminate+8)
		n := PutTerminate(b, FaultAccess, whole[:have])
		assert.Equal(t, n, want, "%d bytes of a frame", have)
		flags := map[int]byte{4: 0, 24: 0xC0, 52: 0xE0}[n]
		expected := append([]byte{0x01, 0x02, flags, 0}, whole[:n-4]...)
		assert.DeepEqual(t, b, append(expected, bytes.Repeat([]byte{0xFF}, len(b)-n)...))
	}
	for bit := range 3 { // if one bit is in the right order, reversed bits do not count
		for payload, want := range map[[4]byte]Fault{
			{0x12, 0x01, 0x80>>bit | 0x07}: FaultQueue,
			{0x21, 0x02, 0x01 << bit}:      FaultNoBuffer,
		} {
			f, err := ParseTerminate(payload[:])
			assert.NilError(t, err)
			assert.Equal(t, f, want, "%x", payload)
		}
	}
}
