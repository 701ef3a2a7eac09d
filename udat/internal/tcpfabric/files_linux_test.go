//go:build !portablesocket

// On other systems, devices and accepted connections need no descriptors of their own.

package tcpfabric

import (
	"io"
	"net"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/internal/leaktest"
	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/tcpfabric/iwarp"
)

// noFiles keeps this process from opening a file while do runs.
func noFiles(t *testing.T, do func()) {
	t.Helper()
	// Only the three standard files fit, which stay open. An earlier test may close others meanwhile.
	defer leaktest.LimitFiles(t, 3)()
	do()
}

// TestNoFiles: if the process may open no more files, calls fail with ErrResources, and work again
// later. A request that could not be accepted for that reason can still be answered.
func TestNoFiles(t *testing.T) {
	v := newVictim(t)
	noFiles(t, func() {
		for _, name := range []string{"tcp", "tcp:127.0.0.1"} {
			_, err := New().Open(name, fabric.Options{}, nil)
			assert.ErrorIs(t, err, fabric.ErrResources, name)
		}
		_, err := v.dev.Listen(0, nil, v.request)
		assert.ErrorIs(t, err, fabric.ErrResources)
	})

	requests := make(chan fabric.Request, 1)
	l, err := v.dev.Listen(0, nil, func(r fabric.Request) { requests <- r })
	assert.NilError(t, err)
	defer l.Close()
	for _, accept := range []bool{false, true} {
		c, err := net.DialTimeout("tcp", l.Addr().String(), patience)
		assert.NilError(t, err)
		defer c.Close()
		b, err := (&iwarp.Setup{Revision: 2, CRC: true}).Append(nil)
		assert.NilError(t, err)
		_, err = c.Write(b)
		assert.NilError(t, err)
		r := <-requests // its socket is open
		s := &session{v: v, events: make(chan fabric.ConnEvent, 16)}
		s.qp, err = v.dev.CreateQP(fabric.QPInit{PD: v.pd, SendCQ: v.cq, RecvCQ: v.cq, MaxSend: 4, MaxRecv: receives,
			MaxSendSGE: 1, MaxRecvSGE: 1})
		assert.NilError(t, err)
		t.Cleanup(s.close)
		tell := func(ev fabric.ConnEvent) { s.events <- ev }
		noFiles(t, func() {
			_, err = r.Accept(s.qp, fabric.AcceptParams{}, tell)
			assert.ErrorIs(t, err, fabric.ErrResources)
		})
		if accept {
			s.conn, err = r.Accept(s.qp, fabric.AcceptParams{}, tell)
		} else {
			err = r.Reject([]byte("later"), true)
		}
		assert.NilError(t, err)
		got := make([]byte, 20)
		_, err = io.ReadFull(c, got)
		assert.NilError(t, err)
		assert.Equal(t, got[16]&0x20 == 0, accept) // the bit of a reject
	}
}
