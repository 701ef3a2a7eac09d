package rdmanet

import (
	"context"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// TestPendingLate has operations that the device never ends: once their context has ended, or their
// deadline has passed, the connection is broken after settleTime, not before. Close ends them too.
func TestPendingLate(t *testing.T) {
	for name, end := range map[string]func(c *Conn, cancel func()){
		"context":  func(_ *Conn, cancel func()) { cancel() },
		"deadline": func(c *Conn, _ func()) { c.SetWriteDeadline(time.Now()) },
		"close":    func(c *Conn, _ func()) { c.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			lc := ListenConfig{Device: "mem0"}
			l, err := lc.listen(t.Context(), Network, ":0")
			assert.NilError(t, err)
			defer l.Close()
			c, err := (&Dialer{Device: "mem0"}).Dial(t.Context(), Network, l.Addr().String())
			assert.NilError(t, err)
			defer c.Close()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			c.mu.Lock()
			p := &Pending{c: c, last: 1 << 40}
			c.pin()
			p.watch(ctx)
			c.out.pending = append(c.out.pending, p)
			c.mu.Unlock()
			waited := make(chan error, 1)
			go func() { waited <- p.Wait() }()
			began := time.Now()
			end(c, cancel)
			select {
			case err = <-waited:
			case <-time.After(hostilePatience):
				t.Fatal("Wait does not return")
			}
			if name == "close" { // which the peer has answered, and that ends the connection
				assert.Assert(t, err != nil)
				return
			}
			assert.Assert(t, time.Since(began) >= settleTime)
			assert.ErrorContains(t, err, "an operation has not ended")
		})
	}
}
