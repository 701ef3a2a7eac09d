package iwarp

import (
	"encoding/binary"
)

// Sizes of the set-up's two frames.
const (
	SetupHeaderSize = 20
	MaxSetupSize    = SetupHeaderSize + maxSetupData

	maxSetupData = 512
	depthsSize   = 4
	keySize      = 16
	keyRequest   = "MPA ID Req Frame"
	keyReply     = "MPA ID Rep Frame"
)

// MaxPrivateKernel is the most private data, in bytes, that soft-iWARP (Linux 6.1) accepts and
// sends. Soft-iWARP resets a connection whose request has more than 252 bytes. A reply with more
// than 252 bytes makes it use a NULL pointer in the kernel, so such a reply may go only to an end
// of this library.
const MaxPrivateKernel = 251

// MaxDepth is the largest read depth that a set-up can carry.
const MaxDepth = 1<<14 - 1

// Bits of the set-up.
const (
	flagMarkers      = 0x80
	flagCRC          = 0x40
	flagReject       = 0x20
	flagEnhanced     = 0x10
	flagNow          = 0x08 // with one of the two flags below: this version of what they promise
	flagExtended     = 0x04 // of a request
	flagExtendedBack = 0x02 // of a reply
	flagBusy         = 0x01 // of an extended reply that rejects

	wordPeerToPeer = 0x8000 // of the first word
	wordReadyWrite = 0x8000 // of the second word
	wordReadyRead  = 0x4000
)

// Setup is the request of the initiator or the reply of the responder.
type Setup struct {
	Reply    bool
	Revision uint8 // 1 or 2
	Markers  bool  // the sender wants markers in the stream that it receives; this library refuses that
	CRC      bool  // the sender wants checksums; both ends use them if either wants them
	Reject   bool  // only in a reply
	Extended bool  // the sender is an end of this library; in a reply: both ends are
	Busy     bool  // the library rejects, not the program; only in an extended reply
	Outdated bool  // the sender is an end of an older version of this library, whose frames are others

	// Enhanced says that the frame has the fields below, up to ReadyRead (revision 2 only). A reply
	// must be enhanced if its request is enhanced, and must not be enhanced otherwise, because
	// soft-iWARP does not check whether a reply is enhanced. This also holds for replies that reject.
	Enhanced   bool
	In, Out    uint16 // largest numbers of reads and atomics that the sender serves and starts, at most MaxDepth
	PeerToPeer bool   // both ends may send first: the initiator's first frame is a ready message
	ReadyWrite bool   // the sender can use a write of 0 bytes as the ready message
	ReadyRead  bool   // the same for a read of 0 bytes

	// Private is the program's data. ParseSetup sets it to a part of its argument, not a copy.
	Private []byte
}

// SetupSize returns the length of a request (or reply) that begins with the SetupHeaderSize bytes
// of head. If head is shorter, SetupSize checks the bytes that head has, and returns
// SetupHeaderSize. So the first byte can show that the peer does not use MPA.
func SetupSize(head []byte, reply bool) (int, error) {
	key := keyRequest
	if reply {
		key = keyReply
	}
	for i := range min(len(head), keySize) {
		if head[i] != key[i] {
			return 0, fault(FaultSetup, "it begins with %q, not with MPA's %q", head, key)
		}
	}
	if len(head) < SetupHeaderSize {
		return SetupHeaderSize, nil
	}
	if rev := head[17]; rev < 1 || rev > 2 {
		return 0, fault(FaultSetup, "revision %d, only 1 and 2 are known", rev)
	}
	n := int(binary.BigEndian.Uint16(head[18:]))
	if n > maxSetupData {
		return 0, fault(FaultSetup, "%d bytes of private data, the limit is %d", n, maxSetupData)
	}
	return SetupHeaderSize + n, nil
}

// ParseSetup decodes a whole request or reply.
func ParseSetup(frame []byte, reply bool) (Setup, error) {
	n, err := SetupSize(frame[:min(len(frame), SetupHeaderSize)], reply)
	if err != nil {
		return Setup{}, err
	}
	if n != len(frame) {
		return Setup{}, fault(FaultSetup, "%d bytes, not %d", len(frame), n)
	}
	flags, extended := frame[16], byte(flagExtended)
	s := Setup{
		Reply: reply, Revision: frame[17], Private: frame[SetupHeaderSize:],
		Markers: flags&flagMarkers != 0, CRC: flags&flagCRC != 0,
	}
	if reply {
		s.Reject = flags&flagReject != 0
		extended = flagExtendedBack
	}
	if flags&(flagExtended|flagExtendedBack) == extended {
		s.Extended = flags&flagNow != 0
		s.Outdated = !s.Extended
	}
	s.Busy = s.Reject && s.Extended && flags&flagBusy != 0
	if s.Revision == 1 || flags&flagEnhanced == 0 {
		return s, nil
	}
	if len(s.Private) < depthsSize {
		return Setup{}, fault(FaultSetup, "it is enhanced, but has %d bytes instead of the read depths", len(s.Private))
	}
	first, second := binary.BigEndian.Uint16(s.Private), binary.BigEndian.Uint16(s.Private[2:])
	s.Enhanced, s.In, s.Out, s.Private = true, first&MaxDepth, second&MaxDepth, s.Private[depthsSize:]
	s.PeerToPeer = first&wordPeerToPeer != 0
	s.ReadyWrite, s.ReadyRead = second&wordReadyWrite != 0, second&wordReadyRead != 0
	return s, nil
}

// Append appends the encoding of s to dst. It fails if the revision of s does not allow one of its
// fields.
func (s *Setup) Append(dst []byte) ([]byte, error) {
	n, key, extended := len(s.Private), keyRequest, uint16(flagExtended|flagNow)
	if s.Enhanced {
		n += depthsSize
	}
	if s.Reply {
		key, extended = keyReply, flagExtendedBack|flagNow
	}
	switch {
	case s.Revision < 1 || s.Revision > 2:
		return nil, fault(FaultSetup, "revision %d, only 1 and 2 are known", s.Revision)
	case n > maxSetupData:
		return nil, fault(FaultSetup, "%d bytes of private data, the limit is %d", len(s.Private),
			maxSetupData-(n-len(s.Private)))
	case s.Reject && !s.Reply:
		return nil, fault(FaultSetup, "a request cannot reject")
	case s.Enhanced && s.Revision == 1:
		return nil, fault(FaultSetup, "revision 1 is not enhanced")
	case s.In > MaxDepth || s.Out > MaxDepth:
		return nil, fault(FaultSetup, "read depths %d and %d, the limit is %d", s.In, s.Out, MaxDepth)
	}
	flags := bit(s.Markers, flagMarkers) | bit(s.CRC, flagCRC) | bit(s.Reject, flagReject) |
		bit(s.Enhanced, flagEnhanced) | bit(s.Extended, extended) |
		bit(s.Busy && s.Reject && s.Extended, flagBusy)
	dst = append(append(dst, key...), byte(flags), s.Revision)
	dst = binary.BigEndian.AppendUint16(dst, uint16(n))
	if s.Enhanced {
		first := s.In | bit(s.PeerToPeer, wordPeerToPeer)
		second := s.Out | bit(s.ReadyWrite, wordReadyWrite) | bit(s.ReadyRead, wordReadyRead)
		dst = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(dst, first), second)
	}
	return append(dst, s.Private...), nil
}

// bit returns mask if on is true, else 0.
func bit(on bool, mask uint16) uint16 {
	if on {
		return mask
	}
	return 0
}
