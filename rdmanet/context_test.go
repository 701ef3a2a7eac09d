package rdmanet_test

import (
	"context"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/internal/leaktest"
	"github.com/godat/godat/internal/tlstest"
	"github.com/godat/godat/rdmanet"
)

// TestCallsLeaveContext: a call leaves no callback on its context, whether it succeeds or fails.
func TestCallsLeaveContext(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		cancelable, cancel := context.WithCancel(t.Context())
		defer cancel()
		ctx := leaktest.Count(cancelable)
		left := func(call string) {
			t.Helper()
			assert.Equal(t, ctx.Callbacks(), 0, call)
		}
		l := listen(t, dev, rdmanet.ListenConfig{ReadBuffer: 4096})
		d := rdmanet.Dialer{Device: dev, TLS: tlstest.Suite(dev), WriteBuffer: 4096}
		a, err := d.Dial(ctx, "rdma", l.Addr().String())
		assert.NilError(t, err)
		defer a.Close()
		b, err := l.AcceptConn()
		assert.NilError(t, err)
		defer b.Close()
		left("Dial")

		near, far := rdmanet.NewMessages(a), rdmanet.NewMessages(b)
		p, done := make([]byte, 1<<20), make(chan error)
		go func() { _, err := far.RecvMsg(ctx, p); done <- err }()
		leaktest.Blocked(t, 1, "rdmanet.(*Conn).waitContext")
		assert.NilError(t, near.SendMsg(ctx, []byte("x")))
		assert.NilError(t, <-done)
		left("RecvMsg")
		go func() { done <- near.SendMsg(ctx, p) }() // more than the rings hold
		leaktest.Blocked(t, 1, "rdmanet.(*Conn).waitContext")
		_, err = far.RecvMsg(t.Context(), p)
		assert.NilError(t, err)
		assert.NilError(t, <-done)
		left("SendMsg")

		other, own := region(t, b, 64, rdmanet.PeerReads), region(t, a, 64, 0)
		before := ctx.All()
		assert.NilError(t, a.ReadRemote(ctx, own, 0, other.Remote()))
		assert.Equal(t, ctx.All(), before+1)
		left("ReadRemote")
		batch := a.NewBatch()
		batch.Read(own, 0, other.Remote())
		pending, err := batch.Start(ctx)
		assert.NilError(t, err)
		assert.NilError(t, pending.Wait())
		left("Start")
		assert.NilError(t, other.Close())
		assert.Assert(t, a.ReadRemote(ctx, own, 0, other.Remote()) != nil)
		left("a failed ReadRemote")
		assert.NilError(t, l.Close())
		_, err = d.Dial(ctx, "rdma", l.Addr().String())
		assert.Assert(t, err != nil)
		left("a failed Dial")
	})
}
