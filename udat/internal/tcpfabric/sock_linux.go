//go:build !portablesocket

package tcpfabric

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/godat/godat/udat/internal/softnic"
)

// poller waits for the sockets of a device, and serves them. Its epoll instance is registered with
// the poller of Go's runtime, so that no thread blocks in epoll_wait. The sockets are not
// registered there, so that the runtime does not disturb a caller that polls a socket.
//
// One goroutine at a time leads: only it waits for the sockets and serves them. A Wait of a
// completion queue leads if nobody else does, because a completion that its own goroutine makes
// needs no other goroutine to wake up; a poll of a queue leads for a moment. If neither has led for
// lateLead, the keeper leads, which is a goroutine of the poller, until a Wait or polls ask for the
// lead.
type poller struct {
	fd   int
	file *os.File
	raw  syscall.RawConn
	wait func(uintptr) bool // the method epollWait
	tick func()
	asks atomic.Bool // set by poller.again: tick must be called

	led     atomic.Bool                // somebody leads
	waits   atomic.Int32               // Waits that lead or want to
	free    chan struct{}              // signals that nobody leads
	leader  atomic.Pointer[softnic.CQ] // the queue whose Wait leads; nil: the keeper, or nobody
	keeping atomic.Bool                // the keeper leads
	wanted  atomic.Bool                // the keeper must let a Wait lead
	asleep  atomic.Bool                // the leader waits for the sockets
	late    *time.Timer                // calls lateKeep
	set     atomic.Bool                // late has been set
	since   atomic.Bool                // another has led since late was set
	wake    chan struct{}              // makes the keeper lead
	closing atomic.Bool                // the keeper must end
	done    chan struct{}              // closed when the keeper has ended

	mu    sync.Mutex
	socks map[int32]*sock
	next  int32

	// Only the leader uses these.
	ready [64]unix.EpollEvent
	n     int
	due   []*sock   // sockets to read in this round
	more  []*sock   // sockets to read in the next round
	ticks time.Time // when to call tick next; zero: never
	limit time.Time // the deadline of file
	stale bool      // interrupt may have set another deadline
}

// tickEvery is the time from a call of again to the call of tick.
const tickEvery = time.Millisecond

// lateLead is the time without another leader after which the keeper leads. The timer is not set
// again each time another has led, so it may take twice as long.
const lateLead = time.Millisecond

// newPoller starts a poller and its keeper. A call of poller.again makes the leader call the
// function tick after tickEvery.
func newPoller(tick func()) (*poller, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil { // else Go's runtime does not poll it
		unix.Close(fd)
		return nil, err
	}
	p := &poller{fd: fd, file: os.NewFile(uintptr(fd), "epoll"), tick: tick, free: make(chan struct{}, 1),
		wake: make(chan struct{}, 1), done: make(chan struct{}), socks: make(map[int32]*sock)}
	p.wait = p.epollWait
	if p.raw, err = p.file.SyscallConn(); err != nil {
		p.file.Close()
		return nil, err
	}
	p.late = time.AfterFunc(lateLead, p.lateKeep)
	p.late.Stop()
	go p.keep()
	return p, nil
}

// stop ends the keeper. No Wait may come any more.
func (p *poller) stop() {
	p.closing.Store(true)
	p.file.Close()
	softnic.Ring(p.wake)
	<-p.done
	p.late.Stop()
}

// keep is the keeper.
func (p *poller) keep() {
	defer close(p.done)
	for {
		p.wanted.Store(false)
		p.keeping.Store(true)
		// A Wait that has asked before is only in p.waits.
		p.serve(nil, time.Time{}, func() bool { return p.wanted.Load() || p.waits.Load() > 0 })
		p.keeping.Store(false)
		if p.closing.Load() {
			return
		}
		<-p.wake
	}
}

// lateKeep runs when the timer late fires.
func (p *poller) lateKeep() {
	if p.since.Swap(false) {
		p.late.Reset(lateLead)
		return
	}
	p.set.Store(false) // before the keeper tries to lead: who leads meanwhile sets the timer again
	softnic.Ring(p.wake)
}

// ask makes the keeper let a Wait lead. The channel has a value when the Wait should try to lead
// again. When the Wait ends, it subtracts itself from p.waits.
func (p *poller) ask() (again <-chan struct{}) {
	p.waits.Add(1)
	p.yield()
	return p.free
}

// yield makes the keeper let another lead.
func (p *poller) yield() {
	if p.keeping.Load() {
		p.wanted.Store(true)
		p.interrupt()
	}
}

// take reports whether the caller leads now. Then it must call leave.
func (p *poller) take() bool { return !p.led.Load() && p.led.CompareAndSwap(false, true) }

func (p *poller) leave() {
	p.since.Store(true)
	p.led.Store(false)
	if p.waits.Load() > 0 {
		softnic.Ring(p.free)
	}
	if !p.set.Load() && !p.set.Swap(true) {
		p.late.Reset(lateLead)
	}
}

// poll serves the sockets that are ready, and reports whether there are any. The caller leads.
func (p *poller) poll() bool {
	p.mind()
	p.wait(0)
	any := p.n > 0 || len(p.more) > 0
	p.round()
	return any
}

// serve leads until the function over returns true, the deadline has passed (zero: none), or the
// poller is stopped. It returns false if another leads. The caller is a Wait of the queue c or the
// keeper (nil).
func (p *poller) serve(c *softnic.CQ, deadline time.Time, over func() bool) bool {
	if !p.take() {
		return false
	}
	p.leader.Store(c)
	for open := true; open && !over() && (deadline.IsZero() || time.Now().Before(deadline)); {
		p.mind()
		if p.n = 0; len(p.more) > 0 {
			p.wait(0)
		} else {
			open = p.sleep(deadline, over)
		}
		p.round()
	}
	p.leader.Store(nil)
	p.leave()
	return true
}

// mind calls tick if it is due.
func (p *poller) mind() {
	switch {
	case p.ticks.IsZero():
		if p.asks.Load() && p.asks.Swap(false) {
			p.ticks = time.Now().Add(tickEvery)
		}
	case !time.Now().Before(p.ticks):
		p.ticks = time.Time{}
		p.tick()
	}
}

// sleep waits until a socket is ready, a tick is due, the deadline has passed, or interrupt is
// called. It returns false if the poller is stopped.
func (p *poller) sleep(deadline time.Time, over func() bool) (open bool) {
	until := p.ticks
	if until.IsZero() || !deadline.IsZero() && deadline.Before(until) {
		until = deadline
	}
	if p.stale || !until.Equal(p.limit) {
		p.file.SetReadDeadline(until)
		p.limit, p.stale = until, false
	}
	var err error
	p.asleep.Store(true)
	if !over() && !(p.ticks.IsZero() && p.asks.Load()) { // what comes after this interrupts the wait
		err = p.raw.Read(p.wait)
	}
	p.asleep.Store(false)
	p.stale = errors.Is(err, os.ErrDeadlineExceeded)
	return err == nil || p.stale
}

// epollWait fills ready, and reports whether the wait is over.
func (p *poller) epollWait(uintptr) bool {
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(p.fd), uintptr(unsafe.Pointer(&p.ready[0])),
		uintptr(len(p.ready)), 0, 0, 0)
	p.n = 0
	if errno == 0 {
		p.n = int(n)
	}
	return p.n > 0 || errno != 0 && errno != unix.EINTR
}

// interrupt ends the wait of the leader, if it waits.
func (p *poller) interrupt() {
	if p.asleep.Load() {
		p.file.SetReadDeadline(past)
	}
}

// kick makes a Wait of the queue c check whether it is over. It returns false if no such Wait
// leads.
func (p *poller) kick(c *softnic.CQ) bool {
	if p.leader.Load() != c {
		return false
	}
	p.interrupt()
	return true
}

// A call of again makes the leader call the function tick.
func (p *poller) again() {
	if !p.asks.Swap(true) {
		p.interrupt()
	}
}

// round serves the sockets that are ready, and those that the last round did not read to the end.
func (p *poller) round() {
	p.due, p.more = p.more, p.due[:0]
	for i := range p.ready[:p.n] {
		ev := &p.ready[i]
		p.mu.Lock()
		s := p.socks[ev.Fd]
		p.mu.Unlock()
		if s == nil {
			continue
		}
		if ev.Events&(unix.EPOLLOUT|unix.EPOLLERR|unix.EPOLLHUP) != 0 {
			s.on.writable()
		}
		if ev.Events&^(unix.EPOLLOUT|unix.EPOLLIN) != 0 {
			s.end = true
		}
		if ev.Events&^unix.EPOLLOUT != 0 {
			p.due = append(p.due, s)
		}
	}
	for _, s := range p.due {
		if s.on.readable(s.end) {
			p.more = append(p.more, s)
		}
	}
	for i, s := range p.due {
		s.on.rest()
		p.due[i] = nil
	}
}

// sock is a socket of a poller.
type sock struct {
	p   *poller
	fd  int
	id  int32
	on  events
	end bool // the peer's stream has ended; only the poller uses it

	rd, wr []unix.Iovec
	broke  error // of a write; only the goroutine that writes uses it

	mu     sync.Mutex
	closed bool
}

// adopt takes over the stream from package net, unless it is one of TLS. After an error package net
// still has it.
func (p *poller) adopt(from stream, on events) (socket, error) {
	c, ok := from.(*net.TCPConn)
	if !ok {
		return newStreamSock(from, on), nil
	}
	fd, err := -1, net.ErrClosed
	withFD(c, func(old uintptr) { fd, err = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0) })
	if err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	c.Close()
	s := &sock{p: p, fd: fd, on: on}
	p.mu.Lock()
	for p.next++; p.socks[p.next] != nil; p.next++ {
	}
	s.id = p.next
	p.socks[s.id] = s
	p.mu.Unlock()
	return s, nil
}

func (s *sock) start() error {
	return unix.EpollCtl(s.p.fd, unix.EPOLL_CTL_ADD, s.fd, &unix.EpollEvent{Events: mask, Fd: s.id})
}

func (s *sock) pollable() bool { return true }

// mask is the event mask of a socket in the epoll instance.
const mask = unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP | unix.EPOLLET&(1<<32-1)

func (s *sock) later() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed { // the epoll instance reports all pending events once more
		unix.EpollCtl(s.p.fd, unix.EPOLL_CTL_MOD, s.fd, &unix.EpollEvent{Events: mask, Fd: s.id})
	}
	return true
}

func (s *sock) shut() {
	s.p.mu.Lock()
	delete(s.p.socks, s.id)
	s.p.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	quick(unix.SYS_CLOSE, s.fd, 0) // this also removes the socket from the epoll instance
}

func (s *sock) closeWrite() { quick(unix.SYS_SHUTDOWN, s.fd, unix.SHUT_WR) }

// quick makes a system call that never waits, and so does not announce it to Go's runtime.
func quick(trap uintptr, fd int, arg uintptr) { unix.RawSyscall(trap, uintptr(fd), arg, 0) }

func (s *sock) read(bufs [][]byte) (int, error) {
	n, err := s.call(unix.SYS_READ, unix.SYS_READV, bufs, &s.rd)
	if n == 0 && err == nil {
		err = io.EOF
	}
	return n, err
}

func (s *sock) write(bufs [][]byte) (int, error) {
	n, err := s.call(unix.SYS_WRITE, unix.SYS_WRITEV, bufs, &s.wr)
	if err != nil && !errors.Is(err, errAgain) {
		s.broke = err
	}
	return n, err
}

func (s *sock) broken() error { return s.broke }

func (s *sock) raw(f func(fd uintptr)) { f(uintptr(s.fd)) }

// maxVector is the kernel's UIO_MAXIOV.
const maxVector = 1024

func vector(iov []unix.Iovec, bufs [][]byte) []unix.Iovec {
	for _, b := range bufs[:min(len(bufs), maxVector)] {
		if len(b) > 0 {
			v := unix.Iovec{Base: unsafe.SliceData(b)}
			v.SetLen(len(b))
			iov = append(iov, v)
		}
	}
	return iov
}

// call reads or writes. If there is one buffer, it makes the system call with the number single. If
// there are several, it makes the one with the number vectored. It does not announce the system
// call to Go's runtime, because the system call never waits, and copies for less than a
// millisecond.
func (s *sock) call(single, vectored uintptr, bufs [][]byte, iov *[]unix.Iovec) (int, error) {
	trap, at, n := single, unsafe.Pointer(unsafe.SliceData(bufs[0])), len(bufs[0])
	if len(bufs) > 1 {
		v := vector((*iov)[:0], bufs)
		defer clear(v)
		*iov = v
		trap, at, n = vectored, unsafe.Pointer(unsafe.SliceData(v)), len(v)
	}
	for {
		n, _, errno := unix.RawSyscall(trap, uintptr(s.fd), uintptr(at), uintptr(n))
		switch errno {
		case 0:
			return int(n), nil
		case unix.EAGAIN:
			return 0, errAgain
		case unix.EINTR:
		default:
			return 0, errno
		}
	}
}

// undelivered reports whether TCP has data that the peer's host has not acknowledged, whether the
// peer's window is closed, so that TCP only probes it, and for how long the host has said nothing.
func undelivered(fd uintptr) (data, closed bool, silent time.Duration) {
	i, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil || i.Unacked == 0 && i.Notsent_bytes == 0 {
		return err != nil, false, 0
	}
	closed = i.Unacked == 0 || i.Snd_wnd == 0 && i.Rcv_wnd != 0 // a kernel before 6.2 reports no windows
	return true, closed, time.Duration(i.Last_ack_recv) * time.Millisecond
}

// watchesPeers says that TCP notices that the peer's host has vanished: by the user timeout, and on
// an idle connection by probes. The host answers these even if the peer's program is stopped.
const watchesPeers = true

func setUserTimeout(fd uintptr, unanswered time.Duration) {
	unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(unanswered.Milliseconds()))
}

// segmentSize returns TCP's segment size, or 0 if that is unknown.
func segmentSize(c *net.TCPConn) (size int) {
	withFD(c, func(fd uintptr) { size, _ = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_MAXSEG) })
	return size
}

// setKeepAlive sets the keep-alive of a socket before it connects or listens.
func setKeepAlive(raw syscall.RawConn, k net.KeepAliveConfig) {
	if !k.Enable {
		return
	}
	raw.Control(func(fd uintptr) {
		unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, int(k.Idle/time.Second))
		unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, int(k.Interval/time.Second))
		unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_KEEPCNT, k.Count)
		unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1)
	})
}

// unpace gives a connection within the host TCP's oldest congestion control, which every process
// may choose. If the host's own congestion control is BBR, the kernel sends each segment by a
// timer, even within the host. If unpace fails, the connection stays as it is.
func unpace(c *net.TCPConn) {
	withFD(c, func(fd uintptr) { unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, "reno") })
}
