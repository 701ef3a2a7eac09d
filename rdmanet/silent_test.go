package rdmanet

import (
	"os"
	"testing"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"
)

// TestSilentPeerLives has a peer whose program does nothing, as one that is stopped: its device
// answers, and the connection is open after an hour, with a Write that waits for room.
func TestSilentPeerLives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lc := ListenConfig{Device: memDevice, KeepAlive: 3 * time.Second} // an adapter of this bubble
		l, err := lc.Listen(t.Context(), Network, ":0")
		assert.NilError(t, err)
		r, err := connectRaw(t, memDevice, addrOf(l.Addr()), hello.encode)
		assert.NilError(t, err)
		r.credit()
		c, err := l.AcceptConn()
		assert.NilError(t, err)
		assert.NilError(t, c.SetDeadline(time.Now().Add(time.Hour)))
		ended := make(chan error)
		go func() { _, err := c.Write(make([]byte, 1<<20)); ended <- err }()
		_, err = c.Read(make([]byte, 1))
		assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
		assert.ErrorIs(t, <-ended, os.ErrDeadlineExceeded)
		c.mu.Lock()
		assert.Equal(t, c.state, stateOpen)
		c.mu.Unlock()
		assert.NilError(t, c.SetLinger(0))
		assert.NilError(t, c.Close())
		assert.NilError(t, l.Close())
	})
}
