package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/godat/godat/internal/perf/result"
)

// tcpLink sends messages over plain TCP sockets, one for each queue pair, to compare TCP with RDMA
// by the same loops and clock. A request completes when the kernel has taken all its bytes. Nothing
// blocks: the loop reads and writes when it polls.
type tcpLink struct {
	c    *result.Case
	lay  layout
	addr netip.Addr // address of the device, to listen on and to connect from
	buf  []byte
	ln   *net.TCPListener
	ends []tcpEnd
	signals
	ready []done // completions that poll has not returned yet
	iovs  [][]byte
	fds   []unix.PollFd
}

// tcpEnd is this end of one connection.
type tcpEnd struct {
	conn *net.TCPConn
	fd   int

	sends          []tcpSend // requests whose bytes the kernel has not taken yet
	sent           int       // bytes of the first of them that it has taken
	posted         int       // receives
	received, have int       // whole messages; bytes of the next one
}

type tcpSend struct {
	at        int
	signalled uint32 // number of requests that complete with it; 0: none
}

// tcpVector is the number of messages in one system call.
const tcpVector = 8

func openTCP(c *result.Case, lay layout, chosen choice) (link, error) {
	addr, err := netip.ParseAddr(chosen.Addr)
	if err != nil {
		return nil, fmt.Errorf("--layer tcp: %s has no IP address", chosen.Name)
	}
	return &tcpLink{c: c, lay: lay, addr: addr, buf: pageAligned(lay.total), ends: make([]tcpEnd, c.QPs),
		signals: newSignals(c), fds: make([]unix.PollFd, c.QPs)}, nil
}

func (l *tcpLink) memory() remote     { return remote{} }
func (l *tcpLink) bytes() []byte      { return l.buf }
func (l *tcpLink) setRemote(remote)   {}
func (l *tcpLink) path() *result.Path { return nil }

func (l *tcpLink) close() error {
	var errs []error
	if l.ln != nil {
		errs = append(errs, l.ln.Close())
	}
	for _, e := range l.ends {
		if e.conn != nil {
			errs = append(errs, e.conn.Close())
		}
	}
	return errors.Join(errs...)
}

func (l *tcpLink) listen() (at netip.AddrPort, err error) {
	if l.ln, err = net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(l.addr, 0))); err != nil {
		return at, err
	}
	return netip.AddrPortFrom(l.addr, l.ln.Addr().(*net.TCPAddr).AddrPort().Port()), nil
}

func (l *tcpLink) accept(ctx context.Context, token uint64) error {
	defer context.AfterFunc(ctx, func() { l.ln.SetDeadline(time.Unix(1, 0)) })()
	for up := 0; up < len(l.ends); {
		conn, err := l.ln.AcceptTCP()
		if err != nil {
			if ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			return fmt.Errorf("waiting for the client's connections, %d of %d are there: %w", up, len(l.ends), err)
		}
		private := make([]byte, privateSize)
		conn.SetReadDeadline(time.Now().Add(reasonTime)) // a stranger holds the others up no longer
		_, err = io.ReadFull(conn, private)
		qp, e := parsePrivate(private, token, len(l.ends))
		if err != nil || e != nil || l.ends[qp].conn != nil {
			conn.Close()
			continue
		}
		if err := l.adopt(qp, conn); err != nil {
			return err
		}
		up++
	}
	return nil
}

func (l *tcpLink) connect(ctx context.Context, to netip.AddrPort, token uint64) error {
	dialer := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(l.addr, 0))}
	for qp := range l.ends {
		conn, err := dialer.DialContext(ctx, "tcp", to.String())
		if err == nil {
			if err = l.adopt(qp, conn.(*net.TCPConn)); err == nil {
				_, err = conn.Write(makePrivate(token, qp))
			}
		}
		if err != nil {
			return fmt.Errorf("connection %d to %v: %w", qp, to, err)
		}
	}
	return nil
}

// adopt takes a connection. Its descriptor is valid until close.
func (l *tcpLink) adopt(qp int, conn *net.TCPConn) error {
	l.ends[qp].conn = conn
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	return raw.Control(func(fd uintptr) {
		l.ends[qp].fd, l.fds[qp].Fd = int(fd), int32(fd)
		if tos, ok := l.c.TOS.Get(); ok {
			unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_TOS, tos)
			unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_TCLASS, tos)
		}
	})
}

func (l *tcpLink) request(qp int, seq uint64, n int, flush bool) error {
	e := &l.ends[qp]
	for i := range n {
		count, signalled := l.next(qp, flush && i == n-1)
		if !signalled {
			count = 0
		}
		e.sends = append(e.sends, tcpSend{l.lay.tx.at(qp, seq+uint64(i)), count})
	}
	return l.write(qp)
}

func (l *tcpLink) receive(qp int, _ uint64, n int) error {
	l.ends[qp].posted += n
	return nil
}

// try does a read or write of a vector. It returns 0 if the socket is not ready.
func (l *tcpLink) try(call func(int, [][]byte) (int, error), fd int) (int, error) {
	switch n, err := call(fd, l.iovs); {
	case err == unix.EAGAIN || err == unix.EINTR:
		return 0, nil
	case err != nil:
		return 0, err
	case n == 0:
		return 0, fmt.Errorf("the peer has closed the connection: %w", io.EOF)
	default:
		return n, nil
	}
}

// write writes what the kernel takes of a connection's requests.
func (l *tcpLink) write(qp int) error {
	for e := &l.ends[qp]; len(e.sends) > 0; {
		l.iovs = l.iovs[:0]
		for i, s := range e.sends[:min(len(e.sends), tcpVector)] {
			from := 0
			if i == 0 {
				from = e.sent
			}
			l.iovs = append(l.iovs, l.buf[s.at+from:s.at+l.lay.size])
		}
		n, err := l.try(unix.Writev, e.fd)
		if n == 0 || err != nil {
			return err
		}
		whole := 0
		for e.sent += n; e.sent >= l.lay.size; e.sent -= l.lay.size {
			if count := e.sends[whole].signalled; count > 0 {
				l.ready = append(l.ready, done{qp: int32(qp), n: count})
			}
			whole++
		}
		e.sends = append(e.sends[:0], e.sends[whole:]...)
	}
	return nil
}

// read reads messages into the receives of a connection.
func (l *tcpLink) read(qp int) error {
	e := &l.ends[qp]
	l.iovs = l.iovs[:0]
	for i := range min(e.posted, tcpVector) {
		at, from := l.lay.rx.at(qp, uint64(e.received+i)), 0
		if i == 0 {
			from = e.have
		}
		l.iovs = append(l.iovs, l.buf[at+from:at+l.lay.size])
	}
	if len(l.iovs) == 0 {
		return nil
	}
	n, err := l.try(unix.Readv, e.fd)
	for e.have += n; e.have >= l.lay.size; e.have -= l.lay.size {
		l.ready = append(l.ready, done{recv: true, qp: int32(qp), n: uint32(l.lay.size),
			slot: uint32(l.lay.rx.slot(uint64(e.received)))})
		e.received++
		e.posted--
	}
	return err
}

func (l *tcpLink) poll(out []done, _ int) (int, error) {
	for qp := range l.ends {
		if err := errors.Join(l.write(qp), l.read(qp)); err != nil {
			return 0, fmt.Errorf("queue pair %d: %w", qp, err)
		}
	}
	n := copy(out, l.ready)
	l.ready = append(l.ready[:0], l.ready[n:]...)
	return n, nil
}

func (l *tcpLink) wait(out []done, timeout time.Duration) (int, error) {
	if n, err := l.poll(out, 1); n > 0 || err != nil {
		return n, err
	}
	for qp := range l.ends {
		l.fds[qp].Events = unix.POLLIN
		if len(l.ends[qp].sends) > 0 {
			l.fds[qp].Events |= unix.POLLOUT
		}
	}
	limit := unix.NsecToTimespec(int64(timeout))
	if _, err := unix.Ppoll(l.fds, &limit, nil); err != nil && err != unix.EINTR {
		return 0, err
	}
	return l.poll(out, 1)
}
