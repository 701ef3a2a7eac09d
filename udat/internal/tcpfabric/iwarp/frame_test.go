package iwarp

import (
	"bytes"
	"testing"

	"gotest.tools/v3/assert"
)

// build returns the whole frame of h and payload.
func build(h Header, payload []byte, crc bool) []byte {
	h.Payload = len(payload)
	frame := make([]byte, MaxHeader, MaxHeader+len(payload)+MaxTrailer)
	n := h.Put(frame)
	frame = append(frame[:n], payload...)
	var tail [MaxTrailer]byte
	m := PutTrailer(tail[:], len(frame)-lengthSize, Checksum(0, frame), crc)
	return append(frame, tail[:m]...)
}

// TestChecksum: the checksums of RFC 3720, appendix B.4, in the byte order of iSCSI.
func TestChecksum(t *testing.T) {
	ascending := make([]byte, 32)
	for i := range ascending {
		ascending[i] = byte(i)
	}
	for want, data := range map[string][]byte{
		"aa36918a": make([]byte, 32),
		"43aba862": bytes.Repeat([]byte{0xff}, 32),
		"4e79dd46": ascending,
	} {
		// A segment of 34 bytes needs no padding; its length field counts as data here.
		b := make([]byte, MaxTrailer)
		n := PutTrailer(b, len(data)+2, Checksum(0, data), true)
		assert.DeepEqual(t, b[:n], unhex(t, want))
		assert.NilError(t, CheckTrailer(b[:n], Checksum(0, data)))
		assert.Equal(t, Checksum(Checksum(0, data[:7]), data[7:]), Checksum(0, data))
	}
}

// TestTrailer: the length of every frame is a multiple of 4. Its padding is 0 and included in the
// checksum, and a change of any bit is detected.
func TestTrailer(t *testing.T) {
	for payload := range 9 {
		frame := build(Header{Op: OpSend, Last: true, MSN: 1}, bytes.Repeat([]byte{0xEE}, payload), true)
		assert.Equal(t, len(frame)%4, 0)
		segment := untaggedSize + payload
		rest := lengthSize + segment
		assert.Equal(t, len(frame), rest+TrailerSize(segment))
		assert.Assert(t, TrailerSize(segment) <= MaxTrailer)
		pad := frame[rest : len(frame)-crcSize]
		assert.DeepEqual(t, pad, make([]byte, len(pad)))
		for bit := range len(frame) * 8 {
			wrong := bytes.Clone(frame)
			wrong[bit/8] ^= 1 << (bit % 8)
			assert.Equal(t, CheckTrailer(wrong[rest:], Checksum(0, wrong[:rest])), FaultCRC, "payload %d, bit %d", payload, bit)
		}
		off := build(Header{Op: OpSend, Last: true, MSN: 1}, bytes.Repeat([]byte{0xEE}, payload), false)
		assert.DeepEqual(t, off[:rest], frame[:rest])
		assert.DeepEqual(t, off[rest:], make([]byte, len(off)-rest))
	}
}

// TestLimits: a frame with the largest payload fits and has no padding. Four bytes more do not fit.
func TestLimits(t *testing.T) {
	for _, op := range []Opcode{OpWrite, OpReadResponse, OpSend} {
		for mss := MinMSS; mss < 70000; mss++ {
			segment := SegmentLimit(mss)
			n := PayloadLimit(op, segment)
			frame := lengthSize + ddpSize(op) + n + TrailerSize(ddpSize(op)+n)
			full := frame+4 > mss || segment+4 > MaxSegment
			if frame > mss || segment > MaxSegment || n%4 != 0 || padding(ddpSize(op)+n) != 0 || !full {
				t.Fatalf("%v, mss %d: segment %d, payload %d, frame %d", op, mss, segment, n, frame)
			}
		}
	}
	assert.Equal(t, PayloadLimit(OpWrite, MaxSegment), 65520)
	assert.Equal(t, PayloadLimit(OpSend, MaxSegment), 65516)
	for _, mss := range []int{-1, 0, 1, MinMSS - 1} {
		assert.Equal(t, SegmentLimit(mss), SegmentLimit(MinMSS))
	}
	for limit := leastSegment; limit <= MaxSegment; limit++ { // the limits for which a peer of this library may ask
		n := PayloadLimit(OpSend, limit)
		assert.Assert(t, n >= 1024 && n%4 == 0 && n+untaggedSize <= limit)
	}
}
