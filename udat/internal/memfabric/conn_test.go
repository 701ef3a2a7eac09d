package memfabric

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/softnic"
	"github.com/godat/godat/udat/internal/softnic/nicfault"
)

func TestConnectCarriesPrivateDataOfEveryLength(t *testing.T) {
	for _, n := range []int{0, 1, 55, 56, 57, 255, 256} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := New()
				a, b := newEnd(t, f, endOptions{}), newEnd(t, f, endOptions{})
				addr, requests, _ := b.listen()
				data := bytes.Repeat([]byte{0xa5}, n)
				a.connect(fabric.ConnectParams{Remote: addr, Private: data, ReadIn: 3, ReadOut: 9})
				r := next(t, requests)
				got, padded := r.Private()
				assert.Assert(t, bytes.Equal(got, data) && !padded)
				assert.Equal(t, r.LocalAddr(), addr)
				in, out := r.ReadDepths()
				assert.Equal(t, [2]uint8{in, out}, [2]uint8{9, 3})
				own := uint8(2 + 3*(n%2)) // the acceptor's reads: fewer or more than the other takes
				b.accept(r, fabric.AcceptParams{Private: data, ReadIn: 5, ReadOut: own})
				assert.Assert(t, bytes.Equal(a.wants(fabric.EventEstablished).Private, data))
				assert.Equal(t, len(b.wants(fabric.EventEstablished).Private), 0)
				in, out = a.conn.ReadDepths()
				assert.Equal(t, [2]uint8{in, out}, [2]uint8{min(own, 3), 5}, "the active end")
				in, out = b.conn.ReadDepths()
				assert.Equal(t, [2]uint8{in, out}, [2]uint8{5, min(own, 3)}, "the passive end")
				assert.Equal(t, a.conn.LocalAddr(), b.conn.RemoteAddr())
				assert.Equal(t, b.conn.LocalAddr(), a.conn.RemoteAddr())
			})
		})
	}
}

func TestPrivateDataTooLong(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := New()
		a, b := newEnd(t, f, endOptions{}), newEnd(t, f, endOptions{})
		addr, requests, _ := b.listen()
		long := make([]byte, 257)
		_, err := a.dev.Connect(a.qp, fabric.ConnectParams{Remote: addr, Private: long}, a.on)
		assert.ErrorIs(t, err, fabric.ErrInvalid)
		assert.ErrorContains(t, err, "257 bytes is above the limit 256")
		a.connect(fabric.ConnectParams{Remote: addr})
		r := next(t, requests)
		_, err = r.Accept(b.qp, fabric.AcceptParams{Private: long}, b.on)
		assert.ErrorIs(t, err, fabric.ErrInvalid)
		assert.ErrorIs(t, r.Reject(long, true), fabric.ErrInvalid)
		b.accept(r, fabric.AcceptParams{}) // it was still there
		a.wants(fabric.EventEstablished)
	})
}

func TestReject(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := New()
		a, b := newEnd(t, f, endOptions{}), newEnd(t, f, endOptions{})
		addr, requests, _ := b.listen()
		a.connect(fabric.ConnectParams{Remote: addr})
		r := next(t, requests)
		assert.NilError(t, r.Reject([]byte("no"), true))
		assert.Equal(t, string(a.wants(fabric.EventPeerRejected).Private), "no")
		assert.ErrorIs(t, r.Reject(nil, true), fabric.ErrClosed)
		_, err := r.Accept(b.qp, fabric.AcceptParams{}, b.on)
		assert.ErrorIs(t, err, fabric.ErrClosed)
		// The queue pair is unchanged and can be connected.
		a.connect(fabric.ConnectParams{Remote: addr})
		assert.NilError(t, next(t, requests).Reject([]byte("no"), false))
		ev := a.wants(fabric.EventRejected)
		assert.Equal(t, string(ev.Private), "no")
		assert.ErrorIs(t, ev.Err, syscall.EAGAIN)
		a.quiet()
	})
}

func TestNobodyListens(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newEnd(t, New(), endOptions{})
		a.connect(fabric.ConnectParams{Remote: addrPort(4711)})
		a.wants(fabric.EventRejected)
		a.connect(fabric.ConnectParams{Remote: netip.MustParseAddrPort("10.1.2.3:4711")})
		a.wants(fabric.EventUnreachable)
		for _, bad := range []netip.AddrPort{{}, addrPort(0)} {
			_, err := a.dev.Connect(a.qp, fabric.ConnectParams{Remote: bad}, a.on)
			assert.ErrorIs(t, err, fabric.ErrAddrInvalid)
		}
	})
}

func TestBothAddressesReachTheListener(t *testing.T) {
	for _, addr := range []string{"127.0.0.1", "::1", "::ffff:127.0.0.1"} {
		bubble(t, func(t *testing.T) {
			f := New()
			a, b := newEnd(t, f, endOptions{}), newEnd(t, f, endOptions{})
			to, requests, _ := b.listen()
			a.connect(fabric.ConnectParams{Remote: netip.AddrPortFrom(netip.MustParseAddr(addr), to.Port())})
			r := next(t, requests)
			b.accept(r, fabric.AcceptParams{})
			a.wants(fabric.EventEstablished)
			// Both ends name that address, and the same two ports.
			want := netip.MustParseAddr(addr).Unmap()
			assert.Equal(t, a.conn.RemoteAddr(), netip.AddrPortFrom(want, to.Port()))
			assert.Equal(t, a.conn.LocalAddr().Addr(), want)
			assert.Assert(t, a.conn.LocalAddr().Port() != to.Port())
			assert.Equal(t, r.LocalAddr(), a.conn.RemoteAddr())
			assert.Equal(t, r.RemoteAddr(), a.conn.LocalAddr())
			assert.Equal(t, b.conn.LocalAddr(), a.conn.RemoteAddr())
			assert.Equal(t, b.conn.RemoteAddr(), a.conn.LocalAddr())
		})
	}
}

func TestPorts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := New()
		d, _ := openDevice(t, f, options)
		other, _ := openDevice(t, f, options)
		assert.Assert(t, slices.Equal(f.Openings(), []*softnic.Device{d.NIC(), other.NIC()}))
		on := func(fabric.Request) {}
		l, err := d.Listen(7, nil, on)
		assert.NilError(t, err)
		_, err = other.Listen(7, nil, on)
		assert.ErrorIs(t, err, fabric.ErrAddrInUse)
		free, err := d.Listen(0, nil, on)
		assert.NilError(t, err)
		assert.Assert(t, free.Addr().Port() > 1023)
		_, err = d.Listen(8, nil, nil)
		assert.ErrorContains(t, err, "no handler")
		assert.NilError(t, l.Close())
		assert.ErrorIs(t, l.Close(), fabric.ErrClosed)
		again, err := other.Listen(7, nil, on)
		assert.NilError(t, err)
		assert.NilError(t, again.Close())
		assert.NilError(t, free.Close())
	})
}

// TestLastFreePort: a Listen on port 0 gets a port of the upper half as long as one is free, and
// then an error.
func TestLastFreePort(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := New()
		d, _ := openDevice(t, f, options)
		const free = 40000
		for p := 1 << 15; p < 1<<16; p++ {
			if p != free {
				f.listeners[uint16(p)] = new(listener)
			}
		}
		f.nextPort = free + 1 // so that this port is tried last
		on := func(fabric.Request) {}
		l, err := d.Listen(0, nil, on)
		assert.NilError(t, err)
		closeAfter(t, l)
		assert.Equal(t, l.Addr().Port(), uint16(free))
		_, err = d.Listen(0, nil, on)
		assert.ErrorIs(t, err, fabric.ErrAddrInUse)
	})
}

// TestCloseListener: after a listener is closed, the requests that it has delivered stay valid, and
// later requests are refused.
func TestCloseListener(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := New()
		b := newEnd(t, f, endOptions{})
		addr, requests, l := b.listen()
		var ends []*end
		for range 2 {
			a := newEnd(t, f, endOptions{})
			a.connect(fabric.ConnectParams{Remote: addr})
			ends = append(ends, a)
		}
		first, second := next(t, requests), next(t, requests)
		assert.NilError(t, l.Close())
		b.accept(first, fabric.AcceptParams{})
		ends[0].wants(fabric.EventEstablished)
		assert.NilError(t, second.Reject(nil, true))
		ends[1].wants(fabric.EventPeerRejected)
		ends[1].connect(fabric.ConnectParams{Remote: addr})
		ends[1].wants(fabric.EventRejected)
	})
}

// TestLateNewsOfADisconnect: even on a busy host, the peer's disconnect is reported before a
// request fails because the peer does not answer.
func TestLateNewsOfADisconnect(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := pair(t, endOptions{})
		b.dev.Events.Add(func() { time.Sleep(400 * time.Millisecond) })
		assert.NilError(t, a.conn.Disconnect())
		b.send(1)
		b.wants(fabric.EventDisconnected)
		b.quiet()
		b.completion(1, fabric.StatusRetryExceeded)
	})
}

func TestDisconnectLeavesThePeersQueuePairAlone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := pair(t, endOptions{Options: fabric.Options{Retry: 1}})
		a.recv(1, a.at(0, 8))
		b.recv(2, b.at(0, 8))
		assert.NilError(t, a.conn.Disconnect())
		a.completion(1, fabric.StatusFlush)
		b.wants(fabric.EventDisconnected)
		b.quiet() // its receive is still posted
		b.send(3, b.at(0, 8))
		b.completion(3, fabric.StatusRetryExceeded)
		b.completion(2, fabric.StatusFlush)
		a.quiet()
		assert.NilError(t, b.conn.Disconnect())
		a.wants(fabric.EventDisconnected) // the other end has left too
		assert.NilError(t, a.conn.Disconnect(), "harmless when repeated")
		assert.NilError(t, b.conn.Disconnect(), "harmless when repeated")
		a.quiet()
		b.quiet()
	})
}

func TestCloseOfAConnectionDisconnects(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := pair(t, endOptions{})
		a.recv(1)
		assert.NilError(t, a.conn.Close())
		assert.ErrorIs(t, a.conn.Close(), fabric.ErrClosed)
		assert.ErrorIs(t, a.conn.Disconnect(), fabric.ErrClosed)
		a.completion(1, fabric.StatusFlush)
		b.wants(fabric.EventDisconnected)
		assert.NilError(t, b.conn.Close())
		a.quiet()
	})
}

func TestListenerClosedBeforeTheRequestArrives(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := New()
		a, b := newEnd(t, f, endOptions{}), newEnd(t, f, endOptions{})
		nicfault.Of(a.dev).Delay(time.Second)
		addr, requests, l := b.listen()
		a.connect(fabric.ConnectParams{Remote: addr})
		assert.NilError(t, l.Close())
		a.wants(fabric.EventRejected)
		assert.Equal(t, len(requests), 0)
	})
}

func TestAttemptGivenUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := New()
		a, b := newEnd(t, f, endOptions{}), newEnd(t, f, endOptions{})
		addr, requests, _ := b.listen()
		a.connect(fabric.ConnectParams{Remote: addr})
		r := next(t, requests)
		assert.NilError(t, a.conn.Close())
		b.accept(r, fabric.AcceptParams{})
		b.wants(fabric.EventFailed)
		a.quiet()
		// The queue pair was never connected, so it can be used for another attempt.
		b.renew()
		a.connect(fabric.ConnectParams{Remote: addr})
		b.accept(next(t, requests), fabric.AcceptParams{})
		a.wants(fabric.EventEstablished)
	})
}

// Events that are still queued when Close is called are not reported.
func TestNoEventAfterClose(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := New()
		a := newEnd(t, f, endOptions{})
		busy := make(chan struct{})
		l, err := a.dev.Listen(0, nil, func(r fabric.Request) { <-busy })
		assert.NilError(t, err)
		closeAfter(t, l)
		other := newEnd(t, f, endOptions{})
		other.connect(fabric.ConnectParams{Remote: l.Addr()})
		a.connect(fabric.ConnectParams{Remote: netip.MustParseAddrPort("10.1.2.3:1")})
		assert.NilError(t, a.conn.Close())
		close(busy)
		a.quiet()
	})
}

func TestUnansweredRequestIsRejectedByClose(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := New()
		a, b := newEnd(t, f, endOptions{}), newEnd(t, f, endOptions{})
		d, err := f.Open("mem0", options, nil)
		assert.NilError(t, err)
		requests := make(chan fabric.Request, 2)
		l, err := d.Listen(99, nil, func(r fabric.Request) { requests <- r })
		assert.NilError(t, err)
		a.connect(fabric.ConnectParams{Remote: l.Addr()})
		b.connect(fabric.ConnectParams{Remote: l.Addr()})
		first, second := next(t, requests), next(t, requests)
		assert.NilError(t, l.Close())
		assert.NilError(t, d.Close())
		a.wants(fabric.EventRejected)
		b.wants(fabric.EventRejected)
		assert.ErrorIs(t, first.Reject(nil, true), fabric.ErrClosed)
		assert.ErrorIs(t, second.Reject(nil, true), fabric.ErrClosed)
	})
}

func TestDisconnectOfAnAttemptEndsIt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := New()
		a, b := newEnd(t, f, endOptions{}), newEnd(t, f, endOptions{})
		addr, requests, _ := b.listen()
		a.recv(1)
		a.connect(fabric.ConnectParams{Remote: addr})
		r := next(t, requests)
		assert.NilError(t, a.conn.Disconnect())
		a.completion(1, fabric.StatusFlush)
		a.wants(fabric.EventFailed)
		b.accept(r, fabric.AcceptParams{})
		b.wants(fabric.EventFailed)
		a.quiet()
	})
	// The passive end, before it has heard that the other is ready.
	bubble(t, func(t *testing.T) {
		f := New()
		a, b := newEnd(t, f, endOptions{}), newEnd(t, f, endOptions{})
		addr, requests, _ := b.listen()
		a.connect(fabric.ConnectParams{Remote: addr})
		r := next(t, requests)
		nicfault.Of(a.dev).Delay(time.Second)
		b.accept(r, fabric.AcceptParams{})
		a.wants(fabric.EventEstablished)
		assert.NilError(t, b.conn.Disconnect())
		b.wants(fabric.EventFailed)
		a.wants(fabric.EventDisconnected)
		time.Sleep(time.Minute)
		b.quiet()
	})
}

// TestPeerThatHasClosed: an accept of a request whose device has been closed meanwhile ends at
// once.
func TestPeerThatHasClosed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := New()
		a, b := newEnd(t, f, endOptions{}), newEnd(t, f, endOptions{})
		addr, requests, _ := b.listen()
		a.connect(fabric.ConnectParams{Remote: addr})
		r := next(t, requests)
		for _, c := range []closer{a.conn, a.qp, a.mr, a.cq, a.pd, a.dev} {
			assert.NilError(t, c.Close())
		}
		start := time.Now()
		b.accept(r, fabric.AcceptParams{})
		b.wants(fabric.EventFailed)
		assert.Equal(t, time.Since(start), time.Duration(0))
	})
}

func TestNoAnswerEndsInUnreachable(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := New()
		a, b := newEnd(t, f, endOptions{}), newEnd(t, f, endOptions{})
		addr, requests, _ := b.listen()
		start := time.Now()
		a.connect(fabric.ConnectParams{Remote: addr})
		r := next(t, requests)
		time.Sleep(handshakeLimit)
		a.wants(fabric.EventUnreachable)
		assert.Equal(t, time.Since(start), handshakeLimit)
		b.accept(r, fabric.AcceptParams{})
		b.wants(fabric.EventFailed)
	})
}

// TestAttemptsInTurn: after a failed attempt the queue pair can be used for another attempt, which
// the Close of the first one does not disturb.
func TestAttemptsInTurn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := New()
		a, b := newEnd(t, f, endOptions{}), newEnd(t, f, endOptions{})
		addr, requests, _ := b.listen()
		a.connect(fabric.ConnectParams{Remote: netip.MustParseAddrPort("192.0.2.1:9")})
		a.wants(fabric.EventUnreachable)
		first := a.conn
		assert.Equal(t, first.LocalAddr().Addr(), addr4)
		a.connect(fabric.ConnectParams{Remote: addr})
		assert.NilError(t, first.Close())
		_, err := a.dev.Connect(a.qp, fabric.ConnectParams{Remote: addr}, a.on)
		assert.ErrorIs(t, err, fabric.ErrQPState)
		b.accept(next(t, requests), fabric.AcceptParams{})
		a.wants(fabric.EventEstablished)
	})
}

func TestQueuePairConnectsOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := New()
		a, b := newEnd(t, f, endOptions{}), newEnd(t, f, endOptions{})
		addr, requests, _ := b.listen()
		a.connect(fabric.ConnectParams{Remote: addr})
		_, err := a.dev.Connect(a.qp, fabric.ConnectParams{Remote: addr}, a.on)
		assert.ErrorIs(t, err, fabric.ErrQPState, "an attempt is under way")
		r := next(t, requests)
		_, err = r.Accept(a.qp, fabric.AcceptParams{}, b.on)
		assert.ErrorIs(t, err, fabric.ErrInvalid, "a queue pair of another opening")
		b.accept(r, fabric.AcceptParams{})
		a.wants(fabric.EventEstablished)
		assert.NilError(t, a.conn.Close())
		_, err = a.dev.Connect(a.qp, fabric.ConnectParams{Remote: addr}, a.on)
		assert.ErrorIs(t, err, fabric.ErrQPState, "it is in error")
	})
}
