package rdmanet_test

import (
	"context"
	"io"
	"log/slog"
	"os"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/rdmanet"
)

// TestStats: each figure of a connection counts what its name says, at both ends, and stays after
// Close.
func TestStats(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		const buffer = 64 << 10
		settled := func(what string, is func() bool) {
			t.Helper()
			for until := time.Now().Add(patience); !is(); time.Sleep(time.Millisecond) {
				assert.Assert(t, time.Now().Before(until), what)
			}
		}
		l := listen(t, dev, rdmanet.ListenConfig{ReadBuffer: buffer})
		a, b := join(t, dev, l, rdmanet.Dialer{WriteBuffer: buffer})
		defer a.Close()
		defer b.Close()
		_, err := a.Write(make([]byte, 1000))
		assert.NilError(t, err)
		_, err = io.ReadFull(b, make([]byte, 300))
		assert.NilError(t, err)
		settled("the bytes have come", func() bool { return b.Stats().BytesReceived == 1000 })
		out, in := a.Stats(), b.Stats()
		assert.Equal(t, in.BytesRead, uint64(300))
		assert.Equal(t, out.BytesWritten, uint64(1000))
		assert.Equal(t, out.BytesSent, uint64(1000))
		assert.Equal(t, out.Stalls, uint64(0))
		assert.Assert(t, out.MessagesOut > 0 && in.MessagesIn > 0, "%d %d", out.MessagesOut, in.MessagesIn)
		assert.Equal(t, in.BytesWritten+in.BytesSent+out.BytesReceived+out.BytesRead, uint64(0))

		n := 0
		ended := make(chan error, 1)
		go func() {
			var err error
			n, err = a.Write(make([]byte, 10<<20)) // the peer reads no more
			ended <- err
		}()
		full := func() bool { s := a.Stats(); return s.BytesWritten >= 2*buffer-buffer/4 && s.Stalls > 0 }
		settled("both rings are full", full)
		assert.NilError(t, a.SetWriteDeadline(time.Unix(1, 0)))
		assert.ErrorIs(t, <-ended, os.ErrDeadlineExceeded)
		settled("all that went out has come", func() bool { return b.Stats().BytesReceived == a.Stats().BytesSent })
		out, in = a.Stats(), b.Stats()
		assert.Equal(t, out.BytesWritten, uint64(1000+n))
		assert.Assert(t, out.BytesSent < out.BytesWritten, "%d %d", out.BytesSent, out.BytesWritten)
		assert.Assert(t, out.Stalls > 0)
		assert.Assert(t, out.Credit < buffer/4, "%d", out.Credit)
		assert.Equal(t, in.BytesRead, uint64(300))
		assert.Equal(t, out.WriteBuffer, buffer)
		assert.Equal(t, in.ReadBuffer, buffer)

		_, err = io.CopyN(io.Discard, b, int64(out.BytesWritten)-300)
		assert.NilError(t, err)
		settled("there is room again", func() bool { return a.Stats().Credit >= buffer/4 })
		assert.Equal(t, b.Stats().BytesRead, out.BytesWritten)
		assert.NilError(t, a.Close())
		assert.Equal(t, a.Stats().BytesWritten, out.BytesWritten)
		assert.Equal(t, a.Stats().BytesLost, uint64(0))

		assert.Equal(t, l.Stats().Accepted, uint64(1))
		waiting, err := dial(t, dev, l)
		assert.NilError(t, err)
		defer waiting.Close()
		settled("it waits for Accept", func() bool { return l.Stats().Waiting == 1 })
		assert.Equal(t, l.Stats(), rdmanet.ListenerStats{Accepted: 1, Waiting: 1})
	})
}

// records sends what is logged to a channel.
type records chan slog.Record

func (records) Enabled(context.Context, slog.Level) bool          { return true }
func (r records) Handle(_ context.Context, one slog.Record) error { r <- one.Clone(); return nil }
func (r records) WithAttrs([]slog.Attr) slog.Handler              { return r }
func (r records) WithGroup(string) slog.Handler                   { return r }

// TestLoggerHearsOfLoss: what Close could not deliver is logged by the Logger of either end, with
// the number of bytes that Stats have.
func TestLoggerHearsOfLoss(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		log := make(records, 8)
		d, lc := shortDialer, shortListen
		d.Logger, lc.Logger = slog.New(log), slog.New(log)
		for _, dialed := range []bool{true, false} {
			c, server := pair(t, dev, d, lc)
			if !dialed {
				c = server
			}
			ended := make(chan error, 1)
			go func() {
				_, err := c.Write(make([]byte, 10<<20)) // the peer reads nothing
				ended <- err
			}()
			// Both rings are full, except for a quarter of the peer's ring, which stays free until the peer
			// allows more.
			full := func() bool { return c.Stats().BytesWritten >= 224<<10 }
			for until := time.Now().Add(patience); !full(); time.Sleep(time.Millisecond) {
				assert.Assert(t, time.Now().Before(until))
			}
			assert.NilError(t, c.SetWriteDeadline(time.Unix(1, 0)))
			assert.ErrorIs(t, <-ended, os.ErrDeadlineExceeded)
			assert.NilError(t, c.SetLinger(1))
			assert.NilError(t, c.Close())
			lost := c.Stats().BytesLost
			assert.Assert(t, lost > 0)
			select {
			case r := <-log:
				assert.Equal(t, r.Level, slog.LevelWarn)
				var bytes uint64
				r.Attrs(func(a slog.Attr) bool {
					if a.Key == "bytes" {
						bytes = a.Value.Uint64()
					}
					return true
				})
				assert.Equal(t, bytes, lost)
			case <-time.After(patience):
				t.Fatal("nothing is logged")
			}
		}
		rdmanet.Drain(t.Context()) // clears the sum of other tests
	})
}
