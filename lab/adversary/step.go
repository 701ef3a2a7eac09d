//go:build linux

package main

import "github.com/godat/godat/lab/adversary/pattern"

// step sends the next frames of the conversation: one of those that are legal now.
func (p *peer) step() error {
	switch n := p.rnd.IntN(40); {
	case n < 12:
		if len(p.asked) > 0 {
			return p.emit(p.nextAnswer())
		}
	case n < 22:
		if p.own {
			return p.flowStep()
		}
	case n < 25:
		return p.stepSend()
	case n < 28:
		return p.stepWrite()
	case n < 30:
		return p.stepRead()
	case n < 31:
		return p.stepAtomic()
	case n < 32:
		if p.paused == 0 {
			p.paused = p.rnd.IntN(p.pauses + 1)
		}
	case n < 34 && p.own && p.rnd.Float64() < p.chance*4:
		return p.put(p.lie())
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
	if !p.may() {
		return nil
	}
	ops := []int{opSend, opSendSE, opSend, opSend}
	if p.own {
		ops = append(ops, opSendImm, opSendSEImm)
	}
	op := ops[p.rnd.IntN(len(ops))]
	p.sends++
	var frames []*frame
	n := p.size(60000)
	for done := 0; ; {
		k := min(n-done, p.segment(untaggedHead))
		if k > 1 && p.rnd.IntN(5) == 0 {
			k = 1 + p.rnd.IntN(k-1)
		}
		word := uint32(p.executed)
		if op == opSendImm || op == opSendSEImm {
			word = 0xE3E3E3E3
		} else if !p.own {
			word = 0
		} else {
			p.told = p.executed
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
	if !p.may() {
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
	if err := p.request(frames...); err != nil || !p.own || p.rnd.IntN(3) > 0 {
		return err
	}
	p.sends++
	return p.request(immediate(opImmediate+p.rnd.IntN(2), p.sends, immediateValue(0xE2E2E2E2)))
}

func (p *peer) stepRead() error {
	if !p.may() || len(p.reads) >= p.out {
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
	if !p.own || !p.may() || len(p.reads) >= p.out {
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
