package rdmanet

import (
	"io"
	"syscall"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
)

// TestPostFails has an endpoint that takes no more requests. The call that posts gets the error,
// and for other calls the connection is broken.
func TestPostFails(t *testing.T) {
	l, err := (&ListenConfig{Device: memDevice}).Listen(t.Context(), Network, ":0")
	assert.NilError(t, err)
	defer l.Close()
	for name, call := range map[string]func(c *Conn, r *Region) error{
		"write region": func(c *Conn, r *Region) error { _, err := c.WriteRegion(r, 0, 100); return err },
		"batch": func(c *Conn, r *Region) error {
			b := c.NewBatch()
			b.Write(Remote{t: udat.RMRTriplet{SegmentLength: 100}}, r, 0)
			_, err := b.Start(t.Context())
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := (&Dialer{Device: memDevice}).Dial(t.Context(), Network, l.Addr().String())
			assert.NilError(t, err)
			defer c.Close()
			r, err := c.NewRegion(make([]byte, 100), 0)
			assert.NilError(t, err)
			assert.NilError(t, c.ep.Free())
			assert.ErrorIs(t, call(c, r), syscall.ECONNRESET)
			_, err = c.Read(make([]byte, 1))
			assert.ErrorIs(t, err, syscall.ECONNRESET)
			_, err = io.WriteString(c, "x")
			assert.ErrorIs(t, err, syscall.ECONNRESET)
		})
	}
}
