package tcpfabric

import (
	"io"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/softnic"
	"github.com/godat/godat/udat/internal/tcpfabric/iwarp"
	"gotest.tools/v3/assert"
)

// TestSendAcknowledges: a Send carries an acknowledgement of 32 bits, even if the Send is ignored
// because it finds no receive.
func TestSendAcknowledges(t *testing.T) {
	v := newVictim(t)
	p, s := v.joined()
	l, start := linkOf(s.qp.(*softnic.QP)), uint64(1)<<32-2
	l.inTurn(func() {
		l.tx.count = start
		l.issued.Store(start)
		l.acked.Store(start)
	})
	const ignored = 2
	for n := range uint32(receives + ignored) {
		_, err := s.qp.PostSend([]fabric.SendWR{{Opcode: fabric.OpSend}}, nil)
		assert.NilError(t, err)
		h := send(n+1, 0, true)
		h.Word = uint32(start) + n + 1
		p.write(h, make([]byte, h.Payload))
		within(t, "the Send is not complete", func() bool { return l.qp.Sends().Len() == 0 })
	}
	assert.Equal(t, l.acked.Load(), start+receives+ignored)
	assert.Equal(t, l.executed.Load(), uint64(receives))
	h := send(receives+ignored+1, 0, true)
	h.Word = uint32(start) + 1 // less than was acknowledged before
	p.write(h, nil)
	p.terminatedWith(iwarp.FaultOperation)
	p.Close()
	s.expect(fabric.EventDisconnected)
}

// TestAcksMeet: while one goroutine sends an acknowledgement, another executes a request and asks
// for its own, or finds no receive for the next one. When both have ended, the peer has got the
// acknowledgement of every request, or gets it when the socket has room.
func TestAcksMeet(t *testing.T) {
	v := newVictim(t)
	p, s := v.joined()
	go io.Copy(io.Discard, p)
	l := linkOf(s.qp.(*softnic.QP))
	executes := func(starves bool) {
		l.qp.In.Lock()
		defer l.qp.In.Unlock()
		l.rx.executed(l)
		if starves {
			l.starved.Store(hungry)
		}
	}

	const over = -1
	var asked, begun, ended atomic.Int64 // rounds of the goroutine that sends
	go func() {
		for n := int64(1); ; n++ {
			for asked.Load() < n {
				if asked.Load() == over {
					return
				}
				runtime.Gosched()
			}
			begun.Store(n)
			l.acknowledgeNow()
			ended.Store(n)
		}
	}()
	defer asked.Store(over)
	n := int64(0)
	for until := time.Now().Add(2 * time.Second); time.Now().Before(until); {
		n++
		executes(false)
		asked.Store(n)
		for spins := 0; begun.Load() < n; spins++ {
			if spins > 10000 {
				runtime.Gosched()
			}
		}
		for range n % 256 { // so that they meet everywhere
			begun.Load()
		}
		starves := n%2 == 0
		executes(starves)
		if starves {
			l.run()
		} else {
			l.acknowledgeNow()
		}
		for ended.Load() < n {
			runtime.Gosched()
		}
		within(t, "the peer is not told of all", func() bool { return l.told.Load() == l.executed.Load() })
		if starves {
			within(t, "no receive is promised", func() bool { return l.starved.Load() == promised })
			l.starved.Store(fed) // the peer has resumed
		}
	}
	t.Logf("%d rounds", n)
	p.Close()
	s.expect(fabric.EventDisconnected)
}

// TestNoSendQueue: an end whose queue pair has no send queue acknowledges and answers as others do.
func TestNoSendQueue(t *testing.T) {
	v := newVictim(t)
	v.depth = 0
	p, s := v.joined()
	p.write(send(1, 0, true), []byte("some"))
	h, _ := p.read()
	assert.Equal(t, h.Control, iwarp.ControlAck)
	assert.Equal(t, h.Value, uint64(1))
	p.write(iwarp.Header{Op: iwarp.OpReadRequest, MSN: 1, SinkKey: 5}, nil)
	for h.Op != iwarp.OpReadResponse {
		h, _ = p.read()
	}
	assert.Equal(t, h.Key, uint32(5))
	p.Close()
	s.expect(fabric.EventDisconnected)
}
