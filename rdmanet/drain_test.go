package rdmanet_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/rdmanet"
)

// TestDrainCounts ends Drain early, when some of the closed connections have delivered all. The
// error must not count more connections than there were.
func TestDrainCounts(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		rdmanet.Drain(t.Context())     // clears what connections of other tests have lost
		const n, buffer = 3, 128 << 10 // connections; the buffer of each
		for range 5 {                  // Drain waits for them in any order
			var servers []*rdmanet.Conn
			for range n {
				client, server := pair(t, dev, shortDialer, shortListen)
				for written := 0; written <= buffer; { // more than the peer has room for
					assert.NilError(t, client.SetWriteDeadline(time.Now().Add(50*time.Millisecond)))
					n, err := client.Write(make([]byte, 1<<20))
					assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
					written += n
				}
				assert.NilError(t, client.Close())
				servers = append(servers, server)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			drained := make(chan error, 1)
			go func() { drained <- rdmanet.Drain(ctx) }()
			time.Sleep(10 * time.Millisecond)
			for _, server := range servers[:n-1] {
				_, err := io.Copy(io.Discard, onlyReader{server})
				assert.NilError(t, err)
			}
			time.Sleep(10 * time.Millisecond)
			cancel()
			err := <-drained
			assert.ErrorIs(t, err, context.Canceled)
			left := 0
			_, scanned := fmt.Sscanf(err.Error(), "rdmanet: up to %d closed connections", &left)
			assert.NilError(t, scanned, "%v", err)
			assert.Assert(t, left >= 1 && left <= n, "%v", err)
			_, err = io.Copy(io.Discard, onlyReader{servers[n-1]})
			assert.NilError(t, err)
			assert.NilError(t, rdmanet.Drain(t.Context()))
		}
	})
}
