//go:build unix

package rdmanet_test

import (
	"io"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/rdmanet"
)

// TestPeerStopped stops the peer's process without ending it: the probes detect that, and a Write
// that is blocked because the peer does not read ends too.
func TestPeerStopped(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		c, cmd := otherProcess(t, dev, rdmanet.ListenConfig{KeepAlive: time.Second})
		assert.NilError(t, cmd.Process.Signal(syscall.SIGSTOP))
		ended := make(chan error, 2)
		go func() {
			_, err := io.Copy(io.Discard, c) // what was echoed before the stop
			ended <- err
		}()
		go func() {
			for {
				if _, err := c.Write(make([]byte, 64<<10)); err != nil {
					ended <- err
					return
				}
			}
		}()
		expectEnd(t, ended)
		expectEnd(t, ended)
	})
}
