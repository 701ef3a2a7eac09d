package rdmanet

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// lines sends what is written to a channel.
type lines chan string

func (l lines) Write(p []byte) (int, error) { l <- string(p); return len(p), nil }

// TestGrowthFails: if the memory of a ring cannot be registered, the connection keeps its first
// ring and carries all bytes. The Logger gets one record, which names the buffer.
func TestGrowthFails(t *testing.T) {
	for _, buffer := range []string{"WriteBuffer", "ReadBuffer"} {
		t.Run(buffer, func(t *testing.T) {
			log := make(lines, 8)
			l, err := (&ListenConfig{Device: memDevice, Logger: slog.New(slog.NewTextHandler(log, nil))}).
				Listen(t.Context(), Network, ":0")
			assert.NilError(t, err)
			defer l.Close()
			d, err := (&Dialer{Device: memDevice}).Dial(t.Context(), Network, l.Addr().String())
			assert.NilError(t, err)
			defer d.Close()
			c, err := l.AcceptConn()
			assert.NilError(t, err)
			defer c.Close()
			from, to := d, c
			c.mu.Lock()
			if buffer == "WriteBuffer" {
				from, to = c, d
				c.cfg.writeBuffer = math.MaxInt // no host has so much memory
			} else {
				c.cfg.readBuffer = math.MaxInt
			}
			c.mu.Unlock()
			data := bytes.Repeat([]byte("0123456789abcdef"), 16<<10)
			sent := make(chan error, 1)
			go func() {
				_, err := from.Write(data)
				sent <- err
			}()
			got := make([]byte, len(data))
			_, err = io.ReadFull(to, got)
			assert.NilError(t, err)
			assert.NilError(t, <-sent)
			assert.Assert(t, bytes.Equal(got, data))
			select {
			case line := <-log:
				for _, want := range []string{"level=WARN", "small buffer", "buffer=" + buffer, fmt.Sprint("wanted=", math.MaxInt),
					"remote=" + c.RemoteAddr().String()} {
					assert.Assert(t, strings.Contains(line, want), "%q is not in %s", want, line)
				}
			case <-time.After(hostilePatience):
				t.Fatal("nothing is logged")
			}
			if s := c.Stats(); buffer == "WriteBuffer" {
				assert.Equal(t, s.WriteBuffer, firstSend)
			} else {
				assert.Equal(t, s.ReadBuffer, firstRecv)
			}
			select {
			case line := <-log:
				t.Fatalf("logged once more: %s", line)
			case <-time.After(20 * time.Millisecond):
			}
		})
	}
}
