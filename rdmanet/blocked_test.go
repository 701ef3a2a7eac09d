package rdmanet

import (
	"io"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// TestBlockedCount: when no call waits and no data is held back, a dispatcher counts nothing as
// blocked, whatever the connections have done before.
func TestBlockedCount(t *testing.T) {
	for _, dev := range hostileDevices() {
		t.Run(dev, func(t *testing.T) {
			l, err := (&ListenConfig{Device: dev}).Listen(t.Context(), Network, ":0")
			assert.NilError(t, err)
			defer l.Close()
			client, err := (&Dialer{Device: dev}).Dial(t.Context(), Network, l.Addr().String())
			assert.NilError(t, err)
			defer client.Close()
			server, err := l.AcceptConn()
			assert.NilError(t, err)
			defer server.Close()
			for _, n := range []int{1, 100, 1 << 20} { // the last one is held back because there is no credit
				written := make(chan error, 1)
				go func() {
					_, err := client.Write(make([]byte, n))
					written <- err
				}()
				time.Sleep(time.Millisecond)
				_, err = io.ReadFull(server, make([]byte, n))
				assert.NilError(t, err)
				assert.NilError(t, <-written)
				_, err = server.Write([]byte("x"))
				assert.NilError(t, err)
				_, err = io.ReadFull(client, make([]byte, 1))
				assert.NilError(t, err)
			}
			for name, d := range map[string]*dispatcher{"client": client.d, "server": server.d} {
				blocked := func() int {
					d.mu.Lock()
					defer d.mu.Unlock()
					return d.blocked
				}
				for end := time.Now().Add(hostilePatience); blocked() != 0 && time.Now().Before(end); {
					time.Sleep(time.Millisecond)
				}
				assert.Equal(t, blocked(), 0, name)
			}
		})
	}
}
