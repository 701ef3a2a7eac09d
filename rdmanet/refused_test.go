package rdmanet

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"
)

// TestRefusedRegister: a Register or a Grant that fails uses its zone and memory no longer, so that
// they are freed when they are closed.
func TestRefusedRegister(t *testing.T) {
	z, err := NewZone(memDevice, Path{})
	assert.NilError(t, err)
	l, err := (&ListenConfig{Zone: z}).Listen(t.Context(), Network, ":0")
	assert.NilError(t, err)
	defer l.Close()
	client, err := (&Dialer{Device: memDevice}).Dial(t.Context(), Network, l.Addr().String())
	assert.NilError(t, err)
	defer client.Close()
	server, err := l.AcceptConn()
	assert.NilError(t, err)
	m, err := z.Register(make([]byte, 8))
	assert.NilError(t, err)
	users := func(s *shared) int { s.mu.Lock(); defer s.mu.Unlock(); return s.users }
	ofZone, ofMemory := users(&z.shared), users(&m.shared)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for range 2 {
		_, err = z.Register(nil)
		assert.Assert(t, err != nil)
		_, err = server.Grant(ended, m, 0, 8, PeerReads)
		assert.ErrorIs(t, err, context.Canceled)
	}
	assert.Equal(t, users(&z.shared), ofZone)
	assert.Equal(t, users(&m.shared), ofMemory)
	assert.NilError(t, m.Close())
	assert.NilError(t, server.Close())
	assert.NilError(t, z.Close())
}

// TestRefusedZone: a NewZone that fails does not keep the device open.
func TestRefusedZone(t *testing.T) {
	for _, dev := range hostileDevices() {
		open := func() int {
			adapters.mu.Lock()
			defer adapters.mu.Unlock()
			key := Path{}.key(dev)
			key.keepAlive = defaultKeepAlive
			if a := adapters.open[key]; a != nil {
				return a.users
			}
			return 0
		}
		before := open()
		z, err := NewZone(dev, Path{})
		if err != nil {
			assert.Assert(t, errors.Is(err, errors.ErrUnsupported), err)
			assert.Equal(t, open(), before)
			continue
		}
		assert.NilError(t, z.Close())
	}
}

// TestAdapterSuccessor: an adapter that has failed is opened anew by the next user, and closing the
// failed one does not make others open it again.
func TestAdapterSuccessor(t *testing.T) {
	const keep = 8 * time.Second
	open := func() *adapter {
		t.Helper()
		a, err := openAdapter(memDevice, Path{}, keep)
		assert.NilError(t, err)
		return a
	}
	failed := open()
	failed.fail(errDeviceGone)
	successor := open()
	assert.Assert(t, successor != failed)
	failed.close()
	third := open()
	assert.Assert(t, third == successor)
	third.close()
	successor.close()
	fourth := open()
	assert.Assert(t, fourth != successor)
	fourth.close()
}

// TestGivenUpOnce: a connection whose peer says nothing is counted once, as given up.
func TestGivenUpOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := (&ListenConfig{Device: memDevice, KeepAlive: 9 * time.Second}).Listen(t.Context(), Network, ":0")
		assert.NilError(t, err)
		s := newStrangers(t, memDevice)
		s.connect(3, addrOf(l.Addr()))
		synctest.Wait()
		assert.Equal(t, l.Stats(), ListenerStats{InMaking: 3})
		<-time.After(helloTime + time.Minute)
		assert.Equal(t, l.Stats(), ListenerStats{GivenUp: 3})
		assert.NilError(t, l.Close())
	})
}

// TestClosedListenerIsForgotten: an adapter that other users keep open has nothing of a Listener
// that is closed.
func TestClosedListenerIsForgotten(t *testing.T) {
	const keep = 8 * time.Second
	a, err := openAdapter(memDevice, Path{}, keep)
	assert.NilError(t, err)
	defer a.close()
	told := func() int { a.mu.Lock(); defer a.mu.Unlock(); return len(a.told) }
	before := told()
	l, err := (&ListenConfig{Device: memDevice, KeepAlive: keep}).Listen(t.Context(), Network, ":0")
	assert.NilError(t, err)
	assert.Equal(t, told(), before+1)
	assert.NilError(t, l.Close())
	assert.Equal(t, told(), before)
}
