package tcpfabric

import (
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/softnic"
	"github.com/godat/godat/udat/internal/tcpfabric/iwarp"
)

// used returns what the links of the victim's device use.
func (v *victim) used() int {
	b := &v.dev.(*Device).budget
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// TestBuffersByNeed: a part of a frame holds a buffer of its size, and not one of the size that its
// length promises.
func TestBuffersByNeed(t *testing.T) {
	for _, sums := range []bool{false, true} {
		v := newVictimWith(t, fabric.Options{RNRRetry: 7, Retry: 7, Checksums: &sums})
		p := v.dial()
		options := 0
		if sums {
			options = withCRC
		}
		p.connect(setup(options))
		s := v.session()
		l := linkOf(s.qp.(*softnic.QP))
		mem, mr := v.region(64<<10, fabric.RemoteWrite)
		write := iwarp.Header{Op: iwarp.OpWrite, Last: true, Key: mr.RKey(), Offset: addressOf(mem)}
		b := frame(write, make([]byte, 60<<10), sums)
		at := 0
		for _, c := range []struct{ bytes, holds int }{{1, 512}, {500, 512}, {1500, 2 << 10}, {7000, 8 << 10}, {20000,
			withSums.size}} {
			p.bytes(b[at:c.bytes])
			at = c.bytes
			holds := 0
			within(t, "the bytes do not come", func() bool {
				l.qp.In.Lock()
				defer l.qp.In.Unlock()
				if l.rx.loan.buf != nil {
					holds = l.rx.loan.from.size
				}
				return l.rx.w-l.rx.r == at || !sums && at > 1
			})
			if sums || at == 1 {
				assert.Equal(t, holds, c.holds, "after %d bytes", at)
			}
			assert.Assert(t, v.used() <= max(c.holds, 512))
		}
		p.bytes(b[at:])
		within(t, "the write does not come", func() bool { return l.heard.executed.Load() == 1 })
		within(t, "a buffer is kept", func() bool { return v.used() == 0 })
		p.Close()
		s.ends()
		assert.NilError(t, mr.Close())
	}
}

// TestBudget: when the memory for connections that wait is used up, the one that has waited longest
// is broken, with an error that names the option, and those that wait for less time go on.
func TestBudget(t *testing.T) {
	sums := true
	const most = 3
	v := newVictimWith(t, fabric.Options{RNRRetry: 7, Retry: 7, Checksums: &sums, BufferMemory: most * withSums.size})
	var peers []*peer
	var sessions []*session
	part := frame(iwarp.Header{Op: iwarp.OpWrite, Last: true}, make([]byte, 60<<10), true)[:50<<10]
	for n := range most + 2 {
		p := v.dial()
		p.connect(setup(withCRC))
		sessions, peers = append(sessions, v.session()), append(peers, p)
		p.bytes(part)
		within(t, "the part does not come", func() bool { return v.used() == min(n+1, most)*withSums.size })
		if n < most {
			continue
		}
		select {
		case ev := <-v.reports:
			assert.Equal(t, ev.Kind, fabric.AsyncQPFatal)
			assert.Equal(t, ev.QP, sessions[n-most].qp)
			assert.ErrorIs(t, ev.Err, errBudget)
		case <-time.After(patience):
			t.Fatal("no report")
		}
	}
	for n, p := range peers {
		p.Close()
		if n >= 2 {
			sessions[n].over()
		}
	}
	within(t, "memory is kept", func() bool { return v.used() == 0 })
}

// TestUnreadAnswers: answers that a peer does not read hold no more than a batch, and count.
func TestUnreadAnswers(t *testing.T) {
	sums := true
	v := newVictimWith(t, fabric.Options{RNRRetry: 7, Retry: 7, Checksums: &sums})
	mem, mr := v.region(large, fabric.RemoteRead)
	p := v.dial()
	p.connect(setup(withCRC))
	s := v.session()
	l := linkOf(s.qp.(*softnic.QP))
	l.inTurn(func() { l.stalling().left.Store(100000) })
	for n := range uint32(readDepth) {
		p.write(iwarp.Header{Op: iwarp.OpReadRequest, MSN: n + 1, Length: large, Key: mr.RKey(), Offset: addressOf(mem)}, nil)
	}
	within(t, "the answers do not wait", func() bool { return v.used() > 0 })
	assert.Assert(t, v.used() <= withSums.size)
	p.Close()
	s.over()
	assert.NilError(t, mr.Close())
}
