//go:build linux

package main

// flow is the part of the model that only two ends of this library have: acknowledgements, and what
// happens to a send without a receive.
type flow struct {
	most     int    // the largest segment that the target takes
	controls uint32 // number of the latest control message
	theirs   uint32 // of the target
	executed uint64 // requests of the target that are executed
	told     uint64 // of these, as many as the target knows
	posted   uint64 // requests of this end
	acked    uint64 // of these, as many as the target has acknowledged
	unacked  []request
	ignoring bool // "not ready" was sent: all requests are ignored
	readied  bool // "ready" was sent
	waiting  bool // "not ready" has come
}

// request is a request of this end that is not acknowledged.
type request struct {
	frames []*frame
	end    uint64 // posted, with it
}

const (
	controlHello = iota
	controlAck
	controlNotReady
	controlReady
	controlResume
)

const hello = 1<<56 | 65535<<16

func (p *peer) control(kind byte, value uint64) error {
	p.controls++
	return p.emit(controlFrame(p.controls, kind, value))
}

// executedOne counts a request of the target.
func (p *peer) executedOne() {
	p.executed++
}

// incoming sees each frame of the target first, and says whether it is to be ignored.
func (p *peer) incoming(f *frame) (skip bool, err error) {
	op := f.op()
	if p.own && (op == opSend || op == opSendSE) {
		if err := p.acknowledged(p.acked + uint64(uint32(f.get(wordField))-uint32(p.acked))); err != nil {
			return false, err
		}
	}
	if op == opControl || op == opReadResponse || op == opAtomicResponse || op == opTerminate {
		return false, nil
	}
	if p.ignoring {
		return true, nil
	}
	if p.own && !p.open && (op >= opSend && op <= opSendSEInv || op >= opImmediate && op <= opImmediateSE ||
		op == opSendImm || op == opSendSEImm) && p.rnd.IntN(12) == 0 {
		p.ignoring = true
		p.told = p.executed
		return true, p.control(controlNotReady, p.executed)
	}
	return false, nil
}

func (p *peer) acknowledged(n uint64) error {
	if n < p.acked || n > p.posted {
		if p.honest() {
			return finding("the target acknowledges %d requests of %d, after %d", n, p.posted, p.acked)
		}
		return nil
	}
	p.acked = n
	for len(p.unacked) > 0 && p.unacked[0].end <= n {
		p.unacked = p.unacked[1:]
	}
	return nil
}

func (p *peer) controlled(f *frame) error {
	value := f.get(field{24, 8})
	p.theirs++
	switch f.bytes[20] {
	case controlHello:
		p.most = min(int(uint16(value>>16)), 65535)
	case controlAck:
		return p.acknowledged(value)
	case controlNotReady:
		p.waiting = true
		return p.acknowledged(value)
	case controlReady:
		if !p.waiting {
			return nil
		}
		p.waiting = false
		if err := p.control(controlResume, p.acked); err != nil {
			return err
		}
		for _, r := range p.unacked {
			for _, f := range r.frames {
				if f.op() == opSend || f.op() == opSendSE {
					f = f.clone()
					f.set(wordField, p.word())
				}
				if err := p.emit(f); err != nil {
					return err
				}
			}
		}
	case controlResume:
		p.ignoring, p.readied = false, false
	}
	return nil
}

// request sends the frames of a request.
func (p *peer) request(frames ...*frame) error {
	p.posted++
	p.unacked = append(p.unacked, request{frames, p.posted})
	for _, f := range frames {
		if err := p.emit(f); err != nil {
			return err
		}
	}
	return nil
}

// word returns the acknowledgement for a send.
func (p *peer) word() uint64 {
	p.told = max(p.told, p.executed)
	return p.told & (1<<32 - 1)
}

// may reports whether a request may be sent now.
func (p *peer) may() bool { return !p.waiting && len(p.unacked) < 64 }

// flowStep does what the flow of messages asks for, or nothing.
func (p *peer) flowStep() error {
	switch {
	case p.ignoring && !p.readied && p.rnd.IntN(3) == 0:
		p.readied = true
		return p.control(controlReady, p.executed)
	case !p.ignoring && p.executed > p.told:
		p.told = p.executed
		return p.control(controlAck, p.executed)
	}
	return nil
}

// lie returns a frame that says what is not so about the flow of messages.
func (p *peer) lie() *frame {
	p.controls++
	switch p.rnd.IntN(6) {
	case 0, 1: // early
		v := p.executed + 1 + uint64(p.rnd.IntN([]int{3, 30, 160}[p.rnd.IntN(3)]))
		p.change("early acknowledgement: %d, not %d", v, p.executed)
		p.told = v
		return controlFrame(p.controls, controlAck, v)
	case 2, 3: // late
		v := p.told
		if p.executed > p.told {
			v += uint64(p.rnd.IntN(int(min(p.executed-p.told, 8)) + 1))
		}
		p.change("not ready for request %d, after %d", v+1, p.executed)
		p.executed, p.told, p.ignoring = v, v, true
		return controlFrame(p.controls, controlNotReady, v)
	case 4:
		p.change("ready out of order")
		return controlFrame(p.controls, controlReady, p.executed)
	default:
		p.change("resume out of order")
		return controlFrame(p.controls, controlResume, p.acked)
	}
}
