package verbsfabric

import (
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/cverbs"
	"github.com/godat/godat/udat/internal/fabric"
)

// The removal of the device ends every connection once, and is reported once.
func TestRemoval(t *testing.T) {
	name := testDevice(t)
	asyncs := make(chan fabric.AsyncEvent, 16)
	d, err := New().Open(name, fabric.Options{RNRRetry: 7, Retry: 7}, func(ev fabric.AsyncEvent) { asyncs <- ev })
	assert.NilError(t, err)
	t.Cleanup(func() { assert.NilError(t, d.Close()) })
	o := openedAs(t, d)
	l, requests := o.listen()
	conn, events := o.connect(l.Addr())
	r := receive(t, requests)
	accepted := make(chan fabric.ConnEvent, 16)
	passive, err := r.Accept(o.newQP(), fabric.AcceptParams{}, func(ev fabric.ConnEvent) { accepted <- ev })
	assert.NilError(t, err)
	assert.Equal(t, receive(t, events).Kind, fabric.EventEstablished)
	assert.Equal(t, receive(t, accepted).Kind, fabric.EventEstablished)
	ids := cverbs.Live()["CMID"]
	for range 2 { // as the kernel tells it: by the context and by every id
		o.dev.conns.Post(func() { o.dev.asyncEvent(cverbs.AsyncEvent{Type: cverbs.AsyncDeviceFatal}) })
	}
	assert.Equal(t, receive(t, asyncs).Kind, fabric.AsyncDeviceFatal)
	assert.Equal(t, receive(t, events).Kind, fabric.EventRemoved)
	assert.Equal(t, receive(t, accepted).Kind, fabric.EventRemoved)
	for until := time.Now().Add(patience); cverbs.Live()["CMID"] > ids-2; time.Sleep(time.Millisecond) {
		assert.Assert(t, time.Now().Before(until), "the kernel waits until the ids of both ends are destroyed")
	}
	assert.NilError(t, conn.Disconnect())
	assert.NilError(t, conn.Close())
	assert.NilError(t, passive.Close())
	select {
	case ev := <-events:
		t.Errorf("and then %+v", ev)
	case ev := <-asyncs:
		t.Errorf("and then %+v", ev)
	case <-time.After(50 * time.Millisecond):
	}
}

// TestClosedIsNotRemoved: closing a device makes no event of its removal.
func TestClosedIsNotRemoved(t *testing.T) {
	for range 10 {
		d, err := New().Open(testDevice(t), fabric.Options{}, func(ev fabric.AsyncEvent) { t.Errorf("%+v", ev) })
		assert.NilError(t, err)
		assert.NilError(t, d.Close())
		assert.ErrorIs(t, d.Close(), fabric.ErrClosed)
	}
}
