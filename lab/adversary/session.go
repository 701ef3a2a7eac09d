//go:build linux

package main

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/godat/godat/lab/adversary/pattern"
)

// outcome is what became of a session.
type outcome struct {
	seed        uint64
	sent, got   int // frames
	changes     []string
	established bool
	done        int
	failed      int
	finding     error
	log         []string
}

func (o *outcome) String() string {
	return fmt.Sprintf("seed %d: %v\nchanges:\n  %s\nthe last frames:\n  %s", o.seed, o.finding,
		strings.Join(o.changes, "\n  "), strings.Join(o.log, "\n  "))
}

// session has one conversation with the target. All that is random in it comes of the seed; the
// order of what both ends do at the same time does not.
func session(c *child, seed uint64) *outcome {
	rnd := rand.New(rand.NewPCG(seed, 1))
	pick := func(of ...int) int { return of[rnd.IntN(len(of))] }
	p := &peer{seed: seed, rnd: rnd, grants: c.Grants, arrived: make(chan *frame, pick(1, 1, 16, 256)),
		gone: make(chan struct{}),
		quit: make(chan struct{})}
	p.most = 65535
	p.chance = []float64{0, 0.003, 0.01, 0.03, 0.1, 0.3}[rnd.IntN(6)]
	p.pauses = pick(0, 0, 20, 200)
	steps := pick(10, 100, 400, 1500)
	p.choose()
	buffer := pick(4096, 4096, 65536, 1<<20)
	switch pattern.ThemeOf(seed) {
	case pattern.Slow:
		p.pauses, buffer = pick(20, 200, 400), pick(16384, 65536)
		if p.enabled[changeLie], p.enabled[changeEarly] = true, true; rnd.IntN(2) == 0 {
			p.enabled = [changeKinds]bool{changeEarly: true}
		}
	case pattern.Answers:
		if p.enabled[changeLie], p.enabled[changeOld], p.enabled[changeAgain] = true, true, true; rnd.IntN(2) == 0 {
			p.enabled = [changeKinds]bool{changeAgain: true}
		}
	}
	o := &outcome{seed: seed}
	port, passive := 0, rnd.IntN(3) == 0
	var listener *net.TCPListener // of this session: after a reply of revision 1 the target connects again
	if passive {
		if listener, o.finding = net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}); o.finding != nil {
			return o
		}
		defer listener.Close()
		port = listener.Addr().(*net.TCPAddr).Port
	}
	if o.finding = c.begin(seed, port); o.finding != nil {
		return o
	}
	err := p.meet(c, listener, passive, buffer)
	if err == nil {
		err = p.converse(steps)
	}
	close(p.quit)
	if p.tcp != nil {
		p.tcp.Close()
		if p.r != nil {
			<-p.gone
		}
	}
	o.sent, o.got, o.changes, o.log = p.sent, p.got, p.changes, p.log
	report, bad := c.end()
	if report != nil {
		o.established, o.done, o.failed = report.Established, report.Done, report.Failed
	}
	switch {
	case bad != nil:
		o.finding = bad
	case len(report.Unfilled) > 0 && !p.tainted:
		o.finding = finding("the target reports: %q", report.Unfilled)
	case isFinding(err):
		o.finding = err
	}
	return o
}

// meet makes the connection and has the set-up.
func (p *peer) meet(c *child, listener *net.TCPListener, passive bool, buffer int) error {
	if err := p.connect(listener, passive, int(c.Port), buffer); err != nil {
		return err
	}
	p.conn = p.tcp
	p.tcp.SetReadDeadline(time.Now().Add(readLimit))
	defer p.tcp.SetReadDeadline(time.Time{})
	if c.over != nil {
		shake := tls.Client
		if passive {
			shake = tls.Server
		}
		over, begun := shake(p.tcp, c.over), time.Now()
		if err := over.Handshake(); err != nil {
			return finding("the handshake of TLS with %v, after %v: %v", p.tcp.RemoteAddr(), time.Since(begun), err)
		}
		p.conn = over
	}
	return p.begin(passive)
}

// connect makes the TCP connection.
func (p *peer) connect(listener *net.TCPListener, passive bool, port, buffer int) error {
	if passive {
		listener.SetDeadline(time.Now().Add(readLimit))
		conn, err := listener.AcceptTCP()
		if err != nil {
			return finding("the target does not connect: %v", err)
		}
		p.tcp = conn
	} else {
		d := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error { // before TCP says how large it is
			return c.Control(func(fd uintptr) { syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, buffer) })
		}}
		conn, err := d.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			return finding("connect: %v", err)
		}
		p.tcp = conn.(*net.TCPConn)
	}
	p.tcp.SetReadBuffer(buffer)
	return nil
}

// begin has the set-up.
func (p *peer) begin(passive bool) error {
	p.own = p.rnd.IntN(5) > 0
	p.weigh()
	s := setup{flags: flagEnhanced, revision: 2, length: -1, enhanced: true, private: pattern.Private(p.seed)}
	p.in, p.out = 1+p.rnd.IntN(4), 1+p.rnd.IntN(4)
	if p.rnd.IntN(3) == 0 {
		p.in, p.out = 16, 16
	}
	s.in, s.out = uint16(p.in), uint16(p.out)
	if p.rnd.IntN(4) == 0 {
		s.flags |= flagSums
	}
	r := bufio.NewReaderSize(p.conn, 4096)
	var theirs *setup
	var err error
	if passive {
		theirs, err = p.respond(r, &s)
	} else {
		theirs, err = p.initiate(r, &s)
	}
	if err != nil {
		if errors.Is(err, os.ErrDeadlineExceeded) && p.honest() {
			return finding("no set-up of the target in %v", readLimit)
		}
		return err
	}
	p.sums = (s.flags|theirs.flags)&flagSums != 0
	p.out = min(p.out, int(theirs.in))
	if !theirs.enhanced {
		p.out = 1
	}
	p.r = r
	p.tcp.SetReadDeadline(time.Time{})
	go p.listen()
	if p.own {
		return p.greet()
	}
	if !passive { // the initiator sends first
		return p.emit(tagged(opWrite, true, 0, 0, nil))
	}
	return nil
}

func (p *peer) initiate(r *bufio.Reader, s *setup) (*setup, error) {
	if p.own {
		s.flags |= flagOwn | flagVersion
	}
	if err := p.raw(p.setupBytes(s)); err != nil {
		return nil, err
	}
	p.conn.SetReadDeadline(time.Now().Add(p.patience()))
	theirs, err := readSetup(r, true)
	if err != nil {
		return nil, err
	}
	if theirs.flags&flagReject != 0 {
		return nil, errors.New("rejected")
	}
	if p.honest() && p.own != (theirs.flags&flagOwnBack != 0) {
		return nil, finding("a reply with the flags %x to a request with %x", theirs.flags, s.flags)
	}
	return theirs, nil
}

func (p *peer) respond(r *bufio.Reader, s *setup) (*setup, error) {
	theirs, err := readSetup(r, false)
	if err != nil {
		return nil, err
	}
	s.reply = true
	p.in, p.out = min(p.in, int(theirs.out)), min(p.out, int(theirs.in))
	s.in, s.out = uint16(p.in), uint16(p.out)
	if p.own {
		s.flags |= flagOwnBack | flagVersion
	}
	if p.rnd.IntN(20) == 0 {
		s.flags |= flagReject
		p.raw(s.encode())
		return nil, errors.New("rejected")
	}
	return theirs, p.raw(p.setupBytes(s))
}

// patience is how long the target may take for an answer: after a change there need be none.
func (p *peer) patience() time.Duration {
	if p.honest() {
		return readLimit
	}
	return time.Duration(p.rnd.IntN(200)) * time.Millisecond
}

// setupBytes encodes this end's part of the set-up, perhaps with a change.
func (p *peer) setupBytes(s *setup) []byte {
	if p.rnd.Float64() >= p.chance*3 {
		return s.encode()
	}
	switch p.rnd.IntN(7) {
	case 0:
		s.length = p.rnd.IntN(600)
		p.change("set-up: length %d", s.length)
	case 1:
		s.flags ^= 1 << p.rnd.IntN(8)
		p.change("set-up: flags %x", s.flags)
	case 2:
		s.revision = byte(p.rnd.IntN(256))
		p.change("set-up: revision %d", s.revision)
	case 3:
		s.in, s.out = uint16(p.rnd.Uint32()), uint16(p.rnd.Uint32())
		p.change("set-up: depths %x and %x", s.in, s.out)
	case 4:
		s.enhanced = false
		p.change("set-up: no depths")
	case 5:
		p.change("set-up: frames before their time")
		return append(s.encode(), tagged(opWrite, true, p.grants[0].Key, p.grants[0].Address, foreign(8)).encode(false)...)
	default:
		b := s.encode()
		p.change("set-up: cut")
		p.cut = true
		return b[:p.rnd.IntN(len(b))]
	}
	return s.encode()
}
