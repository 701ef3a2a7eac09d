//go:build linux

package main

import "github.com/godat/godat/lab/adversary/pattern"

// The kinds of steps. How often each is taken differs from session to session.
const (
	stepAnswer = iota
	stepFlow
	stepSend
	stepWrite
	stepRead
	stepAtomic
	stepPause
	stepLie
	stepStall
	stepKinds
)

// weigh chooses how often each kind of step is taken.
func (p *peer) weigh() {
	for i := range p.weights {
		p.weights[i] = []int{0, 1, 3, 10}[p.rnd.IntN(4)]
	}
	p.weights[stepAnswer] += 2
	p.weights[stepFlow] += 2
	p.weights[stepPause], p.weights[stepStall] = p.rnd.IntN(2), 0
	switch pattern.ThemeOf(p.seed) {
	case pattern.Slow:
		p.weights[stepPause] = 3
		if p.own && p.enabled[changeEarly] {
			p.weights[stepStall] = 1
		}
	case pattern.Remote:
		p.weights[stepWrite] += 5
		p.weights[stepRead] += 5
	}
	if p.chance == 0 || !p.own || !p.enabled[changeLie] && !p.enabled[changeEarly] {
		p.weights[stepLie] = 0
	}
}

// step sends the next frames of the conversation: one of those that are legal now.
func (p *peer) step() error {
	sum := 0
	for _, w := range p.weights {
		sum += w
	}
	n, kind := p.rnd.IntN(sum), 0
	for n >= p.weights[kind] {
		n -= p.weights[kind]
		kind++
	}
	switch kind {
	case stepAnswer:
		if len(p.asked) == 0 {
			p.again()
		}
		if len(p.asked) > 0 {
			return p.emit(p.nextAnswer())
		}
	case stepFlow:
		if p.own {
			return p.flowStep()
		}
	case stepSend:
		return p.stepSend()
	case stepWrite:
		return p.stepWrite()
	case stepRead:
		return p.stepRead()
	case stepAtomic:
		return p.stepAtomic()
	case stepPause:
		if p.paused == 0 {
			p.paused = p.rnd.IntN(p.pauses + 1)
		}
	case stepStall:
		return p.stall()
	case stepLie:
		switch early := p.enabled[changeEarly] && (!p.enabled[changeLie] || p.rnd.IntN(2) == 0); {
		case p.rnd.Float64() >= p.chance*4:
		case early:
			return p.put(p.tooEarly())
		default:
			return p.put(p.lie())
		}
	}
	return nil
}

// size returns a number of bytes, mostly small.
func (p *peer) size(most int) int {
	switch p.rnd.IntN(6) {
	case 0:
		return 0
	case 1:
		return p.rnd.IntN(most + 1)
	case 2:
		return p.rnd.IntN(min(most, 4000) + 1)
	}
	return p.rnd.IntN(min(most, 256) + 1)
}

func (p *peer) stepSend() error {
	if !p.may(1) && !p.overrun() {
		return nil
	}
	ops := []int{opSend, opSendSE, opSend, opSend}
	if p.own {
		ops = append(ops, opSendImm, opSendSEImm)
	}
	op := ops[p.rnd.IntN(len(ops))]
	p.sends++
	p.messages++
	var frames []*frame
	n := p.size(60000)
	for done := 0; ; {
		k := min(n-done, p.segment(untaggedHead))
		if k > 1 && p.rnd.IntN(5) == 0 {
			k = 1 + p.rnd.IntN(k-1)
		}
		word := uint32(0xE3E3E3E3)
		switch {
		case !p.own:
			word = 0
		case op == opSend || op == opSendSE:
			word = p.word()
		}
		last := done+k == n
		frames = append(frames, untagged(op, last, word, 0, p.sends, uint32(done), nil, foreign(k)))
		if done += k; last {
			break
		}
	}
	return p.request(frames...)
}

// target picks a region that the peer may use in this way, and a part of it.
func (p *peer) target(may func(*pattern.Grant) bool, most int) (key uint32, at uint64, n int) {
	for {
		g := &p.grants[p.rnd.IntN(len(p.grants))]
		if !may(g) {
			continue
		}
		n = p.size(min(most, int(g.Length)))
		return g.Key, g.Address + uint64(p.rnd.IntN(int(g.Length)-n+1)), n
	}
}

func (p *peer) stepWrite() error {
	withImmediate := p.own && p.rnd.IntN(3) == 0
	if withImmediate && !p.may(1) || !p.may(0) {
		return nil
	}
	key, at, n := p.target(func(g *pattern.Grant) bool { return g.Write }, 64<<10)
	var frames []*frame
	for done := 0; ; {
		k := min(n-done, p.segment(taggedHead))
		if k > 1 && p.rnd.IntN(5) == 0 {
			k = 1 + p.rnd.IntN(k-1)
		}
		last := done+k == n
		frames = append(frames, tagged(opWrite, last, key, at+uint64(done), foreign(k)))
		if done += k; last {
			break
		}
	}
	if err := p.request(frames...); err != nil || !withImmediate {
		return err
	}
	p.sends++
	p.messages++
	return p.request(immediate(opImmediate+p.rnd.IntN(2), p.sends, immediateValue(0xE2E2E2E2)))
}

func (p *peer) stepRead() error {
	if !p.may(0) || len(p.reads) >= p.out {
		return nil
	}
	key, at, n := p.target(func(g *pattern.Grant) bool { return g.Read }, 128<<10)
	p.requests++
	p.keys++
	a := &ask{key: p.keys, at: uint64(p.rnd.Uint32()), length: n}
	p.reads = append(p.reads, a)
	return p.request(readRequest(p.requests, a.key, a.at, uint32(n), key, at))
}

func (p *peer) stepAtomic() error {
	if !p.own || !p.may(0) || len(p.reads) >= p.out {
		return nil
	}
	g := &p.grants[0] // the room
	p.requests++
	p.keys++
	a := &ask{atomic: true, key: p.keys}
	p.reads = append(p.reads, a)
	at := g.Address + uint64(p.rnd.IntN(int(g.Length/8)))*8
	return p.request(atomic(p.requests, uint32(p.rnd.IntN(2)*2), a.key, g.Key, at, 0, 1))
}

// overrun is the change that a message is sent without a receive of the target.
func (p *peer) overrun() bool {
	if !p.own || !p.enabled[changeLie] || p.rnd.Float64() >= p.chance/4 {
		return false
	}
	p.change("message %d beyond the limit %d", p.messages+1, p.theirLimit)
	return true
}
