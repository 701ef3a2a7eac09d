package udat_test

import (
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

// visitors is a filter of peers that records whom it was asked about.
type visitors struct {
	mu    sync.Mutex
	peers []netip.AddrPort
	why   error // the answer
}

func (v *visitors) accept(peer netip.AddrPort) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.peers = append(v.peers, peer)
	return v.why
}

func (v *visitors) answer(why error) {
	v.mu.Lock()
	v.why = why
	v.mu.Unlock()
}

func (v *visitors) asked() []netip.AddrPort {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.peers
}

// TestAcceptFilter: a service point with a filter refuses some peers and accepts others, by their
// addresses. A refused peer makes no event and no endpoint, and uses up no reserved service point.
func TestAcceptFilter(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		for _, kind := range []string{"consumer", "provider", "reserved"} {
			var log logBuffer
			logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
			b := newEnd(t, dev, setup{opts: []udat.Option{udat.WithLogger(logger)}})
			v := &visitors{why: errors.New("not from here")}
			var qual udat.ConnQual
			var err error
			switch kind {
			case "consumer":
				qual, _, err = b.ia.CreatePSPAny(b.cr, udat.PSPConsumer, udat.WithAccept(v.accept))
			case "provider":
				qual, _, err = b.ia.CreatePSPAny(b.cr, udat.PSPProvider, udat.WithAccept(v.accept))
			default:
				qual, _ = listenReserved(t, b, b.ep, udat.WithAccept(v.accept))
			}
			assert.NilError(t, err)

			a := newEnd(t, dev, setup{})
			for n := 1; n <= 3; n++ {
				a.call(b, qual, "hello")
				expect(t, a.conn, udat.EventConnectionNonPeerRejected)
				assert.NilError(t, a.ep.Reset())
				assert.Equal(t, len(v.asked()), n)
				assert.Equal(t, udat.CountOf(b.ia, udat.HandleEP), 1)
				assert.Equal(t, udat.CountOf(b.ia, udat.HandleCR), 0)
			}
			empty(t, b.cr)
			eventually(t, func() bool { return strings.Contains(log.String(), "not from here") }, "the log does not say why")

			v.answer(nil)
			a.call(b, qual, "hello")
			cr := expect(t, b.cr, udat.EventConnectionRequest).CR
			p, err := cr.Query()
			assert.NilError(t, err)
			assert.Equal(t, v.asked()[3], netip.AddrPortFrom(p.RemoteAddr, uint16(p.RemotePortQual)))
			assert.NilError(t, cr.Reject(nil))
			expect(t, a.conn, udat.EventConnectionPeerRejected)
		}
	})
}

// TestAcceptFilterSilent: on tcp the filter decides about a peer that has not sent a byte, and the
// refused peer's socket is closed at once.
func TestAcceptFilterSilent(t *testing.T) {
	withoutDevice(t)
	noLeaks(t)
	b := newEnd(t, "tcp:127.0.0.1", setup{})
	v := &visitors{why: errors.New("not from here")}
	qual, _, err := b.ia.CreatePSPAny(b.cr, udat.PSPConsumer, udat.WithAccept(v.accept))
	assert.NilError(t, err)
	for n := 1; n <= 3; n++ {
		c, err := net.Dial("tcp", netip.AddrPortFrom(b.ia.Addr(), uint16(qual)).String())
		assert.NilError(t, err)
		defer c.Close()
		assert.NilError(t, c.SetReadDeadline(time.Now().Add(patience)))
		_, err = c.Read(make([]byte, 1))
		assert.ErrorContains(t, err, "EOF")
		assert.Equal(t, len(v.asked()), n)
		assert.Equal(t, v.asked()[n-1].String(), c.LocalAddr().String())
	}
}
