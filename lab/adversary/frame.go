//go:build linux

package main

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
)

// This file is a codec of its own: it is written from RFC 5040, 5041, 5044, 6581 and 7306, and from
// docs/tcp.md, and uses nothing of the package that it tests.

// The opcodes of RDMAP.
const (
	opWrite = iota
	opReadRequest
	opReadResponse
	opSend
	opSendInv
	opSendSE
	opSendSEInv
	opTerminate
	opImmediate
	opImmediateSE
	opAtomicRequest
	opAtomicResponse
	opSendImm
	opSendSEImm
	opUnused
	opControl
)

var opNames = [...]string{"write", "read-request", "read-response", "send", "send-inv", "send-se", "send-se-inv",
	"terminate", "immediate", "immediate-se", "atomic-request", "atomic-response", "send-imm", "send-se-imm", "unused",
	"control"}

// Sizes of headers, with the frame's length field.
const (
	taggedHead   = 16
	untaggedHead = 20
)

// frame is a frame without its trailer: 2 bytes of length, the headers, the payload.
type frame struct {
	bytes []byte
	head  int
	sum   uint32 // this is added to the checksum
	pad   byte   // the padding consists of this
	cut   int    // of the encoded frame, this many bytes are sent, and then nothing more; 0: all
}

func (f *frame) op() int { return int(f.bytes[3] & 15) }

func (f *frame) payload() []byte { return f.bytes[f.head:] }

func (f *frame) clone() *frame {
	c := *f
	c.bytes = append([]byte(nil), f.bytes...)
	return &c
}

// fit sets the length field to the size of the frame.
func (f *frame) fit() *frame {
	binary.BigEndian.PutUint16(f.bytes, uint16(len(f.bytes)-2))
	return f
}

func (f *frame) String() string {
	head := f.bytes[2:min(f.head, len(f.bytes))]
	return fmt.Sprintf("%s %x +%d", opNames[f.op()], head, len(f.bytes)-f.head)
}

// tainted reports whether the frame may put pattern.Secret into memory of the target: headers come
// as payload if the length is wrong, and an atomic writes what the frame says.
func (f *frame) tainted() bool {
	if int(binary.BigEndian.Uint16(f.bytes)) != len(f.bytes)-2 || headOf(f.bytes) != f.head {
		return true
	}
	if f.op() == opAtomicRequest && len(f.bytes) >= 72 {
		for at := 40; at < 72; at += 8 {
			if v := f.get(field{at, 8}); v > 1 && v+1 != 0 || at == 40 && v > 1 {
				return true
			}
		}
	}
	return false
}

// headOf returns how long the headers are of the frame that begins with b.
func headOf(b []byte) int {
	if b[2]&0x80 != 0 {
		return taggedHead
	}
	n := untaggedHead
	for _, x := range moreFields[int(b[3]&15)] {
		n = x.at + x.size
	}
	return n
}

// The numbers of a frame: offset and size in bytes.
type field struct{ at, size int }

var (
	taggedFields   = []field{{0, 2}, {4, 4}, {8, 8}}
	untaggedFields = []field{{0, 2}, {4, 4}, {8, 4}, {12, 4}, {16, 4}}
	moreFields     = map[int][]field{
		opReadRequest:    {{20, 4}, {24, 8}, {32, 4}, {36, 4}, {40, 8}},
		opImmediate:      {{20, 8}},
		opImmediateSE:    {{20, 8}},
		opAtomicRequest:  {{20, 4}, {24, 4}, {28, 4}, {32, 8}, {40, 8}, {48, 8}, {56, 8}, {64, 8}},
		opAtomicResponse: {{20, 4}, {24, 8}},
		opControl:        {{20, 4}, {24, 8}},
	}
)

func (f *frame) fields() []field {
	if f.bytes[2]&0x80 != 0 {
		return taggedFields
	}
	all := untaggedFields
	for _, x := range moreFields[f.op()] {
		if x.at+x.size <= len(f.bytes) {
			all = append(all[:len(all):len(all)], x)
		}
	}
	return all
}

func (f *frame) get(x field) (v uint64) {
	for _, b := range f.bytes[x.at : x.at+x.size] {
		v = v<<8 | uint64(b)
	}
	return v
}

func (f *frame) set(x field, v uint64) {
	for i := x.at + x.size - 1; i >= x.at; i-- {
		f.bytes[i] = byte(v)
		v >>= 8
	}
}

const lastBit = 0x40

func control(op int, last bool, tagged byte) []byte {
	b := []byte{0, 0, tagged | 1, 0x40 | byte(op)}
	if last {
		b[2] |= lastBit
	}
	return b
}

func tagged(op int, last bool, key uint32, at uint64, data []byte) *frame {
	b := binary.BigEndian.AppendUint32(control(op, last, 0x80), key)
	b = binary.BigEndian.AppendUint64(b, at)
	return (&frame{bytes: append(b, data...), head: taggedHead}).fit()
}

// untagged makes a frame of an untagged message; more is the header of RDMAP.
func untagged(op int, last bool, word, queue, number, offset uint32, more, data []byte) *frame {
	b := control(op, last, 0)
	for _, v := range []uint32{word, queue, number, offset} {
		b = binary.BigEndian.AppendUint32(b, v)
	}
	b = append(append(b, more...), data...)
	return (&frame{bytes: b, head: untaggedHead + len(more)}).fit()
}

func readRequest(number, sink uint32, sinkAt uint64, n, key uint32, at uint64) *frame {
	b := binary.BigEndian.AppendUint32(nil, sink)
	b = binary.BigEndian.AppendUint64(b, sinkAt)
	b = binary.BigEndian.AppendUint32(b, n)
	b = binary.BigEndian.AppendUint32(b, key)
	b = binary.BigEndian.AppendUint64(b, at)
	return untagged(opReadRequest, true, 0, 1, number, 0, b, nil)
}

// atomic makes a fetch-and-add (kind 0) or a compare-and-swap (kind 2).
func atomic(number, kind, id, key uint32, at, operand, compare uint64) *frame {
	mask := uint64(0)
	if kind == 2 {
		mask = 1<<64 - 1
	}
	b := binary.BigEndian.AppendUint32(nil, kind)
	b = binary.BigEndian.AppendUint32(b, id)
	b = binary.BigEndian.AppendUint32(b, key)
	for _, v := range []uint64{at, operand, mask, compare, mask} {
		b = binary.BigEndian.AppendUint64(b, v)
	}
	return untagged(opAtomicRequest, true, 0, 1, number, 0, b, nil)
}

func atomicResponse(number, id uint32, old uint64) *frame {
	b := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(nil, id), old)
	return untagged(opAtomicResponse, true, 0, 3, number, 0, b, nil)
}

func immediate(op int, number uint32, value uint64) *frame {
	return untagged(op, true, 0, 0, number, 0, binary.BigEndian.AppendUint64(nil, value), nil)
}

func terminate(fault uint16) *frame {
	b := binary.BigEndian.AppendUint16(nil, fault)
	return untagged(opTerminate, true, 0, 2, 1, 0, nil, append(b, 0, 0))
}

// wordField is the word of an untagged frame.
var wordField = field{4, 4}

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
	setupKeys  = [2]string{"MPA ID Req Frame", "MPA ID Rep Frame"}
)

// encode returns the whole frame.
func (f *frame) encode(sums bool) []byte {
	b := append([]byte(nil), f.bytes...)
	for len(b)%4 != 0 {
		b = append(b, f.pad)
	}
	sum := f.sum
	if sums {
		sum += crc32.Checksum(b, castagnoli)
	}
	b = binary.LittleEndian.AppendUint32(b, sum)
	if f.cut > 0 && f.cut < len(b) {
		b = b[:f.cut]
	}
	return b
}

// readFrame reads a frame and checks what each frame must have.
func readFrame(r *bufio.Reader, sums bool) (*frame, error) {
	var length [2]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return nil, err
	}
	n := 2 + int(binary.BigEndian.Uint16(length[:]))
	b := make([]byte, (n+3)&^3+4)
	copy(b, length[:])
	if _, err := io.ReadFull(r, b[2:]); err != nil {
		return nil, err
	}
	end := len(b) - 4
	want := uint32(0)
	if sums {
		want = crc32.Checksum(b[:end], castagnoli)
	}
	if got := binary.LittleEndian.Uint32(b[end:]); got != want {
		return nil, finding("a frame of the target has the checksum %08x, not %08x", got, want)
	}
	for _, pad := range b[n:end] {
		if pad != 0 {
			return nil, finding("a frame of the target has padding that is not zero")
		}
	}
	f := &frame{bytes: b[:n]}
	if n < taggedHead || b[2]&3 != 1 || b[3]>>6 != 1 {
		return nil, finding("a frame of the target has the headers %x", b[:min(n, 20)])
	}
	f.head = headOf(b)
	if f.op() == opUnused || n < f.head || (b[2]&0x80 != 0) != (f.op() == opWrite || f.op() == opReadResponse) {
		return nil, finding("a frame of the target has the headers %x", b[:min(n, 20)])
	}
	return f, nil
}

// setup is a request or a reply of MPA.
type setup struct {
	reply           bool
	flags, revision byte
	length          int // that the frame names, if not the true one; -1: the true one
	in, out         uint16
	private         []byte
	enhanced        bool
}

const (
	flagMarkers  = 0x80
	flagSums     = 0x40
	flagReject   = 0x20
	flagEnhanced = 0x10
	flagOwn      = 0x04 // of a request
	flagVersion  = 0x08
	flagOwnBack  = 0x02 // of a reply
)

func (s *setup) encode() []byte {
	key := setupKeys[0]
	if s.reply {
		key = setupKeys[1]
	}
	var body []byte
	if s.enhanced {
		body = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, s.in), s.out)
	}
	body = append(body, s.private...)
	n := len(body)
	if s.length >= 0 {
		n = s.length
	}
	b := append([]byte(key), s.flags, s.revision)
	return append(binary.BigEndian.AppendUint16(b, uint16(n)), body...)
}

func readSetup(r *bufio.Reader, reply bool) (*setup, error) {
	head := make([]byte, 20)
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, err
	}
	key := setupKeys[0]
	if reply {
		key = setupKeys[1]
	}
	n := int(binary.BigEndian.Uint16(head[18:]))
	if string(head[:16]) != key || n > 512 || head[17] < 1 || head[17] > 2 {
		return nil, finding("a set-up of the target begins with %q", head)
	}
	s := &setup{reply: reply, flags: head[16], revision: head[17], private: make([]byte, n), length: -1}
	if _, err := io.ReadFull(r, s.private); err != nil {
		return nil, err
	}
	if s.flags&flagEnhanced != 0 {
		if n < 4 {
			return nil, finding("an enhanced set-up of the target has %d bytes", n)
		}
		s.enhanced = true
		s.in, s.out = binary.BigEndian.Uint16(s.private)&0x3FFF, binary.BigEndian.Uint16(s.private[2:])&0x3FFF
		s.private = s.private[4:]
	}
	return s, nil
}
