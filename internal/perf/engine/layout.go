package engine

import (
	"fmt"

	"github.com/godat/godat/internal/perf/result"
)

// slotBudget bounds the memory of the slots of one kind at one end, where more than one slot per queue pair fits.
const slotBudget = 64 << 20

// memoryLimit is the most that a case may register at one end.
const memoryLimit = 4 << 30

// layout says where in the registered memory of an end everything is; both ends compute the same one. Each queue
// pair has slots that requests are sent from (tx), slots that messages and results arrive in (rx), and a word for
// the peer's atomics.
type layout struct {
	qps, size, stride int
	tx, rx            int // slots per queue pair
	words             int // offset of the atomic words
	aux               int // transactions: offset of what they write to, read from, and read into
	total             int
}

func layoutOf(c *result.Case) (layout, error) {
	l := layout{qps: c.QPs, size: c.Size, stride: (c.Size + 63) &^ 63}
	most := max(1, slotBudget/(l.stride*l.qps))
	l.tx = min(c.Depth, most)
	l.rx = l.tx
	if c.Test == result.Send || c.Test == result.SendImm || c.Test == result.Transaction {
		l.rx = min(c.RxDepth, most)
	}
	if c.Mode == result.Latency {
		l.tx = 1
		if !c.TwoSided() || c.Test == result.WriteImm {
			l.rx = 1
		}
	}
	l.words = l.qps * (l.tx + l.rx) * l.stride
	l.total = l.words + l.qps*64
	if c.Test == result.Transaction {
		l.aux = l.total
		l.total += l.qps * 3 * l.stride
	}
	if l.words/l.stride/l.qps != l.tx+l.rx || l.total > memoryLimit {
		return l, fmt.Errorf("--size %d with --qps %d: needs more than %d GiB of registered memory at each end", c.Size, c.QPs, memoryLimit>>30)
	}
	return l, nil
}

func (l *layout) txAt(qp int, seq uint64) int {
	return (qp*l.tx + int(seq%uint64(l.tx))) * l.stride
}

func (l *layout) rxAt(qp int, slot uint64) int {
	return (l.qps*l.tx + qp*l.rx + int(slot%uint64(l.rx))) * l.stride
}

func (l *layout) wordAt(qp int) int { return l.words + qp*64 }

// remoteAt is the offset in the peer's memory that a request is about.
func (l *layout) remoteAt(op string, qp int, seq uint64) int {
	switch {
	case result.Atomic(op):
		return l.wordAt(qp)
	case l.aux > 0 && op == result.Write:
		return l.auxAt(qp, auxWritten)
	case l.aux > 0 && op == result.Read:
		return l.auxAt(qp, auxSource)
	case op == result.Read:
		return l.txAt(qp, seq)
	default:
		return l.rxAt(qp, seq)
	}
}

// localAt is the offset of a request's local buffer.
func (l *layout) localAt(op string, qp int, seq uint64) int {
	switch {
	case l.aux > 0 && op == result.Read:
		return l.auxAt(qp, auxRead)
	case result.Atomic(op) || op == result.Read:
		return l.rxAt(qp, seq)
	}
	return l.txAt(qp, seq)
}

// What a transaction's one-sided steps work on.
const (
	auxWritten = iota // by the peer
	auxSource         // of the peer's reads; never changes
	auxRead           // from the peer
)

func (l *layout) auxAt(qp, what int) int { return l.aux + (qp*3+what)*l.stride }
