package iwarp

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

// unhex decodes hexadecimal digits, with spaces where the reader needs them.
func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(s), ""))
	assert.NilError(t, err)
	return b
}

const (
	hexRequest = "4d504120494420526571204672616d65" // "MPA ID Req Frame"
	hexReply   = "4d504120494420526570204672616d65" // "MPA ID Rep Frame"
)

// setups are frames written by hand from RFC 5044 section 7.1 and RFC 6581 sections 6 and 9.
var setups = []struct {
	name  string
	frame string
	setup Setup
}{
	{"revision 1, nothing wanted", hexRequest + "00 01 0000", Setup{Revision: 1, Private: []byte{}}},
	{"revision 1, markers, CRC and data", hexRequest + "c0 01 0003 616263",
		Setup{Revision: 1, Markers: true, CRC: true, Private: []byte("abc")}},
	{"revision 1, reject with data", hexReply + "60 01 0002 6e6f",
		Setup{Reply: true, Revision: 1, CRC: true, Reject: true, Private: []byte("no")}},
	{"revision 2 without depths", hexRequest + "00 02 0001 7a", Setup{Revision: 2, Private: []byte("z")}},
	{"revision 2 with depths", hexRequest + "10 02 0004 0010 0008",
		Setup{Revision: 2, Enhanced: true, In: 16, Out: 8, Private: []byte{}}},
	{"revision 2, peer to peer, ready by write or read", hexRequest + "50 02 0006 8001 c002 6869",
		Setup{Revision: 2, CRC: true, Enhanced: true, In: 1, Out: 2, PeerToPeer: true, ReadyWrite: true,
			ReadyRead: true, Private: []byte("hi")}},
	{"revision 2, largest depths", hexReply + "10 02 0004 bfff 3fff",
		Setup{Reply: true, Revision: 2, Enhanced: true, In: MaxDepth, Out: MaxDepth, PeerToPeer: true,
			Private: []byte{}}},
	{"this library's request", hexRequest + "1c 02 0004 8004 c005",
		Setup{Revision: 2, Extended: true, Enhanced: true, In: 4, Out: 5, PeerToPeer: true, ReadyWrite: true,
			ReadyRead: true, Private: []byte{}}},
	{"this library's reply", hexReply + "1a 02 0004 0004 0005",
		Setup{Reply: true, Revision: 2, Extended: true, Enhanced: true, In: 4, Out: 5, Private: []byte{}}},
}

func TestSetup(t *testing.T) {
	for _, c := range setups {
		t.Run(c.name, func(t *testing.T) {
			frame := unhex(t, c.frame)
			got, err := ParseSetup(frame, c.setup.Reply)
			assert.NilError(t, err)
			assert.DeepEqual(t, got, c.setup)
			built, err := c.setup.Append([]byte("before"))
			assert.NilError(t, err)
			assert.DeepEqual(t, built, append([]byte("before"), frame...))
		})
	}
}

// TestSetupRevision1: the bits and words of revision 2 mean nothing in revision 1.
func TestSetupRevision1(t *testing.T) {
	got, err := ParseSetup(unhex(t, hexRequest+"10 01 0004 80018002"), false)
	assert.NilError(t, err)
	assert.DeepEqual(t, got, Setup{Revision: 1, Private: []byte{0x80, 1, 0x80, 2}})
}

// TestSetupStrangers: only the bits that an end of this library sets are recognized. A reply of
// soft-iWARP, which returns the bits of the request, is not. An older version has other bits.
func TestSetupStrangers(t *testing.T) {
	for flags, extended := range map[byte][2]bool{0x10: {}, 0x14: {}, 0x12: {}, 0x16: {}, 0x18: {}, 0x1c: {true, false},
		0x1a: {false, true}, 0x1e: {}} {
		for i, key := range []string{hexRequest, hexReply} {
			got, err := ParseSetup(unhex(t, fmt.Sprintf("%s %02x 02 0004 00010001", key, flags)), i == 1)
			assert.NilError(t, err)
			assert.Equal(t, got.Extended, extended[i], "flags %02x, reply %d", flags, i)
			assert.Equal(t, got.Outdated, flags == []byte{0x14, 0x12}[i], "flags %02x, reply %d", flags, i)
		}
	}
}

func TestSetupRefused(t *testing.T) {
	good := hexRequest + "10 02 0004 00010001"
	for name, c := range map[string]struct {
		frame, want string
		reply       bool
	}{
		"another protocol":             {"474554202f20485454502f312e310d0a0d0a0d0a", `it begins with "GET / HTTP/1.1`, false},
		"a reply for a request":        {hexReply + "10 02 0004 00010001", `it begins with "MPA ID Rep Frame`, false},
		"a request for a reply":        {good, `, not with MPA's "MPA ID Rep Frame"`, true},
		"revision 0":                   {hexRequest + "00 00 0000", "revision 0, only 1 and 2", false},
		"revision 3":                   {hexRequest + "00 03 0000", "revision 3, only 1 and 2", false},
		"513 bytes":                    {hexRequest + "00 01 0201", "513 bytes of private data, the limit is 512", false},
		"65535 bytes":                  {hexRequest + "00 01 ffff", "65535 bytes of private data", false},
		"no depths":                    {hexRequest + "10 02 0000", "0 bytes instead of the read depths", false},
		"half of the depths":           {hexRequest + "10 02 0003 000100", "3 bytes instead of the read depths", false},
		"a header alone, data missing": {hexRequest + "00 01 0004", "20 bytes, not 24", false},
		"a byte too many":              {good + "00", "25 bytes, not 24", false},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParseSetup(unhex(t, c.frame), c.reply)
			assert.ErrorContains(t, err, c.want)
			assert.ErrorIs(t, err, FaultSetup)
		})
	}
}

// TestSetupPieces: the beginning of a frame is refused at its first wrong byte. Otherwise the whole
// header leads to the size of the frame.
func TestSetupPieces(t *testing.T) {
	frame := unhex(t, hexRequest+"10 02 0008 00010001 64617461")
	for n := range frame {
		size, err := SetupSize(frame[:min(n, SetupHeaderSize)], false)
		assert.NilError(t, err)
		if n < SetupHeaderSize {
			assert.Equal(t, size, SetupHeaderSize)
		} else {
			assert.Equal(t, size, len(frame))
		}
		_, err = ParseSetup(frame[:n], false)
		assert.ErrorIs(t, err, FaultSetup)
	}
	for n := range keySize {
		wrong := bytes.Clone(frame[:n+1])
		wrong[n] ^= 1
		_, err := SetupSize(wrong, false)
		assert.ErrorIs(t, err, FaultSetup)
	}
}

func TestSetupNotBuilt(t *testing.T) {
	for want, s := range map[string]Setup{
		"revision 0": {},
		"revision 3": {Revision: 3},
		"513 bytes of private data, the limit is 512": {Revision: 2, Private: make([]byte, 513)},
		"509 bytes of private data, the limit is 508": {Revision: 2, Enhanced: true, Private: make([]byte, 509)},
		"a request cannot reject":                     {Revision: 1, Reject: true},
		"revision 1 is not enhanced":                  {Revision: 1, Enhanced: true},
		"read depths 16384 and 0, the limit is 16383": {Revision: 2, Enhanced: true, In: 16384},
		"read depths 0 and 65535, the limit is 16383": {Revision: 2, Enhanced: true, Out: 65535},
	} {
		_, err := s.Append(nil)
		assert.ErrorContains(t, err, want)
	}
}

// TestSetupBusy: only an end of this library learns that the library has rejected, and not the
// program.
func TestSetupBusy(t *testing.T) {
	for _, extended := range []bool{false, true} {
		s := Setup{Reply: true, Revision: 2, Reject: true, Extended: extended, Busy: true}
		frame, err := s.Append(nil)
		assert.NilError(t, err)
		assert.Equal(t, frame[16]&flagBusy != 0, extended)
		got, err := ParseSetup(frame, true)
		assert.NilError(t, err)
		assert.Equal(t, got.Busy, extended)
	}
}

// TestSetupPrivate: private data of every length arrives whole, and a longer one is refused.
func TestSetupPrivate(t *testing.T) {
	for n := range maxSetupData - depthsSize + 1 {
		s := Setup{Revision: 2, Enhanced: true, In: 1, Private: bytes.Repeat([]byte{0xA5}, n)}
		frame, err := s.Append(nil)
		assert.NilError(t, err)
		got, err := ParseSetup(frame, false)
		assert.NilError(t, err)
		assert.DeepEqual(t, got, s)
		assert.Assert(t, len(frame) <= MaxSetupSize)
	}
}

// FuzzSetup: a set-up that is accepted is encoded to the same bytes, except for bits that mean
// nothing. The error for all others is FaultSetup.
func FuzzSetup(f *testing.F) {
	for _, c := range setups {
		frame, _ := c.setup.Append(nil)
		f.Add(frame, c.setup.Reply)
		f.Add(frame[:len(frame)-1], c.setup.Reply)
		f.Add(append(frame, 0), !c.setup.Reply)
	}
	f.Add([]byte{}, false)
	f.Fuzz(func(t *testing.T, frame []byte, reply bool) {
		s, err := ParseSetup(frame, reply)
		if err != nil {
			assert.Assert(t, errors.Is(err, FaultSetup))
			return
		}
		assert.Assert(t, s.In <= MaxDepth && s.Out <= MaxDepth && len(s.Private) <= maxSetupData)
		built, err := s.Append(nil)
		assert.NilError(t, err)
		assert.Equal(t, len(built), len(frame))
		again, err := ParseSetup(built, reply)
		assert.NilError(t, err)
		assert.Assert(t, reflect.DeepEqual(again, s))
		n, err := SetupSize(frame[:SetupHeaderSize], reply)
		assert.Assert(t, err == nil && n == len(frame))
	})
}
