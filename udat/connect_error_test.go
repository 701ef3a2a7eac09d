package udat_test

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
)

// logBuffer is a log that may be read while it is written.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// TestStillConnecting: an attempt that nobody answers is logged once, after 2 s. Its event says
// what the attempt waited for and, unless the peer's host has answered, what to check.
func TestStillConnecting(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		var log logBuffer
		a := newEnd(t, dev, setup{opts: []udat.Option{udat.WithLogger(slog.New(slog.NewTextHandler(&log, nil)))}})
		silent, b := newEnd(t, dev, setup{opts: []udat.Option{udat.WithLogger(nil)}}), newEnd(t, dev, setup{})
		connect(t, a, b)
		part(t, a, b, udat.CloseAbrupt)
		assert.NilError(t, a.ep.Reset())
		psp := listen(t, b)
		begun := time.Now()
		assert.NilError(t, silent.ep.Connect(b.ia.Addr(), psp.Qual(), 6*time.Second, nil, 0, 0))
		assert.NilError(t, a.ep.Connect(b.ia.Addr(), psp.Qual(), 6*time.Second, nil, 0, 0))
		time.Sleep(time.Second)
		if time.Since(begun) < 2*time.Second {
			assert.Equal(t, log.String(), "")
		}
		reach := a.ia.Device().Attr().Reach
		assert.Equal(t, dev == "mem0", reach == "", "%q", reach)
		if strings.HasPrefix(dev, "tcp") {
			assert.Assert(t, !strings.Contains(log.String(), "firewall"), "%s", log.String())
			reach = "the peer's host accepted the TCP connection"
		}
		remote := param(t, a.ep).RemoteAddr.String()
		for _, e := range []*end{a, silent} {
			ev := expect(t, e.conn, udat.EventConnectionTimedOut)
			assert.ErrorIs(t, ev.Err(), udat.ErrTimeoutExpired)
			var cause *udat.Error
			assert.Assert(t, errors.As(ev.Err(), &cause) && cause.Op == "ep_connect", "%v", ev.Err())
			for _, want := range []string{remote, "within the call's timeout", "the answer to the connection request", reach} {
				assert.ErrorContains(t, ev.Err(), want)
			}
		}
		said := log.String()
		assert.Equal(t, strings.Count(said, "still connecting"), 1, "%s", said)
		for _, want := range []string{remote, "the answer to the connection request", reach, dev} {
			assert.Assert(t, strings.Contains(said, want), "%s lacks %s", said, want)
		}
	})
}

// TestNoRDMAThere: if the peer's host accepts a TCP connection and then is silent, or answers
// something else, the event does not blame a firewall, but says what answered.
func TestNoRDMAThere(t *testing.T) {
	t.Setenv(tlsEnv, "")
	for name, row := range map[string]struct {
		answer string
		event  udat.EventNumber
		want   string
	}{
		"silent": {"", udat.EventConnectionTimedOut, "nothing there has answered the RDMA set-up (a stopped program, or"},
		"HTTP": {"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\n\r\n", udat.EventConnectionNonPeerRejected,
			`it begins with "HTTP/1.1 400 Bad Req", not with MPA's`},
	} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		assert.NilError(t, err)
		defer l.Close()
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				defer c.Close()
				c.Write([]byte(row.answer))
			}
		}()
		var log logBuffer
		a := newEnd(t, "tcp:127.0.0.1", setup{opts: []udat.Option{udat.WithLogger(slog.New(slog.NewTextHandler(&log, nil)))}})
		to := l.Addr().(*net.TCPAddr).AddrPort()
		assert.NilError(t, a.ep.Connect(to.Addr(), udat.ConnQual(to.Port()), 3*time.Second, nil, 0, 0))
		ev := expect(t, a.conn, row.event)
		assert.ErrorContains(t, ev.Err(), "the peer's host accepted the TCP connection")
		assert.ErrorContains(t, ev.Err(), row.want, name)
		said := ev.Err().Error() + log.String()
		assert.Assert(t, !strings.Contains(said, "firewall"), said)
	}
}

// TestConnectionErr: Err returns the reason for connections that were not made or are broken, and
// nil for all other events.
func TestConnectionErr(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := newEnd(t, dev, setup{}), newEnd(t, dev, setup{})
		psp := listen(t, b)
		assert.NilError(t, psp.Free())
		assert.NilError(t, a.ep.Connect(b.ia.Addr(), psp.Qual(), patience, nil, 0, 0))
		ev := expect(t, a.conn, udat.EventConnectionNonPeerRejected)
		assert.ErrorContains(t, ev.Err(), b.ia.Addr().String())
		assert.ErrorContains(t, ev.Err(), "nobody listens")
		assert.Assert(t, errors.Unwrap(ev.Err()) != nil)
		assert.NilError(t, a.ep.Reset())

		assert.NilError(t, a.ep.Connect(b.ia.Addr(), listen(t, b).Qual(), patience, nil, 0, 0))
		request := expect(t, b.cr, udat.EventConnectionRequest)
		assert.NilError(t, request.CR.Accept(b.ep, nil))
		up := expect(t, a.conn, udat.EventConnectionEstablished)
		expect(t, b.conn, udat.EventConnectionEstablished)
		assert.NilError(t, a.ep.Disconnect(udat.CloseAbrupt))
		down := expect(t, a.conn, udat.EventConnectionDisconnected)
		for _, ev := range []*udat.Event{&request, &up, &down, new(udat.Event)} {
			assert.NilError(t, ev.Err(), describe(*ev))
		}
	})
}

// TestOtherFamily: an adapter of one family does not reach an address of the other. The event says
// so, and does not mention firewalls.
func TestOtherFamily(t *testing.T) {
	a := newEnd(t, "tcp:127.0.0.1", setup{})
	assert.NilError(t, a.ep.Connect(netip.MustParseAddr("2001:db8::1"), 7000, patience, nil, 0, 0))
	ev := expect(t, a.conn, udat.EventConnectionUnreachable)
	assert.ErrorContains(t, ev.Err(), "the adapter's address is 127.0.0.1, of the other family: open tcp")
	assert.Assert(t, !strings.Contains(ev.Err().Error(), "firewall"), "%v", ev.Err())
}

// TestBrokenErr: if work has failed at both ends, the event of each end has the reason, whichever
// end learns first of the other's failure.
func TestBrokenErr(t *testing.T) {
	onEachOutside(t, func(t *testing.T, dev string) {
		devices := []string{dev}
		if dev == "mem0" {
			devices = []string{"mem0", "tcp:127.0.0.1"}
		}
		for _, dev := range devices {
			a, b := newEnd(t, dev, setup{}), newEnd(t, dev, setup{})
			for range 20 {
				connect(t, a, b)
				assert.NilError(t, b.ep.PostRecv(b.iov(0, 8), 1, 0))
				assert.NilError(t, a.ep.PostSend(a.iov(0, 100), 1, 0)) // longer than the receive
				for _, e := range []*end{a, b} {
					ev := next(t, e.conn)
					assert.Assert(t, ev.Number == udat.EventConnectionDisconnected || ev.Err() != nil, "%s", describe(ev))
				}
				for _, e := range []*end{a, b} {
					assert.NilError(t, e.ep.Reset())
				}
				expect(t, a.request, udat.EventDTOCompletion)
				expect(t, b.recv, udat.EventDTOCompletion)
			}
		}
	})
}
