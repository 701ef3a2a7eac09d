//go:build linux

package main

// The kinds of changes. A session has some of them.
const (
	changeNumber = iota
	changeControl
	changeBit
	changeRepeat
	changeOld
	changeOmission
	changeOrder
	changeSize
	changeStray
	changeDamage
	changePlace
	changeLie
	changeEarly // acknowledgements, see flow.go
	changeAgain // answers, see model.go
	changeKinds
)

// choose chooses the kinds of changes of this session.
func (p *peer) choose() {
	n := 1 + p.rnd.IntN(3)
	if p.rnd.IntN(4) == 0 {
		n = changeKinds
	}
	for range n {
		p.enabled[p.rnd.IntN(changeKinds)] = true
	}
}

// changed returns what one change makes of a legal frame.
func (p *peer) changed(f *frame) []*frame {
	legal := f
	f = f.clone()
	kind := p.rnd.IntN(changeKinds)
	for !p.enabled[kind] {
		kind = p.rnd.IntN(changeKinds)
	}
	switch kind {
	case changeNumber:
		p.number(f)
	case changeControl:
		at := 2 + p.rnd.IntN(2)
		f.bytes[at] ^= 1 << p.rnd.IntN(8)
		p.change("bits of byte %d", at)
	case changeBit:
		at := p.rnd.IntN(min(f.head, len(f.bytes)))
		f.bytes[at] ^= 1 << p.rnd.IntN(8)
		p.change("a bit of header byte %d", at)
	case changeRepeat:
		p.change("repeat")
		return []*frame{legal, legal}
	case changeOld:
		if g := p.old(); g != nil {
			p.change("an old frame again: %v", g)
			return []*frame{legal, g}
		}
	case changeOmission:
		p.change("omission of %v", f)
		return nil
	case changeOrder:
		if p.held == nil {
			p.change("later: %v", f)
			p.held = f
			return nil
		}
	case changeSize:
		p.resize(f)
	case changeStray:
		p.change("another frame before it")
		return []*frame{p.stray(), legal}
	case changeDamage:
		p.damage(f)
	case changePlace:
		p.elsewhere(f)
	case changeLie:
		if p.own {
			return []*frame{p.lie(), legal}
		}
	case changeEarly:
		if p.own {
			return []*frame{p.tooEarly(), legal}
		}
	}
	return []*frame{f}
}

// number changes one number of the headers.
func (p *peer) number(f *frame) {
	all := f.fields()
	x := all[p.rnd.IntN(len(all))]
	old := f.get(x)
	highest := uint64(1)<<(8*x.size-1)<<1 - 1
	values := []uint64{0, 1, highest, highest - 1, highest>>1 + 1, old + 1, old - 1, old + 2, old - 2, old * 2, old / 2,
		old + uint64(p.rnd.IntN(100)), old - uint64(p.rnd.IntN(100)), p.rnd.Uint64(), old + 65536, old ^ 0x80}
	f.set(x, values[p.rnd.IntN(len(values))])
	p.change("number at %d of a %s: %x, not %x", x.at, opNames[f.op()], f.get(x), old)
}

// old returns a frame that was sent before, an answer if possible in half of the cases; in half of
// the cases it has the number that its queue is to have next.
func (p *peer) old() *frame {
	if len(p.history) == 0 {
		return nil
	}
	pick := func() *frame { return p.history[p.rnd.IntN(len(p.history))].clone() }
	f := pick()
	if p.rnd.IntN(2) == 0 {
		for range 30 {
			if f.op() == opReadResponse || f.op() == opAtomicResponse {
				break
			}
			f = pick()
		}
	}
	if f.bytes[2]&0x80 == 0 && len(f.bytes) >= untaggedHead && p.rnd.IntN(2) == 0 {
		p.renumber(f)
	}
	return f
}

// renumber gives an untagged frame the next number of its queue.
func (p *peer) renumber(f *frame) {
	var next uint32
	switch f.op() {
	case opReadRequest, opAtomicRequest:
		p.requests++
		next = p.requests
	case opAtomicResponse:
		p.answers++
		next = p.answers
	case opControl:
		p.controls++
		next = p.controls
	case opTerminate:
		next = 1
	default:
		p.sends++
		next = p.sends
	}
	f.set(field{12, 4}, uint64(next))
}

// resize adds payload to a frame or takes payload from it.
func (p *peer) resize(f *frame) {
	n := len(f.bytes)
	switch p.rnd.IntN(4) {
	case 0:
		f.bytes = f.bytes[:max(f.head, n-1-p.rnd.IntN(64))]
	case 1:
		f.bytes = append(f.bytes, foreign(1+p.rnd.IntN(64))...)
	case 2:
		f.bytes = f.bytes[:4+p.rnd.IntN(n-3)] // perhaps less than the headers
	default:
		f.bytes = append(f.bytes, foreign(p.rnd.IntN(65535-n))...)
	}
	if len(f.bytes) > 65537 {
		f.bytes = f.bytes[:65537]
	}
	f.fit()
	p.change("%d bytes more in a %s", len(f.bytes)-n, opNames[f.op()])
}

// damage makes a frame that does not end as it must.
func (p *peer) damage(f *frame) {
	switch p.rnd.IntN(3) {
	case 0:
		f.sum = 1 + p.rnd.Uint32N(1000)
		p.change("checksum")
	case 1:
		f.pad = 0xE7
		p.change("padding")
	default:
		f.cut = 1 + p.rnd.IntN(len(f.bytes)+4)
		p.change("the stream ends after %d bytes of a %s", f.cut, opNames[f.op()])
	}
}

// elsewhere changes which memory a frame names.
func (p *peer) elsewhere(f *frame) {
	g := &p.grants[p.rnd.IntN(len(p.grants))]
	key, at, n := field{4, 4}, field{8, 8}, uint64(len(f.payload()))
	switch f.op() {
	case opWrite:
	case opReadRequest:
		key, at, n = field{36, 4}, field{40, 8}, f.get(field{32, 4})
	case opAtomicRequest:
		key, at, n = field{28, 4}, field{32, 8}, 8
	default:
		p.number(f)
		return
	}
	f.set(key, uint64(g.Key))
	offsets := []uint64{0, g.Length - n, g.Length - n + 1, g.Length, -n, 1<<64 - 1, g.Length / 2, 4096, 4095, 8192 - n,
		8192 - n + 1}
	f.set(at, g.Address+offsets[p.rnd.IntN(len(offsets))])
	p.change("a %s of the region %s at %x", opNames[f.op()], g.Name, f.get(at)-g.Address)
}

// stray returns a frame of any kind, which may have no place here.
func (p *peer) stray() *frame {
	g := &p.grants[p.rnd.IntN(len(p.grants))]
	n := p.rnd.IntN(200)
	var f *frame
	switch op := p.rnd.IntN(16); op {
	case opWrite, opReadResponse:
		key := g.Key
		if op == opReadResponse && len(p.asked) > 0 {
			key = p.asked[p.rnd.IntN(len(p.asked))].key
		} else if op == opReadResponse {
			key = uint32(p.rnd.IntN(5))
		}
		f = tagged(op, p.rnd.IntN(4) > 0, key, g.Address, foreign(n))
	case opReadRequest:
		f = readRequest(0, 5, 0, uint32(n), g.Key, g.Address)
	case opAtomicRequest:
		f = atomic(0, 0, 5, g.Key, g.Address, 1, 1)
	case opAtomicResponse:
		key := uint32(5)
		if len(p.asked) > 0 {
			key = p.asked[0].key
		}
		f = atomicResponse(0, key, 1)
	case opImmediate, opImmediateSE:
		f = immediate(op, 0, 0xE9)
	case opTerminate:
		f = terminate(uint16(p.rnd.Uint32()))
	case opControl:
		f = controlFrame(0, byte(p.rnd.IntN(8)), p.someCount())
	default:
		f = untagged(op, p.rnd.IntN(4) > 0, uint32(p.someCount()), 0, 0, 0, nil, foreign(n))
	}
	if f.bytes[2]&0x80 == 0 {
		p.renumber(f)
	}
	p.note("stray: %v", f)
	return f
}

// someCount returns a count that might fit somewhere.
func (p *peer) someCount() uint64 {
	all := []uint64{p.executed, p.told, p.posted, p.acked, p.executed + 1, p.executed - 1, p.counts(), p.messages, 0, 1,
		1<<64 - 1,
		helloVersion | 65535<<16}
	return all[p.rnd.IntN(len(all))]
}
