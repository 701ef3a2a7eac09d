package engine

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/godat/godat/internal/perf/result"
)

// Protocol is the version of what client and server say to each other. Ends of different protocols refuse to measure.
const Protocol = 2

// magic opens the conversation, so that a stranger is recognized.
const magic = "datperf"

// messageLimit bounds a message.
const messageLimit = 8 << 20

// answerTime bounds the wait for an answer that takes no measuring.
const answerTime = 90 * time.Second

// message is one line of JSON on the control connection. Kind says which fields it has.
type message struct {
	Kind     string           `json:"kind"`
	Magic    string           `json:"magic,omitempty"`
	Protocol int              `json:"protocol,omitempty"`
	Version  string           `json:"version,omitempty"`
	Text     string           `json:"text,omitempty"`
	Facts    *result.Facts    `json:"facts,omitempty"`
	Cases    int              `json:"cases,omitempty"`
	Case     *result.Case     `json:"case,omitempty"`
	Addr     netip.AddrPort   `json:"addr,omitzero"`
	Token    uint64           `json:"token,omitempty"`
	Memory   *remote          `json:"memory,omitempty"`
	Counts   []uint64         `json:"counts,omitempty"`
	Interval *result.Interval `json:"interval,omitempty"`
	End      *result.End      `json:"end,omitempty"`
}

// Kinds of messages, in the order in which they come.
const (
	msgHello     = "hello"     // client: magic, protocol, version, facts, number of cases
	msgWelcome   = "welcome"   // server: the same, to a client that it takes
	msgCase      = "case"      // client: the next case
	msgReady     = "ready"     // server: listens at addr for connections with token
	msgConnected = "connected" // client: all are there; its memory
	msgGo        = "go"        // server: it is connected too, and begins now
	msgInterval  = "interval"  // server: what it initiated in an interval
	msgSent      = "sent"      // an initiator: how many operations there were
	msgFinish    = "finish"    // client: the run shall end now, with what there is
	msgEnd       = "end"       // either: its part is over, what it measured
	msgError     = "error"     // either: the conversation is over, and why
	msgBye       = "bye"       // client: no more cases; server: it quits
	msgQuit      = "quit"      // client: serve nobody any more
)

// peerError is a reason that the other end gave.
type peerError struct{ who, text string }

func (e *peerError) Error() string { return "the " + e.who + " says: " + e.text }

// control is a control connection. One goroutine reads it; all may send.
type control struct {
	conn net.Conn
	peer string // "client" or "server"
	in   chan message
	done chan struct{}

	mu  sync.Mutex // serializes sends
	err error      // why in is closed; to be read once it is
}

func newControl(conn net.Conn, peer string) *control {
	k := &control{conn: conn, peer: peer, in: make(chan message, 16), done: make(chan struct{})}
	go k.read()
	return k
}

func (k *control) read() {
	defer close(k.in)
	lines := bufio.NewScanner(k.conn)
	lines.Buffer(make([]byte, 64<<10), messageLimit)
	for lines.Scan() {
		var m message
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil || m.Kind == "" {
			k.err = fmt.Errorf("what answers at %v is no datperf %s: it says %q", k.conn.RemoteAddr(), k.peer, shorten(lines.Bytes()))
			return
		}
		select {
		case k.in <- m:
		case <-k.done:
			return
		}
	}
	k.err = lines.Err()
	if k.err == nil {
		k.err = io.EOF
	}
	k.err = fmt.Errorf("the %s has gone: %w", k.peer, k.err)
}

func shorten(b []byte) []byte {
	b, _, _ = bytes.Cut(b, []byte("\r"))
	return b[:min(len(b), 60)]
}

func (k *control) close() {
	close(k.done)
	k.conn.Close()
}

// sendTime bounds a send: a peer that does not read is gone.
const sendTime = 20 * time.Second

func (k *control) send(m message) error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.conn.SetWriteDeadline(time.Now().Add(sendTime))
	if _, err := k.conn.Write(append(b, '\n')); err != nil {
		return fmt.Errorf("the %s has gone: %w", k.peer, err)
	}
	return nil
}

// fail tells the peer why the conversation is over, and gives err.
func (k *control) fail(err error) error {
	var told *peerError
	if !errors.As(err, &told) {
		k.send(message{Kind: msgError, Text: err.Error()})
	}
	return err
}

// expect waits for a message of one of the kinds.
func (k *control) expect(stop <-chan struct{}, kinds ...string) (message, error) {
	timer := time.NewTimer(answerTime)
	defer timer.Stop()
	select {
	case m, ok := <-k.in:
		if !ok {
			return m, k.err
		}
		return m, k.judge(m, kinds...)
	case <-stop:
		return message{}, errStopped
	case <-timer.C:
		return message{}, fmt.Errorf("the %s does not answer, for %v", k.peer, answerTime)
	}
}

// judge refuses a message of another kind.
func (k *control) judge(m message, kinds ...string) error {
	for _, kind := range kinds {
		if m.Kind == kind {
			return nil
		}
	}
	if m.Kind == msgError {
		return &peerError{k.peer, m.Text}
	}
	return fmt.Errorf("the %s says %q where %q was expected: not the same datperf?", k.peer, m.Kind, kinds)
}

// errStopped ends what was interrupted at this end.
var errStopped = errors.New("stopped")
