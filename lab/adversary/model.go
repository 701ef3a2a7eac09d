//go:build linux

package main

import (
	"bytes"
	"encoding/binary"

	"github.com/godat/godat/lab/adversary/pattern"
)

// model is what a legal peer knows: what it has sent and what may come. After a change the rules of
// order are not checked any more, but those of content always are.
type model struct {
	in, out int // reads and atomics that this end serves, and may have under way

	// What this end has sent.
	sends, requests, answers uint32 // numbers of the latest messages
	reads                    []*ask // this end's reads and atomics under way, oldest first
	keys                     uint32 // of those
	// What the target has sent.
	theirSends, theirRequests uint32
	asked                     []*ask // reads and atomics of the target, oldest first
	past                      []*ask // the latest of those that have been answered
	message                   uint64 // the number of the message that comes
	numbered                  bool   // it is known
	offset                    int    // bytes of the incomplete send
	open                      bool

	flow
}

// ask is a read or an atomic that waits for its answer.
type ask struct {
	atomic bool
	key    uint32 // the sink's key, or the id
	at     uint64
	length int
	done   int
}

// receive checks a frame of the target and takes it into the model.
func (p *peer) receive(f *frame) error {
	if err := p.content(f); err != nil {
		return err
	}
	if err := p.incoming(f); err != nil {
		return err
	}
	switch op := f.op(); op {
	case opWrite:
		if f.bytes[2]&lastBit != 0 {
			p.executedOne()
		}
	case opReadRequest, opAtomicRequest:
		return p.askedFor(f)
	case opReadResponse, opAtomicResponse:
		return p.answered(f)
	case opTerminate:
		fault := uint16(f.bytes[f.head])<<8 | uint16(f.bytes[f.head+1])
		if p.honest() && fault != faultTooLong && (p.own || fault != faultNoBuffer) {
			return finding("the target terminates a legal conversation: %x", f.payload())
		}
		return nil
	case opControl:
		return p.controlled(f)
	default:
		return p.delivered(f)
	}
	return nil
}

// Faults that a peer may cause by what is legal.
const (
	faultNoBuffer = 0x1202
	faultTooLong  = 0x1205
)

// content checks that the payload of a frame is what the target has posted.
func (p *peer) content(f *frame) error {
	data := f.payload()
	secret := []byte{pattern.Secret, pattern.Secret, pattern.Secret, pattern.Secret, pattern.Secret}
	if !p.tainted {
		secret = secret[:1]
	}
	if f.op() != opTerminate && bytes.Contains(data, secret) {
		return finding("memory that was not posted came in a %v", f)
	}
	off := int(f.get(field{16, 4}))
	switch f.op() {
	case opWrite:
		at := f.get(field{8, 8})
		p.message, p.numbered, off = at>>32, true, int(uint32(at))
		if n, ok := pattern.Number(data); off == 0 && ok && n != p.message {
			return finding("a write has the data of message %d, not %d: %v", n, p.message, f)
		}
	case opSend, opSendInv, opSendSE, opSendSEInv, opSendImm, opSendSEImm:
		if off == 0 {
			p.message, p.numbered = pattern.Number(data)
		}
	default:
		return nil
	}
	if i := pattern.Wrong(data, p.message, off); p.numbered && i >= 0 {
		return finding("byte %d is not that of message %d: %v", off+i, p.message, f)
	}
	return nil
}

func (p *peer) delivered(f *frame) error {
	last := f.bytes[2]&lastBit != 0
	number, off := uint32(f.get(field{12, 4})), int(f.get(field{16, 4}))
	want := p.theirSends + 1
	if p.open {
		want--
	}
	if p.honest() && (number != want || off != p.offset) {
		return finding("a send has the number %d and the offset %d, want %d and %d", number, off, want, p.offset)
	}
	p.theirSends = number
	if !p.open {
		if err := p.begins(); err != nil {
			return err
		}
	}
	p.offset += len(f.payload())
	p.open = !last
	if last {
		p.offset = 0
		p.executedOne()
	}
	return nil
}

func (p *peer) askedFor(f *frame) error {
	number := uint32(f.get(field{12, 4}))
	if p.honest() && number != p.theirRequests+1 {
		return finding("a request has the number %d, want %d", number, p.theirRequests+1)
	}
	p.theirRequests = number
	a := &ask{atomic: f.op() == opAtomicRequest}
	if a.atomic {
		a.key = uint32(f.get(field{24, 4}))
	} else {
		a.key, a.at, a.length = uint32(f.get(field{20, 4})), f.get(field{24, 8}), int(f.get(field{32, 4}))
	}
	p.asked = append(p.asked, a)
	if p.honest() && len(p.asked) > p.in {
		return finding("%d reads of the target are under way, the depth is %d", len(p.asked), p.in)
	}
	p.executedOne()
	return nil
}

func (p *peer) answered(f *frame) error {
	if len(p.reads) == 0 {
		if p.honest() {
			return finding("an answer without a read: %v", f)
		}
		return nil
	}
	a := p.reads[0]
	if f.op() == opAtomicResponse {
		if p.honest() && (!a.atomic || uint32(f.get(field{20, 4})) != a.key) {
			return finding("an answer to another atomic: %v", f)
		}
		p.reads = p.reads[1:]
		return nil
	}
	if p.honest() && (a.atomic || uint32(f.get(field{4, 4})) != a.key || f.get(field{8, 8}) != a.at+uint64(a.done)) {
		return finding("an answer to another read: %v", f)
	}
	if a.done += len(f.payload()); f.bytes[2]&lastBit != 0 {
		if p.honest() && a.done != a.length {
			return finding("an answer of %d bytes to a read of %d", a.done, a.length)
		}
		p.reads = p.reads[1:]
	}
	return nil
}

// nextAnswer returns a frame of the answer to the target's oldest read or atomic.
func (p *peer) nextAnswer() *frame {
	a := p.asked[0]
	if a.atomic {
		p.leaves()
		p.answers++
		return atomicResponse(p.answers, a.key, 0xE1E2E3E4E5E6E7E8)
	}
	n := min(a.length-a.done, p.segment(taggedHead))
	if n > 1 && p.rnd.IntN(6) == 0 {
		n = 1 + p.rnd.IntN(n-1)
	}
	last := a.done+n == a.length
	f := tagged(opReadResponse, last, a.key, a.at+uint64(a.done), foreign(n))
	if a.done += n; last {
		p.leaves()
	}
	return f
}

// leaves takes the oldest read or atomic of the target, which has its answer, out of those asked.
func (p *peer) leaves() {
	p.past = append(p.past, p.asked[0])
	p.past, p.asked = p.past[max(0, len(p.past)-p.in):], p.asked[1:]
}

// again is the change that the target gets a second answer, with nothing asked: to one of as many
// reads and atomics as it may have under way.
func (p *peer) again() {
	if len(p.past) == 0 || !p.enabled[changeAgain] || p.rnd.Float64() >= p.chance {
		return
	}
	a := *p.past[p.rnd.IntN(len(p.past))]
	p.change("a second answer to %x", a.key)
	a.done = 0
	p.asked = append(p.asked, &a)
}

// segment returns the most payload that a frame may have.
func (p *peer) segment(head int) int { return p.most - head }

// foreign returns n bytes of the adversary.
func foreign(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = pattern.Foreign(i)
	}
	return b
}

func immediateValue(v uint32) uint64 { return uint64(v) }

func controlFrame(number uint32, kind byte, value uint64) *frame {
	b := binary.BigEndian.AppendUint64([]byte{kind, 0, 0, 0}, value)
	return untagged(opControl, true, 0, 4, number, 0, b, nil)
}
