package tcpfabric

import (
	"io"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/softnic"
	"github.com/godat/godat/udat/internal/tcpfabric/iwarp"
	"gotest.tools/v3/assert"
)

// TestSendAcknowledges: a Send carries an acknowledgement, whose counts may pass 2^32 and never
// fall.
func TestSendAcknowledges(t *testing.T) {
	v := newVictim(t)
	p, s := v.joined()
	l, start := linkOf(s.qp.(*softnic.QP)), uint64(1)<<32-2
	l.countFrom(start)
	for n := range uint32(receives) {
		_, err := s.qp.PostSend([]fabric.SendWR{{Opcode: fabric.OpSend}}, nil)
		assert.NilError(t, err)
		h := p.request()
		assert.Equal(t, h.MSN, uint32(start)+n+1)
		h = send(uint32(start)+n+1, 0, true)
		h.Word = iwarp.Word(uint16(start)+uint16(n)+1, uint16(l.heard.limit.Load()))
		p.write(h, make([]byte, h.Payload))
		within(t, "the Send is not complete", func() bool { return l.qp.Sends().Len() == 0 })
	}
	assert.Equal(t, l.heard.acked.Load(), start+receives)
	assert.Equal(t, l.heard.executed.Load(), start+receives)
	h := send(uint32(start)+receives+1, 0, true)
	h.Word = iwarp.Word(uint16(start)+1, uint16(l.heard.limit.Load())) // less than was acknowledged before
	p.write(h, nil)
	p.terminatedWith(iwarp.FaultOperation)
	p.Close()
	s.expect(fabric.EventDisconnected)
}

// TestAcksMeet: while one goroutine sends an acknowledgement, another executes a request and asks
// for its own. When both have ended, the peer has been told of all, or is told when the socket has
// room.
func TestAcksMeet(t *testing.T) {
	v := newVictim(t)
	p, s := v.joined()
	go io.Copy(io.Discard, p)
	l := linkOf(s.qp.(*softnic.QP))
	executes := func() {
		l.qp.In.Lock()
		defer l.qp.In.Unlock()
		l.rx.executed(l)
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
	rounds := int64(20_000)
	if testing.Short() {
		rounds /= 4
	}
	for n := int64(1); n < rounds; n++ {
		executes()
		asked.Store(n)
		for spins := 0; begun.Load() < n; spins++ {
			if spins > 10000 {
				runtime.Gosched()
			}
		}
		for range n % 256 { // so that they meet everywhere
			begun.Load()
		}
		executes()
		l.acknowledgeNow()
		for ended.Load() < n {
			runtime.Gosched()
		}
		within(t, "the peer is not told of all", func() bool { return l.sent.executed.Load() == l.heard.executed.Load() })
	}
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
	assert.Equal(t, h.Value, iwarp.Counts(1, receives))
	p.write(iwarp.Header{Op: iwarp.OpReadRequest, MSN: 1, SinkKey: 5}, nil)
	for h.Op != iwarp.OpReadResponse {
		h, _ = p.read()
	}
	assert.Equal(t, h.Key, uint32(5))
	p.Close()
	s.expect(fabric.EventDisconnected)
}
