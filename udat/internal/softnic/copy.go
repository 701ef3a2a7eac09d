package softnic

import (
	"runtime/debug"

	"github.com/godat/godat/udat/internal/fabric"
)

// pieces are ranges of pinned memory that together form one end of a transfer.
type pieces struct {
	bufs [][]byte
	held []*span
}

// Denial is the first reason why memory cannot be accessed, or Granted.
type Denial uint8

// The reasons.
const (
	Granted Denial = iota // the memory can be accessed
	NoKey
	OtherDomain
	OutOfBounds
	NoRight
)

// add pins n bytes at addr for an access with a key. The key must grant all rights in the parameter
// need. For a peer, remote is true: then the key may be that of a window, and addr is one for
// peers.
func (p *pieces) add(t *keyTable, dom *pd, key uint32, addr, n uint64, need fabric.Access, remote bool) Denial {
	s := t.enter(key)
	if s == nil {
		return NoKey
	}
	why, base := Granted, s.base
	if remote {
		base = s.remote
	}
	buf, inside := s.slice(base, addr, n)
	switch {
	case s.pd != dom:
		why = OtherDomain
	case !inside:
		why = OutOfBounds
	case s.window != nil && !remote, s.access&need != need:
		why = NoRight
	}
	if why != Granted {
		s.leave()
		return why
	}
	p.bufs = append(p.bufs, buf)
	p.held = append(p.held, s)
	return Granted
}

// gather pins n bytes of the memory that sges describe. They begin after the first skip bytes of
// this memory. It returns false if the memory cannot be accessed.
func (p *pieces) gather(t *keyTable, dom *pd, sges []fabric.SGE, skip, n uint64, need fabric.Access) bool {
	for i := range sges {
		sge := &sges[i]
		if skip >= uint64(sge.Length) {
			skip -= uint64(sge.Length)
			continue
		}
		part := min(uint64(sge.Length)-skip, n)
		if part == 0 {
			break
		}
		if p.add(t, dom, sge.LKey, sge.Addr+skip, part, need, false) != Granted {
			return false
		}
		skip, n = 0, n-part
	}
	return true
}

// release unpins everything.
func (p *pieces) release() {
	if len(p.held) > 0 {
		p.leave()
	}
}

func (p *pieces) leave() {
	for i, s := range p.held {
		s.leave()
		p.held[i], p.bufs[i] = nil, nil
	}
	p.bufs, p.held = p.bufs[:0], p.held[:0]
}

// Move copies payload. It returns false if it could not copy all, because the program has unmapped
// memory, or has made its file shorter. Without SetPanicOnFault that would end the process.
func Move(dst, src []byte) (ok bool) {
	was := debug.SetPanicOnFault(true)
	defer func() {
		if debug.SetPanicOnFault(was); !ok {
			recover()
		}
	}()
	move(dst, src)
	return true
}

// Transfer copies src to dst, which is at least as long. It returns false where Move does.
func Transfer(dst, src [][]byte) bool {
	var d []byte
	for _, s := range src {
		for len(s) > 0 {
			for len(d) == 0 {
				d, dst = dst[0], dst[1:]
			}
			n := min(len(d), len(s))
			if !Move(d[:n], s[:n]) {
				return false
			}
			d, s = d[n:], s[n:]
		}
	}
	return true
}
