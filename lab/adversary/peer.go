//go:build linux

package main

import (
	"bufio"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"time"

	"github.com/godat/godat/lab/adversary/pattern"
)

// finding is what must not be: it ends the run.
type findingError struct{ text string }

func (f *findingError) Error() string { return f.text }

func finding(format string, args ...any) error { return &findingError{fmt.Sprintf(format, args...)} }

func isFinding(err error) bool {
	var f *findingError
	return errors.As(err, &f)
}

// peer is the adversary's end of one connection. Its conversation is legal but for the changes.
type peer struct {
	seed   uint64
	rnd    *rand.Rand
	tcp    *net.TCPConn
	conn   net.Conn // TCP, or TLS on it
	r      *bufio.Reader
	sums   bool
	own    bool // both ends speak what only this library has
	grants []pattern.Grant

	arrived chan *frame   // frames of the target
	gone    chan struct{} // closed when the target has ended its stream
	quit    chan struct{} // closed when this end stops reading
	goneErr error         // why, once gone is closed

	chance  float64 // of a change, for each frame
	enabled [changeKinds]bool
	weights [stepKinds]int
	changes []string
	paused  int // steps without reading
	pauses  int // the most steps of a pause
	log     []string
	held    *frame   // a frame that a later one overtakes
	history []*frame // what has been sent
	sent    int
	got     int
	cut     bool // a frame was cut, so nothing more can be sent
	tainted bool // this end may have sent pattern.Secret

	model
}

const (
	logLength     = 300
	historyLength = 64
	writeLimit    = 3 * time.Second
	readLimit     = 20 * time.Second
	drainLimit    = time.Second
)

func (p *peer) note(format string, args ...any) {
	if len(p.log) == logLength {
		p.log = p.log[1:]
	}
	p.log = append(p.log, fmt.Sprintf(format, args...))
}

// change records a change of the legal conversation.
func (p *peer) change(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	p.changes = append(p.changes, text)
	p.note("CHANGE %s", text)
}

func (p *peer) honest() bool { return len(p.changes) == 0 }

// listen reads the target's frames until its stream ends.
func (p *peer) listen() {
	defer close(p.gone)
	for {
		f, err := readFrame(p.r, p.sums)
		if err != nil {
			p.goneErr = err
			return
		}
		select {
		case p.arrived <- f:
		case <-p.quit:
			p.goneErr = net.ErrClosed
			return
		}
	}
}

// raw writes bytes, now and then in pieces.
func (p *peer) raw(b []byte) error {
	p.conn.SetWriteDeadline(time.Now().Add(writeLimit))
	for p.rnd.IntN(8) == 0 && len(b) > 1 {
		n := 1 + p.rnd.IntN(len(b)-1)
		if _, err := p.conn.Write(b[:n]); err != nil {
			return err
		}
		b = b[n:]
	}
	_, err := p.conn.Write(b)
	return err
}

// put sends a frame as it is.
func (p *peer) put(f *frame) error {
	if p.cut {
		return nil
	}
	p.note("-> %v", f)
	if len(p.history) == historyLength {
		p.history = p.history[1:]
	}
	p.history = append(p.history, f)
	p.sent++
	p.tainted = p.tainted || f.tainted()
	p.cut = f.cut > 0
	return p.raw(f.encode(p.sums))
}

// emit sends a legal frame, or what a change makes of it.
func (p *peer) emit(f *frame) error {
	out := []*frame{f}
	if p.rnd.Float64() < p.chance {
		out = p.changed(f)
	}
	if held := p.held; held != nil && len(out) > 0 {
		p.held = nil
		out = append(out, held)
	}
	for _, f := range out {
		if err := p.put(f); err != nil {
			return err
		}
	}
	return nil
}

// wait handles frames of the target until none has come for the time d.
func (p *peer) wait(d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	arrived := p.arrived
	if p.paused > 0 {
		if p.paused--; p.paused == 0 {
			p.grow()
		}
		arrived = nil
	}
	for {
		select {
		case f := <-arrived:
			if err := p.handle(f); err != nil {
				return err
			}
		case <-p.gone:
			for len(p.arrived) > 0 {
				if err := p.handle(<-p.arrived); err != nil {
					return err
				}
			}
			return p.goneErr
		case <-timer.C:
			return nil
		}
	}
}

// grow ends the time of a small receive buffer: TCP takes little at a time with one.
func (p *peer) grow() {
	p.tcp.SetReadBuffer(1 << 20)
}

func (p *peer) handle(f *frame) error {
	p.note("<- %v", f)
	p.got++
	return p.receive(f)
}

// converse takes steps until one end has ended the connection.
func (p *peer) converse(steps int) error {
	for range steps {
		d := time.Duration(0)
		if p.rnd.IntN(3) == 0 || p.paused > 0 {
			d = time.Duration(p.rnd.IntN(400)) * time.Microsecond
		}
		if err := p.wait(d); err != nil {
			return err
		}
		if err := p.step(); err != nil {
			return err
		}
		if p.cut {
			break
		}
	}
	return p.leave()
}

// leave ends the conversation in one of the ways that a peer has.
func (p *peer) leave() error {
	switch p.rnd.IntN(8) {
	case 0, 1, 2, 3: // abrupt
		p.tcp.SetLinger(0)
		return nil
	case 4:
		p.put(terminate(0x0207))
	case 5:
		if p.held != nil {
			p.put(p.held)
		}
		if err := p.wait(time.Millisecond); err != nil {
			return err
		}
	}
	if p.rnd.IntN(3) == 0 {
		return nil
	}
	if err := p.conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		return err
	}
	p.paused = 0
	p.grow()
	begun, latest, got := time.Now(), time.Now(), p.got
	for time.Since(latest) < readLimit {
		if err := p.wait(10 * time.Millisecond); err != nil {
			return err
		}
		if p.got > got {
			latest, got = time.Now(), p.got
			if time.Since(begun) > drainLimit { // it has much to say
				return nil
			}
		}
	}
	return finding("the target does not end its stream %v after the end of this one", readLimit)
}
