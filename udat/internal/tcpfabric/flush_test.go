package tcpfabric

import (
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat/internal/fabric"
)

// TestFlushedOnce: if a connection ends before a Send has arrived completely, the receive of the
// Send completes once, as flushed, before the receives after it.
func TestFlushedOnce(t *testing.T) {
	v := newVictim(t)
	p := v.dial()
	p.connect(setup(0))
	s := v.session()
	p.write(send(1, 0, false), make([]byte, 32))
	s.expect(fabric.EventEstablished)
	p.Close()
	s.expect(fabric.EventDisconnected)
	var got []fabric.WC
	wcs := make([]fabric.WC, 1)
	poll := func() bool {
		n, err := v.cq.Poll(wcs, 1)
		assert.NilError(t, err)
		got = append(got, wcs[:n]...)
		return n > 0
	}
	for range 3 { // each flushes what there is to flush
		assert.NilError(t, s.conn.Disconnect())
	}
	for until := time.Now().Add(patience); len(got) < receives && time.Now().Before(until); {
		poll()
	}
	assert.NilError(t, s.conn.Disconnect())
	for poll() {
	}
	assert.Equal(t, len(got), receives, "%+v", got)
	for i, wc := range got {
		assert.Equal(t, wc.ID, uint64(i))
		assert.Equal(t, wc.Status, fabric.StatusFlush)
	}
}
