package rdmanet_test

import (
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/internal/leaktest"
	"github.com/godat/godat/rdmanet"
)

// TestLeaderIsWoken ends a Read that is the leader, by a deadline and by Close. A Read becomes the
// leader after it has been woken once.
func TestLeaderIsWoken(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		client, server := pair(t, dev, rdmanet.Dialer{}, rdmanet.ListenConfig{})
		p := make([]byte, 1)
		for range 2 {
			go func() {
				time.Sleep(20 * time.Millisecond)
				server.Write([]byte("x"))
			}()
			_, err := client.Read(p)
			assert.NilError(t, err)
		}
		for _, end := range []func() error{func() error { return client.SetReadDeadline(time.Unix(1, 0)) }, client.Close} {
			assert.NilError(t, client.SetReadDeadline(time.Time{}))
			ended := make(chan error, 1)
			go func() {
				_, err := client.Read(p)
				ended <- err
			}()
			leaktest.Blocked(t, 1, "rdmanet.(*Conn).Read")
			go end()
			expectEnd(t, ended)
		}
	})
}
