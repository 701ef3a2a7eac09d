//go:build linux

package main

import (
	"time"

	"golang.org/x/sys/unix"
)

// flow is the part of the model that only two ends of this library have: acknowledgements, and the
// receives that a sender waits for. docs/tcp.md, "The wire", has its rules.
type flow struct {
	most     int    // the largest segment that the target takes
	controls uint32 // the number of the latest control message

	// This end executes the target's requests, and has receives for its messages.
	executed uint64 // requests of the target that are executed
	told     uint64 // of these, as many as the target knows
	shared   bool
	window   uint64
	limit    uint64 // the number of the last message that the target may send
	limitOut uint64 // as the target knows it
	owes     bool   // the target has asked, and has no grant yet
	wanted   uint64 // what it has asked for

	// The same of the target.
	posted      uint64 // requests of this end
	acked       uint64 // of these, as many as the target has acknowledged
	theirShared bool
	theirWindow uint64
	theirLimit  uint64
	asking      bool
	sought      uint64 // the last message that this end has asked a receive for
	messages    uint64 // of this end
	heard       uint64 // messages of the target
}

// The control messages.
const (
	controlHello = iota
	controlAck
	controlAsk
	controlGrant
)

const helloVersion = 2 << 56

// greet sends this end's hello.
func (p *peer) greet() error {
	p.window = []uint64{1, 2, 4, 16, 300}[p.rnd.IntN(5)]
	flags := uint64(0)
	if p.shared = p.rnd.IntN(3) == 0; p.shared {
		p.window, flags = 16, 1<<48
	} else {
		p.limit = uint64(p.rnd.IntN(int(p.window) + 1))
	}
	p.limitOut = p.limit
	segment := uint64(1096 + p.rnd.IntN(65536-1096))
	return p.control(controlHello, helloVersion|flags|p.window<<32|segment<<16|p.limit)
}

func (p *peer) control(kind byte, value uint64) error {
	p.controls++
	return p.emit(controlFrame(p.controls, kind, value))
}

// counts returns the value of an acknowledgement or a grant.
func (p *peer) counts() uint64 {
	p.told, p.limitOut = max(p.told, p.executed), max(p.limitOut, p.limit)
	return p.told<<32 | p.limitOut&(1<<32-1)
}

// word returns what a send says of the target's requests: 16 bits executed, 16 bits limit.
func (p *peer) word() uint32 {
	counts := p.counts()
	return uint32(counts>>32)<<16 | uint32(uint16(counts))
}

// executedOne counts a request of the target.
func (p *peer) executedOne() { p.executed++ }

// message checks that the target may send the message that begins.
func (p *peer) begins() error {
	p.heard++
	if p.own && p.honest() && p.heard > p.limitOut {
		return finding("message %d of the target, the limit is %d", p.heard, p.limitOut)
	}
	return nil
}

// incoming takes the acknowledgement of a send.
func (p *peer) incoming(f *frame) error {
	if op := f.op(); p.own && (op == opSend || op == opSendSE) {
		word := uint32(f.get(wordField))
		if err := p.acknowledged(uint32(p.acked) + uint32(uint16(word>>16)-uint16(p.acked))); err != nil {
			return err
		}
		return p.limited(uint32(p.theirLimit) + uint32(uint16(word)-uint16(p.theirLimit)))
	}
	return nil
}

// since returns the number with this lower half that follows base.
func since(base uint64, lower uint32) uint64 { return base + uint64(lower-uint32(base)) }

func (p *peer) acknowledged(lower uint32) error {
	n := since(p.acked, lower)
	if n > p.posted {
		if p.honest() {
			return finding("the target acknowledges %d requests of %d, after %d", n, p.posted, p.acked)
		}
		return nil
	}
	p.acked = n
	return nil
}

// limited takes the target's limit.
func (p *peer) limited(lower uint32) error {
	n := since(p.theirLimit, lower)
	if n > p.messages+p.theirWindow || p.theirShared && n > p.sought {
		if p.honest() {
			return finding("the target's limit is %d after %d messages, its window %d, asked for %d", n, p.messages,
				p.theirWindow, p.sought)
		}
		return nil
	}
	p.theirLimit = n
	return nil
}

func (p *peer) controlled(f *frame) error {
	value := f.get(field{24, 8})
	switch f.bytes[20] {
	case controlHello:
		p.most = int(uint16(value >> 16))
		p.theirShared, p.theirWindow, p.theirLimit = value>>48&1 != 0, value>>32&0xFFFF, value&0xFFFF
		if value>>56 != 2 || p.most < 1096 || p.theirLimit > p.theirWindow || p.theirShared && p.theirLimit > 0 {
			return finding("a hello of the target: %x", value)
		}
		return nil
	case controlAsk:
		n := since(p.heard, uint32(value))
		if p.honest() && (p.owes || n == p.heard || n < p.wanted || n > p.heard+1<<15) {
			return finding("the target asks for message %d after %d; before it was %d, without an answer: %t", n, p.heard,
				p.wanted, p.owes)
		}
		p.owes, p.wanted = true, n
		return nil
	case controlGrant:
		if p.honest() && !p.asking {
			return finding("a grant of the target without an ask")
		}
		p.asking = false
	}
	if err := p.acknowledged(uint32(value >> 32)); err != nil {
		return err
	}
	return p.limited(uint32(value))
}

// request sends the frames of a request.
func (p *peer) request(frames ...*frame) error {
	p.posted++
	for _, f := range frames {
		if err := p.emit(f); err != nil {
			return err
		}
	}
	return nil
}

// may reports whether a request may be sent now that has so many messages.
func (p *peer) may(messages uint64) bool {
	return p.posted-p.acked < 64 && (!p.own || p.messages+messages <= p.theirLimit)
}

// flowStep does what the flow of messages asks for, or nothing.
func (p *peer) flowStep() error {
	most := p.heard + p.window
	if p.shared {
		most = min(most, p.wanted)
	}
	if p.limit < most && p.rnd.IntN(3) > 0 { // receives are posted
		p.limit += 1 + p.rnd.Uint64N(most-p.limit)
	}
	switch {
	case p.owes:
		p.owes = false
		return p.control(controlGrant, p.counts())
	case p.executed > p.told || p.limit > p.limitOut:
		return p.control(controlAck, p.counts())
	case !p.asking && p.messages == p.theirLimit && p.rnd.IntN(3) == 0:
		p.asking = true
		p.sought = max(p.sought, p.messages+1+p.rnd.Uint64N(40))
		return p.control(controlAsk, p.sought&(1<<32-1))
	}
	return nil
}

// tooEarly returns an acknowledgement of more than the latest one, and of more than this end has
// executed. A few in a row pass what the target has written by little.
func (p *peer) tooEarly() *frame {
	p.controls++
	was := max(p.told, p.executed)
	p.told = was + 1 + p.rnd.Uint64N([]uint64{1, 3, 30, 160, 1 << 31}[p.rnd.IntN(5)])
	p.change("early acknowledgement of %d after %d, of %d executed", p.told, was, p.executed)
	return controlFrame(p.controls, controlAck, p.counts())
}

// stall reads nothing until the target cannot write any more, and then acknowledges one request of
// the target after the other: so it passes what the target has written, but not what it has posted.
func (p *peer) stall() error {
	if p.rnd.Float64() >= p.chance*4 {
		return nil
	}
	for was, now := -1, 0; was != now; {
		was, now = now, p.unread()
		time.Sleep(stallTime)
	}
	most := 1 + p.rnd.IntN(100)
	p.change("%d early acknowledgements after %d of %d executed, with %d bytes not read", most, p.told, p.executed,
		p.unread())
	p.told = max(p.told, p.executed)
	for range most {
		p.controls++
		p.told++
		if err := p.put(controlFrame(p.controls, controlAck, p.counts())); err != nil {
			return err
		}
		time.Sleep(stallTime / 20)
	}
	p.paused = 0
	p.grow()
	return nil
}

// stallTime is how long a target that can write may take for it.
const stallTime = 5 * time.Millisecond

// unread returns how many bytes of the target wait in the socket.
func (p *peer) unread() (n int) {
	if raw, err := p.tcp.SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.TIOCINQ) })
	}
	return n
}

// lie returns a frame that says what is not so about the flow of messages.
func (p *peer) lie() *frame {
	p.controls++
	more := uint64(1 + p.rnd.IntN([]int{3, 30, 160, 1 << 31}[p.rnd.IntN(4)]))
	pair := func(executed, limit uint64) uint64 { return executed<<32 | limit&(1<<32-1) }
	kind := byte(controlAck + 2*p.rnd.IntN(2))
	switch p.rnd.IntN(7) {
	case 0:
		p.change("late acknowledgement: %d less than %d", more, p.told)
		return controlFrame(p.controls, kind, pair(p.told-more, p.limitOut))
	case 1:
		p.change("a limit too high: %d more than %d", more, p.heard+p.window)
		p.limitOut = p.heard + p.window + more
		return controlFrame(p.controls, kind, pair(p.told, p.limitOut))
	case 2:
		p.change("a limit that falls: %d less than %d", more, p.limitOut)
		return controlFrame(p.controls, kind, pair(p.told, p.limitOut-more))
	case 3:
		p.change("a grant, owed: %t", p.owes)
		p.owes = false
		return controlFrame(p.controls, controlGrant, p.counts())
	case 4:
		p.change("an ask, asking: %t, for %d after %d", p.asking, p.messages+more, p.sought)
		p.asking, p.sought = true, p.messages+more
		return controlFrame(p.controls, controlAsk, p.sought&(1<<32-1))
	case 5:
		n := p.messages - uint64(p.rnd.IntN(3))
		p.change("an ask for %d, of %d messages", n, p.messages)
		return controlFrame(p.controls, controlAsk, n&(1<<32-1))
	default:
		p.change("a hello again")
		return controlFrame(p.controls, controlHello, helloVersion|p.window<<32|65535<<16)
	}
}
