package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// Sizes of the traffic.
const (
	window   = 8    // messages that a sender has in flight before it needs an acknowledgment
	slotSize = 6000 // bytes of the largest payload: several packets, the last one short
	headSize = 64
	fullSize = headSize + slotSize // of a message with the largest payload
)

type messageKind uint8

// Kinds of messages. A message hello opens a link and grants memory to the peer. A message ack
// returns credits.
const (
	hello messageKind = iota + 1
	data
	ack
)

// header begins every message. The payload of a data message follows the header in the same
// message, or is in the memory that the kind of the link determines.
type header struct {
	kind    messageKind
	link    uint8
	seq     uint64 // of data, from 0; of an ack: how many messages have been taken
	length  uint32 // of the payload
	sum     uint32 // of the payload
	context uint32 // hello: the grant
	address uint64
	size    uint64
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func sum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

func (h *header) put(b []byte) {
	b[0], b[1] = byte(h.kind), h.link
	le := binary.LittleEndian
	le.PutUint64(b[8:], h.seq)
	le.PutUint32(b[16:], h.length)
	le.PutUint32(b[20:], h.sum)
	le.PutUint32(b[24:], h.context)
	le.PutUint64(b[32:], h.address)
	le.PutUint64(b[40:], h.size)
	le.PutUint32(b[headSize-4:], sum(b[:headSize-4]))
}

func parseHeader(b []byte) (header, error) {
	if len(b) < headSize {
		return header{}, fmt.Errorf("a message of %d bytes, must be at least %d", len(b), headSize)
	}
	le := binary.LittleEndian
	if le.Uint32(b[headSize-4:]) != sum(b[:headSize-4]) {
		return header{}, errors.New("the checksum of a header is wrong")
	}
	return header{kind: messageKind(b[0]), link: b[1], seq: le.Uint64(b[8:]), length: le.Uint32(b[16:]),
		sum: le.Uint32(b[20:]), context: le.Uint32(b[24:]), address: le.Uint64(b[32:]), size: le.Uint64(b[40:])}, nil
}

// fill writes the payload of message seq of a link: bytes that no other message has.
func fill(b []byte, link uint8, seq uint64) {
	x := seq*0x9e3779b97f4a7c15 ^ uint64(link)<<56 | 1
	for i := range b {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		b[i] = byte(x)
	}
}

// payloadLength returns the length of message seq, from 1 to slotSize.
func payloadLength(seq uint64) int {
	switch seq % 5 {
	case 0:
		return 1 + int(seq*37%128)
	case 1:
		return slotSize
	}
	return 1 + int(seq*2654435761>>7%slotSize)
}
