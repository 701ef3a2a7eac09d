package iwarp

import (
	"fmt"
	"math"
	"testing"

	"gotest.tools/v3/assert"
)

// TestTerminate: payloads written by hand from RFC 5040 section 4.8.
func TestTerminate(t *testing.T) {
	const write = "0012 c1 40 11223344 0102030405060708"
	const send = "0015 01 43 00000000 00000000 00000009 00000578"
	const read = "002e 41 41 00000000 00000001 00000007 00000000" +
		"aabbccdd 1111111122222222 00010000 99887766 3333333344444444"
	for name, c := range map[string]struct {
		fault       Fault
		frame, want string
	}{
		"no frame":                      {FaultStream, "", "0207 0000"},
		"MPA says nothing of the frame": {FaultCRC, write, "2002 0000"},
		"write":                         {FaultTaggedBounds, write, "1101 c000" + write},
		"send":                          {FaultNoBuffer, send, "1202 c000" + send},
		"read request":                  {FaultAccess, read, "0102 e000" + read},
		"send with payload": {FaultTooLong, send + "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
			"1205 c000" + send},
		"half a frame": {FaultOpcode, send[:8], "0206 0000"},
	} {
		t.Run(name, func(t *testing.T) {
			var b [MaxTerminate]byte
			got := b[:PutTerminate(b[:], c.fault, unhex(t, c.frame))]
			assert.DeepEqual(t, got, unhex(t, c.want))
			parsed, err := ParseTerminate(got)
			assert.NilError(t, err)
			assert.Equal(t, parsed, c.fault)
			for n := range got { // the fault is known from 4 bytes on
				parsed, err := ParseTerminate(got[:n])
				if n < 4 {
					assert.ErrorIs(t, err, FaultLength)
				} else {
					assert.NilError(t, err)
					assert.Equal(t, parsed, c.fault)
				}
			}
		})
	}
}

// TestTerminateOfSoftIWARP: messages that the kernel's soft-iWARP (Linux 6.1, amd64) has sent.
func TestTerminateOfSoftIWARP(t *testing.T) {
	for name, c := range map[string]struct {
		payload string
		want    Fault
	}{
		"a write to an unknown key": {"11000300 0004 c140 00000bad 0000000000000000",
			FaultTaggedKey},
		"a send without a receive": {"21020300 0004 4143 00000000 00000000 00000001 00000000",
			FaultNoBuffer},
		"a read of an unknown key": {"10000700 0000 4141 00000000 00000001 00000004 00000000" +
			"00000000 0000000000000000 00000004 00000bad 0000000000000000",
			FaultKey},
		"an answer that it did not ask for": {"01000300 0004 c142 00000bad 0000000000000000",
			FaultDDP},
	} {
		got, err := ParseTerminate(unhex(t, c.payload))
		assert.NilError(t, err)
		assert.Equal(t, got, c.want, name)
	}
}

func TestFaults(t *testing.T) {
	for f, want := range map[Fault]string{
		FaultAccess: "RDMAP: access right missing", FaultNoBuffer: "DDP: no receive posted",
		0x0100: "RDMAP: invalid key", 0x01FF: "RDMAP: protection error", 0x0208: "RDMAP: catastrophic error",
		FaultCRC: "MPA: wrong checksum", 0x1234: "DDP: type 2, code 52", 0xFFFF: "layer 15: type 15, code 255",
	} {
		assert.Equal(t, f.Error(), want)
	}
	assert.Error(t, fault(FaultQueue, "%d", 7), "DDP: invalid queue number: 7")
}

// FuzzTerminate: any terminate of a peer is a fault with a text.
func FuzzTerminate(f *testing.F) {
	for _, c := range frames {
		var head [MaxHeader]byte
		var b [MaxTerminate]byte
		n := c.header.Put(head[:])
		f.Add(b[:PutTerminate(b[:], FaultAccess, head[:n])])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := ParseTerminate(b)
		if err != nil {
			assert.Assert(t, len(b) < 4)
			return
		}
		assert.Assert(t, got.Error() != "")
	})
}

func TestHello(t *testing.T) {
	for v, want := range map[uint64]Hello{
		0x02_00_0000_FFFF_0000: {Segment: MaxSegment},
		0x02_00_8000_FFFF_0004: {Segment: MaxSegment, Window: 0x8000, Limit: 4},
		0x02_01_0010_0448_0000: {Segment: leastSegment, Window: 16, Shared: true},
	} {
		got, err := ParseHello(v)
		assert.NilError(t, err)
		assert.Equal(t, got, want)
		assert.Equal(t, got.Value(), v)
	}
	for v, want := range map[uint64]string{
		0x00_00_0009_FFFF_0000: "version 0",
		0x01_00_0009_FFFF_0000: "version 1",
		0x02_00_0009_0447_0000: fmt.Sprintf("segments of 1095 bytes, at least %d", leastSegment),
		0x02_00_0009_FFFF_000A: "limit 10, its window is 9",
		0x02_01_0009_FFFF_0001: "limit 1",
	} {
		_, err := ParseHello(v)
		assert.ErrorContains(t, err, want)
		assert.ErrorIs(t, err, FaultOperation)
	}
	later, err := ParseHello(0xFF_FE_FFFF_FFFF_FFFF) // of a later version
	assert.NilError(t, err)
	assert.Equal(t, later, Hello{Segment: MaxSegment, Window: math.MaxUint16, Limit: math.MaxUint16})
	assert.Equal(t, fmt.Sprint(ControlHello, ControlGrant, Control(9)), "hello grant control message 9")
	executed, limit := ParseCounts(Counts(7, math.MaxUint32))
	assert.Equal(t, executed, uint32(7))
	assert.Equal(t, limit, uint32(math.MaxUint32))
}
