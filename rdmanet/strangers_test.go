package rdmanet

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/internal/leaktest"
	"github.com/godat/godat/udat"
)

// strangers are many peers that are written on udat, on one adapter.
type strangers struct {
	t   *testing.T
	ia  *udat.IA
	pz  *udat.PZ
	evd *udat.EVD
	mem *udat.LMR
	eps []*udat.EP
}

func newStrangers(t *testing.T, dev string) *strangers {
	ia, err := udat.Open(dev)
	assert.NilError(t, err)
	t.Cleanup(func() { ia.Close(udat.CloseAbrupt) })
	s := &strangers{t: t, ia: ia}
	s.pz, err = ia.CreatePZ()
	assert.NilError(t, err)
	s.evd, err = ia.CreateEVD(8192, udat.EVDDTO|udat.EVDConnection, nil)
	assert.NilError(t, err)
	s.mem, err = ia.AllocLMR(s.pz, 64<<10, udat.PrivAll)
	assert.NilError(t, err)
	return s
}

// connect sends n requests with a proper hello, and nothing after them.
func (s *strangers) connect(n int, to netip.AddrPort) {
	m := s.mem.RMRTriplet(0, 4096)
	private := hello{immediate: true, slots: 32, ring: remoteRing{m.TargetAddress, m.RMRContext, 4096}}.encode()
	for range n {
		ep, err := s.ia.CreateEP(s.pz, s.evd, s.evd, s.evd, &udat.EPAttr{MaxRecvDTOs: 4, MaxRequestDTOs: 4})
		assert.NilError(s.t, err)
		s.eps = append(s.eps, ep)
		assert.NilError(s.t, ep.Connect(to.Addr(), udat.ConnQual(to.Port()), hostilePatience, private, udat.QoSBestEffort,
			udat.ConnectDefault))
	}
}

// await takes n connection events and returns how many there were of each kind.
func (s *strangers) await(n int) map[udat.EventNumber]int {
	events := make(map[udat.EventNumber]int)
	for range n {
		ev, _, err := s.evd.Wait(hostilePatience, 1)
		assert.NilError(s.t, err)
		if ev.Number != udat.EventDTOCompletion {
			events[ev.Number]++
		}
	}
	return events
}

// TestSilentStrangers has peers that connect and never send the first message, again and again:
// proper clients are served at the same time, and afterwards the listener is as before.
func TestSilentStrangers(t *testing.T) {
	for _, dev := range hostileDevices() {
		t.Run(dev, func(t *testing.T) {
			n := 1100
			if testing.Short() {
				n = 300
			}
			lc := ListenConfig{Device: dev, Backlog: n}
			l, err := lc.Listen(t.Context(), Network, ":0")
			assert.NilError(t, err)
			defer l.Close()
			go func() {
				for {
					c, err := l.AcceptConn()
					if err != nil {
						return
					}
					go func() {
						io.Copy(c, c)
						c.Close()
					}()
				}
			}()
			s := newStrangers(t, dev)
			s.connect(n, addrOf(l.Addr()))
			for range 10 {
				c, err := (&Dialer{Device: dev}).Dial(t.Context(), Network, l.Addr().String())
				assert.NilError(t, err)
				assert.NilError(t, c.SetDeadline(time.Now().Add(hostilePatience)))
				_, err = c.Write([]byte("hello"))
				assert.NilError(t, err)
				_, err = io.ReadFull(c, make([]byte, 5))
				assert.NilError(t, err)
				c.Close()
			}
			st := l.Stats()
			assert.Assert(t, st.InMaking <= n/4, "%d in the making", st.InMaking)
			assert.Assert(t, st.GivenUp > 0)
			s.ia.Close(udat.CloseAbrupt)
			for end := time.Now().Add(hostilePatience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
				if st = l.Stats(); st.InMaking == 0 && st.Unanswered == 0 {
					break
				}
			}
			assert.Assert(t, st.InMaking == 0 && st.Unanswered == 0, "%+v", st)
		})
	}
}

// TestAdmission: of one source at most half may be in the making, so that others find room at once;
// when there is no room the oldest gives way, once it has had its time and not before.
func TestAdmission(t *testing.T) {
	a := admission{backlog: 32} // 8 in the making
	x, y := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	now := time.Now()
	for range 40 {
		a.ask(&request{from: x})
	}
	assert.Equal(t, a.pending.Len(), 28, "seven eighths of the backlog")
	assert.Assert(t, a.ask(&request{from: y}), "there is room for another source")
	var made []*making
	for i := range 4 {
		r, m, victim, wait := a.next(0, now.Add(time.Duration(i)*time.Millisecond))
		assert.Assert(t, r != nil && r.from == x && victim == nil && wait == 0)
		assert.Equal(t, a.waiting[x], 27-i)
		made = append(made, m)
	}
	r, m, victim, _ := a.next(0, now)
	assert.Assert(t, r != nil && r.from == y && victim == nil, "behind 24 requests of another source")
	a.made(m)
	a.made(m)              // the second call changes nothing
	grace := graceTime / 4 // 24 wait for 8 places
	r, _, _, wait := a.next(0, now.Add(grace-time.Millisecond))
	assert.Assert(t, r == nil)
	assert.Equal(t, wait, time.Millisecond)
	r, _, _, wait = a.next(0, now.Add(grace-1))
	assert.Assert(t, r == nil && wait == 1)
	r, _, victim, _ = a.next(0, now.Add(grace))
	assert.Assert(t, r != nil && victim == made[0], "the oldest")
	for a.pending.Len() > 4 {
		a.pending.Remove(a.pending.Back())
		count(&a.waiting, x, -1)
	}
	r, _, _, wait = a.next(0, now.Add(graceTime-time.Millisecond))
	assert.Assert(t, r == nil)
	assert.Equal(t, wait, 2*time.Millisecond, "all of its time for the next, which is a millisecond younger")
	for _, more := range []int{0, a.making.Len()} {
		r, _, _, wait = a.next(a.backlog+a.most()-a.making.Len()+more, now.Add(time.Hour))
		assert.Assert(t, r == nil && wait == 0, "until Accept takes some")
	}
	late, wait := a.late(now.Add(helloTime + time.Millisecond))
	assert.Assert(t, len(late) == 1 && late[0] == made[1])
	assert.Equal(t, wait, time.Millisecond)
	assert.Equal(t, a.halves[x], 3)
	requests, connections := a.rest()
	assert.Assert(t, len(requests) == 4 && len(connections) == 3 && a.pending.Len() == 0 && a.making.Len() == 0)
	assert.Equal(t, len(a.halves), 0)
	late, wait = a.late(now.Add(time.Hour))
	assert.Assert(t, len(late) == 0 && wait == 0, "none is in the making")
}

// TestAdmissionBacklog: as many requests wait as the backlog says, of all sources together.
func TestAdmissionBacklog(t *testing.T) {
	a := admission{backlog: 4}
	for i := range 4 {
		assert.Assert(t, a.ask(&request{from: netip.AddrFrom4([4]byte{192, 0, 2, byte(i)})}), "%d", i)
	}
	assert.Assert(t, !a.ask(&request{from: netip.AddrFrom4([4]byte{192, 0, 2, 4})}), "the fifth")
}

// TestListenerCloseAnswers closes a listener with requests that wait for an answer, and with
// connections in the making: all of their peers hear of it, at once.
func TestListenerCloseAnswers(t *testing.T) {
	for _, dev := range hostileDevices() {
		t.Run(dev, func(t *testing.T) {
			const n = 30
			lc := ListenConfig{Device: dev, Backlog: 32}
			l, err := lc.Listen(t.Context(), Network, ":0")
			assert.NilError(t, err)
			s := newStrangers(t, dev)
			s.connect(n, addrOf(l.Addr()))
			time.Sleep(100 * time.Millisecond)
			began := time.Now()
			assert.NilError(t, l.Close())
			events := s.await(n) // each is refused, or established and then ended
			if open := events[udat.EventConnectionEstablished]; open > 0 {
				for k, v := range s.await(open) {
					events[k] += v
				}
			}
			assert.Assert(t, events[udat.EventConnectionPeerRejected] > 0, "%v", events)
			assert.Equal(t, events[udat.EventConnectionTimedOut], 0, "%v", events)
			assert.Assert(t, time.Since(began) < hostilePatience/2, "%v", time.Since(began))
			_, err = l.Accept()
			assert.ErrorIs(t, err, net.ErrClosed)
			_, err = (&Dialer{Device: dev}).Dial(t.Context(), Network, l.Addr().String())
			assert.ErrorIs(t, err, syscall.ECONNREFUSED)
		})
	}
}

// TestFailedBeforeFirstMessage has peers that disconnect between the accept and their first
// message, more of them than may be in the making: none stays counted.
func TestFailedBeforeFirstMessage(t *testing.T) {
	for _, dev := range hostileDevices() {
		t.Run(dev, func(t *testing.T) {
			lc := ListenConfig{Device: dev, Backlog: 16}
			l, err := lc.Listen(t.Context(), Network, ":0")
			assert.NilError(t, err)
			defer l.Close()
			s := newStrangers(t, dev)
			for range 20 {
				s.connect(1, addrOf(l.Addr()))
				s.await(1)
				s.eps[len(s.eps)-1].Disconnect(udat.CloseAbrupt)
				s.await(1)
			}
			for end := time.Now().Add(hostilePatience); l.Stats().InMaking > 0 && time.Now().Before(end); {
				time.Sleep(time.Millisecond)
			}
			assert.Equal(t, l.Stats().InMaking, 0)
			c, err := (&Dialer{Device: dev}).Dial(t.Context(), Network, l.Addr().String())
			assert.NilError(t, err)
			c.Close()
		})
	}
}

// TestAcceptDeadline: SetDeadline ends Accept, also one that is blocked, and the deadline can be
// removed.
func TestAcceptDeadline(t *testing.T) {
	l, err := (&ListenConfig{Device: memDevice}).Listen(t.Context(), Network, ":0")
	assert.NilError(t, err)
	defer l.Close()
	ended := make(chan error, 3)
	for range 3 {
		go func() {
			_, err := l.Accept()
			ended <- err
		}()
	}
	leaktest.Blocked(t, 3, "rdmanet.(*Listener).Accept")
	assert.NilError(t, l.SetDeadline(time.Now().Add(20*time.Millisecond)))
	for range 3 {
		select {
		case err := <-ended:
			var timeout net.Error
			assert.Assert(t, errors.As(err, &timeout) && timeout.Timeout(), "%v", err)
		case <-time.After(hostilePatience):
			t.Fatal("still blocked")
		}
	}
	assert.NilError(t, l.SetDeadline(time.Time{}))
	go func() {
		c, err := (&Dialer{Device: memDevice}).Dial(context.Background(), Network, l.Addr().String())
		if err == nil {
			c.Close()
		}
	}()
	c, err := l.Accept()
	assert.NilError(t, err)
	c.Close()
}

// TestListenerWithoutDevices: Accept says why there are no more connections, once no device brings
// any.
func TestListenerWithoutDevices(t *testing.T) {
	l := &Listener{cfg: config{log: slog.New(slog.DiscardHandler)}}
	l.changed.L = &l.mu
	first, second := &point{adapter: &adapter{}}, &point{adapter: &adapter{}}
	l.points = []*point{first, second}
	l.fail(first, syscall.ENODEV)
	assert.Assert(t, l.gone == nil)
	l.fail(second, syscall.EIO)
	assert.ErrorIs(t, l.gone, syscall.EIO)
	l.points = nil // Addr is that of the first
	for range 2 {
		_, err := l.Accept()
		assert.ErrorIs(t, err, syscall.EIO)
	}
}

// TestCloseLogsNothing closes a listener on two devices: no device has failed.
func TestCloseLogsNothing(t *testing.T) {
	log := make(lines, 4)
	lc := ListenConfig{Device: memDevice, Logger: slog.New(slog.NewTextHandler(log, nil))}
	l, err := lc.Listen(t.Context(), Network, ":0")
	assert.NilError(t, err)
	second, err := l.listenOn(memDevice, 0)
	assert.NilError(t, err)
	l.points = append(l.points, second)
	served := make(chan bool)
	go func() {
		l.serve(second)
		close(served)
	}()
	assert.NilError(t, l.Close())
	<-served
	assert.Equal(t, len(log), 0, "logged")
}

// TestAcceptFails has a listener that cannot create connections. Accept returns an error that
// servers treat as temporary, and a later Accept works.
func TestAcceptFails(t *testing.T) {
	l, err := (&ListenConfig{Device: memDevice}).Listen(t.Context(), Network, ":0")
	assert.NilError(t, err)
	defer l.Close()
	ended := make(chan error, 1)
	go func() {
		_, err := l.Accept()
		ended <- err
	}()
	leaktest.Blocked(t, 1, "rdmanet.(*Listener).Accept")
	l.mu.Lock()
	l.hasFailed(acceptError{syscall.ENOMEM}) // as newConn fails without locked memory: the fault lab does it for real
	l.mu.Unlock()
	select {
	case err = <-ended:
	case <-time.After(hostilePatience):
		t.Fatal("still blocked")
	}
	assert.ErrorIs(t, err, syscall.ENOMEM)
	var temporary interface{ Temporary() bool }
	assert.Assert(t, errors.As(err, &temporary) && temporary.Temporary())
	var all sync.WaitGroup
	all.Go(func() {
		c, err := (&Dialer{Device: memDevice}).Dial(context.Background(), Network, l.Addr().String())
		if err == nil {
			c.Close()
		}
	})
	c, err := l.Accept()
	assert.NilError(t, err)
	c.Close()
	all.Wait()
}
