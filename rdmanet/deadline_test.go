package rdmanet

import (
	"context"
	"net"
	"net/http/httptrace"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/internal/leaktest"
	"github.com/godat/godat/udat"
)

// TestDeadlineMoved moves a deadline while its timer has fired and waits for the lock. The old
// deadline must not take effect.
func TestDeadlineMoved(t *testing.T) {
	var mu sync.Mutex
	var d deadline
	woken := make(chan bool, 1)
	wake := func() { woken <- true }
	mu.Lock()
	d.set(&mu, time.Now().Add(time.Millisecond), wake)
	time.Sleep(20 * time.Millisecond)
	d.set(&mu, time.Now().Add(time.Hour), wake)
	mu.Unlock()
	select {
	case <-woken:
		t.Fatal("the deadline has passed an hour early")
	case <-time.After(50 * time.Millisecond):
	}
	mu.Lock()
	d.set(&mu, time.Now().Add(20*time.Millisecond), wake) // and once more
	mu.Unlock()
	<-woken
	assert.Assert(t, d.passed)
}

// TestDeadlineOfTheWallClock: a deadline without a monotonic reading does not move with the wall
// clock.
func TestDeadlineOfTheWallClock(t *testing.T) {
	var mu sync.Mutex
	var d deadline
	mu.Lock()
	defer mu.Unlock()
	d.set(&mu, time.Now().Add(time.Hour).Round(0), nil)
	assert.Assert(t, strings.Contains(d.at.String(), " m=+"), "%v", d.at)
	d.set(&mu, time.Time{}, nil)
}

// deafPeer is the server's end of a connection whose peer has no receives. No request to this peer
// completes, and each keeps its memory in use.
func deafPeer(t *testing.T, dev string) (*Conn, *strangers) {
	lc := ListenConfig{Device: dev}
	l, err := lc.Listen(t.Context(), Network, ":0")
	assert.NilError(t, err)
	t.Cleanup(func() { l.Close() })
	s := newStrangers(t, dev)
	s.connect(1, addrOf(l.Addr()))
	assert.Equal(t, s.await(1)[udat.EventConnectionEstablished], 1)
	control{kind: kindCredit, limit: 4096, value: 4096}.encode(s.mem.Bytes()[8<<10:])
	assert.NilError(t, s.eps[0].PostSend([]udat.LMRTriplet{s.mem.Triplet(8<<10, controlSize)}, 0, udat.CompletionDefault))
	c, err := l.AcceptConn()
	assert.NilError(t, err)
	t.Cleanup(func() { c.Close() })
	return c, s
}

// TestDeadlineOfDeafPeer ends calls whose requests the peer's device does not complete: by the
// deadline, and by Close.
func TestDeadlineOfDeafPeer(t *testing.T) {
	for _, dev := range hostileDevices() {
		if dev == "siw" {
			continue // iWARP: a missing receive ends the connection
		}
		for _, end := range []string{"deadline", "close"} {
			t.Run(dev+"/"+end, func(t *testing.T) {
				c, _ := deafPeer(t, dev)
				r, err := c.NewRegion(make([]byte, 3000), PeerReads)
				assert.NilError(t, err)
				ended := make(chan error, 1)
				go func() {
					_, err := c.WriteRegion(r, 0, 3000)
					ended <- err
				}()
				leaktest.Blocked(t, 1, "rdmanet.(*Conn).WriteRegion")
				if end == "deadline" {
					assert.NilError(t, c.SetWriteDeadline(time.Now().Add(50*time.Millisecond)))
				} else {
					assert.NilError(t, c.Close())
				}
				select {
				case err := <-ended:
					assert.Assert(t, err != nil)
					if end == "deadline" {
						assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
					}
				case <-time.After(hostilePatience):
					t.Fatal("still blocked")
				}
			})
		}
	}
}

// TestAddressesShareTheTime: if the first of several addresses does not answer, time is left for
// the second.
func TestAddressesShareTheTime(t *testing.T) {
	l, err := (&ListenConfig{Device: memDevice}).Listen(t.Context(), Network, ":0")
	assert.NilError(t, err)
	defer l.Close()
	silent, _ := unanswered(t)
	d := Dialer{Device: memDevice}
	good := addrOf(l.Addr())
	addrs := []netip.AddrPort{netip.AddrPortFrom(good.Addr(), silent.Port()), good}
	cfg, device, err := d.config()
	assert.NilError(t, err)
	left, within := time.Duration(0), 4*time.Second
	for ; within < 60*time.Second; within *= 2 { // a busy machine needs longer
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		end, _ := ctx.Deadline()
		ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{ConnectStart: func(_, addr string) {
			if addr == good.String() {
				left = time.Until(end)
			}
		}})
		c, err := d.dialEach(ctx, Network, cfg, device, addrs)
		if err != nil {
			continue
		}
		assert.Equal(t, c.RemoteAddr(), net.Addr(Addr{good}))
		c.Close()
		if left > within/4 { // the second address gets half of the time; without shares it would get half a second
			return
		}
	}
	t.Fatalf("%v of %v are left for the second address", left, within)
}
