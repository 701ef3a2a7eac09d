package tcpfabric

import (
	"net/netip"
	"testing"
	"time"

	"github.com/godat/godat/udat/internal/fabric"
	"gotest.tools/v3/assert"
)

// initiator is an end that connects to a victim, of the same device.
type initiator struct {
	v      *victim
	qp     fabric.QP
	conn   fabric.Conn
	cq     fabric.CQ
	events chan fabric.ConnEvent
	mem    []byte
	mr     fabric.MR
}

// joins connects to an address that leads to the victim.
func (v *victim) joins(to netip.AddrPort) *initiator {
	v.t.Helper()
	i := &initiator{v: v, events: make(chan fabric.ConnEvent, 4), mem: make([]byte, 1<<20)}
	var err error
	i.cq, err = v.dev.CreateCQ(64)
	assert.NilError(v.t, err)
	i.mr, err = v.pd.RegMR(i.mem, fabric.LocalWrite|fabric.RemoteWrite|fabric.RemoteRead)
	assert.NilError(v.t, err)
	i.qp, err = v.dev.CreateQP(fabric.QPInit{PD: v.pd, SendCQ: i.cq, RecvCQ: i.cq, MaxSend: 33, MaxRecv: 4,
		MaxSendSGE: 1, MaxRecvSGE: 1})
	assert.NilError(v.t, err)
	i.conn, err = v.dev.Connect(i.qp, fabric.ConnectParams{Remote: to, Private: []byte("recorded"),
		ReadIn: readDepth, ReadOut: readDepth}, func(ev fabric.ConnEvent) { i.events <- ev })
	assert.NilError(v.t, err)
	return i
}

func (i *initiator) close() {
	assert.NilError(i.v.t, i.conn.Close())
	assert.NilError(i.v.t, i.qp.Close())
	assert.NilError(i.v.t, i.mr.Close())
	assert.NilError(i.v.t, i.cq.Close())
}

// post posts a request with n bytes of payload.
func (i *initiator) post(wr fabric.SendWR, n int) {
	i.v.t.Helper()
	wr.Flags |= fabric.Signaled
	sge := fabric.SGE{Addr: addressOf(i.mem), Length: uint32(n), LKey: i.mr.LKey()}
	sges := []fabric.SGE{sge}
	if n == 0 {
		sges = nil
	}
	wr.NumSGE = uint32(len(sges))
	_, err := i.qp.PostSend([]fabric.SendWR{wr}, sges)
	assert.NilError(i.v.t, err)
}

// completes waits for the completions of n requests, and returns their statuses.
func (i *initiator) completes(n int) (all []fabric.Status) {
	i.v.t.Helper()
	i.each(n, func(st fabric.Status) { all = append(all, st) })
	return all
}

// ends waits for the success of n requests, and returns the time of each completion.
func (i *initiator) ends(n int) (all []time.Time) {
	i.v.t.Helper()
	i.each(n, func(st fabric.Status) {
		assert.Equal(i.v.t, st, fabric.StatusSuccess)
		all = append(all, time.Now())
	})
	return all
}

func (i *initiator) each(n int, do func(fabric.Status)) {
	i.v.t.Helper()
	wcs := make([]fabric.WC, 1)
	for until := time.Now().Add(patience); n > 0; {
		got, err := i.cq.Poll(wcs, 1)
		assert.NilError(i.v.t, err)
		if n -= got; got > 0 {
			do(wcs[0].Status)
			continue
		}
		assert.Assert(i.v.t, time.Now().Before(until), "%d completions are missing", n)
		time.Sleep(time.Millisecond)
	}
}

func (s *session) postReceives(t *testing.T) {
	t.Helper()
	for n := range receives {
		sge := fabric.SGE{Addr: addressOf(s.v.mem[rxAt+n*receiveSize:]), Length: receiveSize, LKey: s.v.rx.LKey()}
		_, err := s.qp.PostRecv([]fabric.RecvWR{{NumSGE: 1}}, []fabric.SGE{sge})
		assert.NilError(t, err)
	}
}

// leaves ends an established connection.
func (s *session) leaves(t *testing.T) {
	t.Helper()
	s.conn.Disconnect()
	s.expect(fabric.EventDisconnected)
}
