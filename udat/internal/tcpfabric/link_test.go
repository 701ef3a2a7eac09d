package tcpfabric

import (
	"encoding/binary"
	"net/netip"
	"reflect"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/softnic"
	"github.com/godat/godat/udat/internal/tcpfabric/iwarp"
)

// inTurn calls do as the link's work.
func (l *link) inTurn(do func()) {
	for !l.turns.CompareAndSwap(0, 1) {
		runtime.Gosched()
	}
	defer func() { // also if do ends the test
		for n := int64(1); !l.turns.CompareAndSwap(n, 0); {
			n = l.turns.Load() // before the step, as in run: what comes during the step needs another
			l.step()
		}
	}()
	do()
}

// wrapSocket makes the link use the socket that wrap returns. The caller is in the link's turn.
func (l *link) wrapSocket(wrap func(socket) socket) {
	l.qp.In.Lock()
	defer l.qp.In.Unlock()
	l.sock = wrap(l.sock)
}

// within waits until a condition holds.
func within(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for until := time.Now().Add(patience); !cond(); time.Sleep(time.Millisecond) {
		assert.Assert(t, time.Now().Before(until), what)
	}
}

// countFrom makes the link count as if both ends had done everything n times.
func (l *link) countFrom(n uint64) {
	l.inTurn(func() {
		l.qp.In.Lock()
		defer l.qp.In.Unlock()
		limits := [...]uint64{l.heard.limit.Load() - l.tx.messages, l.sent.limit.Load() - l.heard.messages.Load()}
		l.tx.numbers = numbers{requests: n, messages: n, reads: n}
		l.tx.wanted, l.tx.answered, l.tx.next, l.tx.counted = n, n, n, n
		sq := reflect.ValueOf(l.qp.Sends()).Elem()
		for _, c := range []*atomic.Uint64{&l.sent.requests, &l.sent.reads, &l.sent.answers, &l.sent.messages,
			&l.sent.wanted, &l.sent.executed, &l.heard.acked, &l.heard.answered, &l.heard.executed, &l.heard.messages,
			&l.heard.reads, &l.heard.wanted, (*atomic.Uint64)(sq.FieldByName("head").Addr().UnsafePointer()),
			(*atomic.Uint64)(sq.FieldByName("tail").Addr().UnsafePointer())} {
			c.Store(n)
		}
		l.heard.limit.Store(n + limits[0])
		l.sent.limit.Store(n + limits[1])
		posted := reflect.ValueOf(l.qp).Elem().FieldByName("rq").Elem().FieldByName("posted")
		(*atomic.Uint64)(posted.Addr().UnsafePointer()).Store(n + limits[1])
		l.tx.queued, l.tx.written = l.tx.queued+n, l.tx.written+n
		l.rx.queues[iwarp.QueueSend], l.rx.queues[iwarp.QueueRequest] = uint32(n), uint32(n)
	})
}

// TestCountsBeyond4Billion: a connection goes on after 2^32 requests, reads and bytes, even if a
// request waits for its receive at that time.
func TestCountsBeyond4Billion(t *testing.T) {
	v := newVictim(t)
	i := v.joins(v.listener.Addr())
	s := v.session()
	s.expect(fabric.EventEstablished)
	key, start := v.mr.RKey(), uint64(1)<<32-3
	write := fabric.SendWR{Opcode: fabric.OpWrite, RKey: key, RemoteAddr: v.at(0)}
	read := fabric.SendWR{Opcode: fabric.OpRead, RKey: key, RemoteAddr: v.at(8)}
	add := fabric.SendWR{Opcode: fabric.OpFetchAdd, RKey: key, RemoteAddr: v.at(16), CompareAdd: 1}
	out, in := linkOf(i.qp.(*softnic.QP)), linkOf(s.qp.(*softnic.QP))
	for range out.qp.Sends().Depth() { // each slot has been used, as after so many requests
		i.post(write, 8)
		i.ends(1)
	}
	within(t, "the write is not acknowledged", func() bool {
		return in.sent.executed.Load() == in.heard.executed.Load()
	})
	for _, l := range []*link{out, in} {
		l.countFrom(start)
	}
	clear(v.room())
	for range 3 {
		for range 3 {
			i.post(write, 8)
			i.post(read, 8)
			i.post(add, 8)
		}
		i.ends(9)
		for range receives + 1 {
			i.post(fabric.SendWR{Opcode: fabric.OpSend}, 8)
		}
		i.ends(receives)
		s.postReceives(t)
		i.ends(1)
		for range receives - 1 {
			i.post(fabric.SendWR{Opcode: fabric.OpSend}, 8)
		}
		i.ends(receives - 1)
		s.postReceives(t)
	}
	assert.Equal(t, binary.NativeEndian.Uint64(v.room()[16:]), uint64(9))
	assert.Equal(t, in.heard.executed.Load(), start+3*(9+2*receives))
	assert.Equal(t, out.heard.answered.Load(), start+3*6)
	within(t, "what was executed is not told", func() bool { return in.sent.executed.Load() == in.heard.executed.Load() })
	i.close()
	s.leaves(t)
}

// TestIdleLinkHasNoBuffers: a link has a buffer only while there is data in it, with checksums and
// without. After that it has counted all bytes of its batches as written.
func TestIdleLinkHasNoBuffers(t *testing.T) {
	for _, sums := range []bool{false, true} {
		v := newVictimWith(t, fabric.Options{RNRRetry: 7, Retry: 7, Checksums: &sums})
		i := v.joins(v.listener.Addr())
		s := v.session()
		s.expect(fabric.EventEstablished)
		for range 3 {
			i.post(fabric.SendWR{Opcode: fabric.OpWrite, RKey: v.mr.RKey(), RemoteAddr: v.at(0)}, roomSize)
			i.post(fabric.SendWR{Opcode: fabric.OpRead, RKey: v.mr.RKey(), RemoteAddr: v.at(0)}, roomSize)
			i.ends(2)
			for _, q := range []fabric.QP{i.qp, s.qp} {
				l := linkOf(q.(*softnic.QP))
				within(t, "an idle link keeps a buffer", func() (none bool) {
					l.inTurn(func() { none = l.tx.loan.buf == nil && l.tx.stage == nil && l.tx.written == l.tx.queued })
					l.qp.In.Lock()
					defer l.qp.In.Unlock()
					return none && l.rx.loan.buf == nil && l.rx.buf == nil
				})
			}
		}
		i.close()
		s.leaves(t)
	}
}

// TestRetries: a request without a receive fails after RNRRetry tries. With 7 it never fails.
func TestRetries(t *testing.T) {
	for _, retries := range []uint8{0, 1, 6, 7} {
		v := newVictimWith(t, fabric.Options{RNRRetry: retries, Retry: 7})
		i := v.joins(v.listener.Addr())
		s := v.session()
		s.expect(fabric.EventEstablished)
		for range receives + 1 {
			i.post(fabric.SendWR{Opcode: fabric.OpSend}, 8)
		}
		i.ends(receives)
		if retries == 7 {
			time.Sleep(20 * 7 * rnrTimer)
			s.postReceives(t)
			i.ends(1)
		} else {
			assert.DeepEqual(t, i.completes(1), []fabric.Status{fabric.StatusRNRExceeded})
		}
		i.close()
		s.next()
	}
}

// TestSilentPeer: a peer that does not answer, although its host does, is unreachable.
func TestSilentPeer(t *testing.T) {
	l := serve(t)
	v := newVictim(t)
	qp, err := v.dev.CreateQP(fabric.QPInit{PD: v.pd, SendCQ: v.cq, RecvCQ: v.cq, MaxSend: 1, MaxRecv: 1, MaxSendSGE: 1,
		MaxRecvSGE: 1})
	assert.NilError(t, err)
	defer qp.Close()
	for _, revision := range []uint8{2, 1} {
		c := &conn{dev: v.dev.(*Device)}
		to := fabric.ConnectParams{Remote: addrOf(l.Addr())}
		events := make(chan fabric.ConnEvent, 1)
		assert.NilError(t, c.dev.Attempt(&c.Conn, qp, to, func(ev fabric.ConnEvent) { events <- ev }))
		tcp, failure := c.dial(t.Context())
		assert.Assert(t, tcp != nil, failure.Err)
		asked := make(chan *fabric.ConnEvent)
		go func() {
			_, ev := c.ask(tcp, revision, nil)
			asked <- ev
		}()
		for ev := (*fabric.ConnEvent)(nil); ev == nil; {
			tcp.SetReadDeadline(past) // the time is over, once the wait has begun
			select {
			case ev = <-asked:
				assert.Equal(t, ev.Kind, fabric.EventUnreachable)
				assert.ErrorIs(t, ev.Err, errNoSetup)
				c.Fail(softnic.Connecting, *ev)
			case <-time.After(time.Millisecond):
			}
		}
		assert.Equal(t, (<-events).Kind, fabric.EventUnreachable)
		assert.NilError(t, tcp.Close())
		assert.NilError(t, c.Close())
	}
}

// TestHostAddress: the address of a host is its first global one, IPv4 before IPv6, at any place of
// the list. Without one it is that of the loopback interface.
func TestHostAddress(t *testing.T) {
	for _, c := range []struct {
		has  []string
		want string
	}{
		{nil, "127.0.0.1"},
		{[]string{"127.0.0.2", "::1", "fe80::1", "169.254.1.1"}, "127.0.0.1"},
		{[]string{"::1", "192.0.2.1", "192.0.2.2"}, "192.0.2.1"},
		{[]string{"2001:db8::1", "2001:db8::2", "127.0.0.1"}, "2001:db8::1"},
		{[]string{"2001:db8::1", "2001:db8::2", "192.0.2.1"}, "192.0.2.1"},
		{[]string{"127.0.0.1", "192.0.2.1", "2001:db8::1", "192.0.2.2"}, "192.0.2.1"},
	} {
		var list []netip.Addr
		for _, a := range c.has {
			list = append(list, netip.MustParseAddr(a))
		}
		assert.Equal(t, mostGlobal(list), netip.MustParseAddr(c.want), "%v", c.has)
	}
}

// TestInvalidatesNothing: a send that invalidates a key without the right to ends the receiver's
// queue pair. The message itself has arrived, so its sender gets a success, and then a disconnect.
func TestInvalidatesNothing(t *testing.T) {
	v := newVictim(t)
	i := v.joins(v.listener.Addr())
	s := v.session()
	s.expect(fabric.EventEstablished)
	i.post(fabric.SendWR{Opcode: fabric.OpSendInv, RKey: v.foreign.RKey()}, 3)
	i.ends(1)
	var wcs [1]fabric.WC
	within(t, "the receive does not complete", func() bool {
		n, err := v.cq.Poll(wcs[:], 1)
		assert.NilError(t, err)
		return n > 0
	})
	assert.Equal(t, wcs[0].Status, fabric.StatusRemoteInvReq)
	for _, want := range []fabric.ConnEventKind{fabric.EventEstablished, fabric.EventDisconnected} {
		select {
		case ev := <-i.events:
			assert.Equal(t, ev.Kind, want)
		case <-time.After(patience):
			t.Fatal("no event")
		}
	}
	assert.Equal(t, linkOf(i.qp.(*softnic.QP)).verdict.Load(), uint32(0))
	i.close()
}

// TestFailsWhileReading: a queue pair that fails for another reason while its socket is being read
// is flushed, even if no data has come.
func TestFailsWhileReading(t *testing.T) {
	v := newVictim(t)
	p := v.dial()
	p.connect(setup(0))
	s := v.session()
	p.write(iwarp.Header{Op: iwarp.OpWrite, Last: true}, nil)
	s.expect(fabric.EventEstablished)
	q := s.qp.(*softnic.QP)
	l := linkOf(q)
	within(t, "the write has not come", func() bool { return l.heard.executed.Load() == 1 })
	l.qp.In.Lock()
	l.inside.Store(true)
	assert.Assert(t, q.Fail())
	l.qp.In.Unlock()
	got, _ := l.receive(true)
	assert.Assert(t, !got)
	var wcs [receives]fabric.WC
	n, err := v.cq.Poll(wcs[:], 1)
	assert.NilError(t, err)
	assert.Equal(t, n, receives)
	p.Close()
}

// takesAll is a socket that always has room for more. It sends nothing.
type takesAll struct {
	socket
	writes, turns int // writes since the last turn ended; number of turns that ended with later
}

func (s *takesAll) write(bufs [][]byte) (n int, err error) {
	s.writes++
	for _, b := range bufs {
		n += len(b)
	}
	return n, nil
}

func (s *takesAll) later() bool {
	s.turns++
	return true
}

// takingAll makes the link use a socket that takes all at once. The caller is in the link's turn.
func (l *link) takingAll() *takesAll {
	sock := new(takesAll)
	l.wrapSocket(func(s socket) socket {
		sock.socket = s
		return sock
	})
	return sock
}

// TestLinksTakeTurns: a link that has much to send, to a peer that takes all at once, lets the
// other sockets have a turn after a number of batches, and goes on in its next turn.
func TestLinksTakeTurns(t *testing.T) {
	v := newVictim(t)
	i := v.joins(v.listener.Addr())
	s := v.session()
	s.expect(fabric.EventEstablished)
	l := linkOf(i.qp.(*softnic.QP))
	within(t, "this end has not begun", func() bool { return l.heard.greeted.Load() }) // after the socket has been started
	var sock *takesAll
	l.inTurn(func() {
		sock = l.takingAll()
		for range 3 * batches {
			i.post(fabric.SendWR{Opcode: fabric.OpWrite, RKey: v.mr.RKey(), RemoteAddr: v.at(0)}, len(i.mem))
		}
	})
	for turn := range 3 {
		l.inTurn(func() {
			assert.Equal(t, sock.writes, batches, "turn %d", turn)
			assert.Equal(t, sock.turns, 1, "turn %d", turn)
			sock.writes, sock.turns = 0, 0
		})
		l.writable()
	}
	i.close()
	s.next()
}

// TestLargeMessageTakesTurns: a message is written in batches of about batchLimit, and lets other
// sockets have a turn after a number of them.
func TestLargeMessageTakesTurns(t *testing.T) {
	v := newVictim(t)
	mem, mr := v.region(2*batches*batchLimit, fabric.LocalWrite)
	p, s := v.joined()
	l := linkOf(s.qp.(*softnic.QP))
	var sock *takesAll
	l.inTurn(func() {
		sock = l.takingAll()
		_, err := s.qp.PostSend([]fabric.SendWR{{Opcode: fabric.OpWrite, NumSGE: 1}},
			[]fabric.SGE{{Addr: addressOf(mem), Length: uint32(len(mem)), LKey: mr.LKey()}})
		assert.NilError(t, err)
	})
	l.inTurn(func() {
		assert.Equal(t, sock.writes, batches)
		assert.Equal(t, sock.turns, 1)
	})
	p.Close()
	s.expect(fabric.EventDisconnected)
	assert.NilError(t, mr.Close())
}
