package tcpfabric

import (
	"testing"
	"time"

	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/softnic/nicfault"
	"github.com/godat/godat/udat/internal/tcpfabric/iwarp"
	"gotest.tools/v3/assert"
)

// TestDelay: the fault delays each request from the time of its post, and the requests after it.
// The delay ends with the requests that were posted under it.
func TestDelay(t *testing.T) {
	const delay = 100 * time.Millisecond
	v := newVictim(t)
	i := v.joins(v.listener.Addr())
	s := v.session()
	s.expect(fabric.EventEstablished)
	nic := nicfault.Of(v.dev.(*Device))
	write := fabric.SendWR{Opcode: fabric.OpWrite, RKey: v.mr.RKey(), RemoteAddr: v.at(0)}
	read := write
	read.Opcode = fabric.OpRead
	for range 2 {
		nic.Delay(delay)
		start := time.Now()
		i.post(write, 8)
		i.post(read, 8)
		time.Sleep(delay / 2)
		second := time.Now()
		i.post(write, 8)
		nic.Delay(0)
		i.post(fabric.SendWR{Opcode: fabric.OpSend}, 8) // not delayed itself, but posted after a delayed request
		ends := i.ends(4)
		for n, from := range []time.Time{start, start, second, second} {
			assert.Assert(t, ends[n].Sub(from) >= delay, "request %d took %v", n, ends[n].Sub(from))
		}
	}
	i.close()
	s.leaves(t)
}

// TestDelayAgain: each delayed request is sent when its delay ends, even if nothing else happens
// then.
func TestDelayAgain(t *testing.T) {
	const delay = 20 * time.Millisecond
	v := newVictim(t)
	p, s := v.joined()
	nic := nicfault.Of(v.dev.(*Device))
	nic.Delay(delay)
	defer nic.Delay(0)
	for range 2 {
		for range 2 {
			_, err := s.qp.PostSend([]fabric.SendWR{{Opcode: fabric.OpSend}}, nil)
			assert.NilError(t, err)
			time.Sleep(delay / 4)
		}
		for _, f := range p.reads(2) {
			assert.Equal(t, f.Head.Op, iwarp.OpSend)
		}
	}
	p.Close()
	s.expect(fabric.EventDisconnected)
}
