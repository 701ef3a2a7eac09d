package engine

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/godat/godat/internal/perf/result"
)

// Protocol is the version of the messages between client and server. Ends with different versions
// refuse to measure.
const Protocol = 8

// magic is part of the first message of each end. It distinguishes datperf from other programs.
const magic = "datperf"

// Limits on a message, in bytes. strangerLimit applies to a client before its hello. clientLimit
// applies to a client after its hello. serverLimit applies to a server, whose results contain
// distributions.
const (
	strangerLimit = 16 << 10
	clientLimit   = 128 << 10
	serverLimit   = 1 << 20
)

// maxQueued is how many messages of a client may wait until the server processes them. A correct
// client waits for an answer before it has sent that many messages.
const maxQueued = 8

// answerTime is how long an end waits for an answer while no measurement runs.
const answerTime = 90 * time.Second

// message is one line of JSON on the control connection. Kind determines which fields are set.
// Fields that only one end uses are raw, so that the other end does not decode them.
type message struct {
	Kind     string           `json:"kind"`
	Magic    string           `json:"magic,omitempty"`
	Protocol int              `json:"protocol,omitempty"`
	Version  string           `json:"version,omitempty"`
	Text     string           `json:"text,omitempty"`
	Facts    json.RawMessage  `json:"facts,omitempty"` // result.Facts
	Cases    int              `json:"cases,omitempty"`
	Group    uint64           `json:"group,omitempty"` // threads of one client have the same number
	Case     *result.Case     `json:"case,omitempty"`
	Addr     netip.AddrPort   `json:"addr,omitzero"`
	Place    *address         `json:"place,omitempty"` // with --connect exchange, instead of addr and token
	Token    uint64           `json:"token,omitempty"`
	Memory   *remote          `json:"memory,omitempty"`
	Counts   []uint64         `json:"counts,omitempty"`
	Interval *result.Interval `json:"interval,omitempty"`
	End      json.RawMessage  `json:"end,omitempty"`      // result.End without its intervals
	Findings json.RawMessage  `json:"findings,omitempty"` // []doctor.Finding
	Received *int64           `json:"received,omitempty"` // packets that the examined port has received
	Peer     string           `json:"peer,omitempty"`
	Together bool             `json:"together,omitempty"` // wait for msgGo when connected
	Run      json.RawMessage  `json:"run,omitempty"`      // result.Run without its intervals
}

// Kinds of messages, in their order on the connection. Each line says who sends the message, and
// what the message contains or means.
const (
	msgHello   = "hello"   // client: magic, protocol, version, facts, number of cases, group
	msgWelcome = "welcome" // server: the same without the cases, if it accepts the client
	msgExamine = "examine" // client: asks the server to examine its host; server: its findings
	msgMesh    = "mesh"    // client: orders the server to measure a case to another server; server: its run, or an error;
	//                            with Together, the server first sends msgReady and waits for msgGo
	msgCase      = "case"      // client: the next case
	msgReady     = "ready"     // server: it listens at addr for connections with token, or place locates its queue pairs
	msgConnected = "connected" // client: its queue pairs are connected; contains its memory and place
	msgGo        = "go"        // server: it is connected too and begins now
	msgInterval  = "interval"  // server: the operations that it initiated in an interval
	msgSent      = "sent"      // an initiator: its number of operations
	msgFinish    = "finish"    // client: asks the server to end the run now and keep the results so far
	msgEnd       = "end"       // either: its part of the run has ended; its results
	msgError     = "error"     // either: it ends the conversation; the reason
	msgBye       = "bye"       // client: no more cases
	msgAlive     = "alive"     // either: a sign of life
)

// raw encodes v as a field of a message.
func raw(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // cannot happen: v consists of numbers and strings
	}
	return b
}

// readRaw decodes a field of the peer's message, and makes its texts safe to print.
func readRaw[T any](b json.RawMessage) (*T, error) {
	v := new(T)
	if err := json.Unmarshal(b, v); err != nil {
		return nil, err
	}
	result.Clean(v)
	return v, nil
}

type peerError struct{ who, text string }

func (e *peerError) Error() string { return "the " + e.who + " says: " + e.text }

// control is a control connection. One goroutine reads from it; any goroutine may send.
type control struct {
	conn  net.Conn
	peer  string // "client" or "server"
	in    chan message
	done  chan struct{}
	gone  chan struct{} // closed when no more messages will come: the connection is closed, or a message was invalid
	limit atomic.Int64  // largest message in bytes
	heard atomic.Int64  // when the last message came, in nanoseconds since begun; no step of the wall clock moves it

	begun  time.Time
	signs  int                   // number of signs of life received; used by the reading goroutine only
	silent atomic.Pointer[error] // set when the peer has sent nothing for goneTime

	mu  sync.Mutex // serializes sends
	err error      // why the channels in and gone were closed; set before they are closed
}

func newControl(conn net.Conn, peer string) *control {
	k := &control{conn: conn, peer: peer, in: make(chan message, maxQueued), done: make(chan struct{}),
		gone: make(chan struct{}), begun: time.Now()}
	k.limit.Store(serverLimit)
	if peer == "client" {
		k.limit.Store(strangerLimit)
	}
	go k.read()
	return k
}

func (k *control) read() {
	defer close(k.gone)
	defer close(k.in)
	lines := bufio.NewScanner(k.conn)
	lines.Buffer(make([]byte, 4<<10), serverLimit+1)
	lines.Split(k.line)
	for lines.Scan() {
		m, err := parse(lines.Bytes())
		if err != nil {
			k.err = fmt.Errorf("the peer at %v is not a datperf %s: it sent %q", k.conn.RemoteAddr(), k.peer,
				shorten(lines.Bytes()))
			return
		}
		k.heard.Store(int64(time.Since(k.begun)))
		if m.Kind == msgAlive {
			if k.err = k.alive(); k.err != nil {
				return
			}
			continue
		}
		if k.peer == "client" && len(k.in) == cap(k.in) { // only this goroutine sends to k.in
			k.err = fmt.Errorf("the client does not wait for answers: %d unread messages", cap(k.in)+1)
			return
		}
		select {
		case k.in <- m:
		case <-k.done:
			return
		}
	}
	var plain tls.RecordHeaderError
	switch err := lines.Err(); {
	case k.silent.Load() != nil:
		k.err = *k.silent.Load()
	case errors.As(err, &plain) && plain.Conn != nil:
		k.err = errors.New("this server wants a secret: --secret FILE")
		answerPlain(plain.Conn, k.err)
	case errors.Is(err, errTooLong):
		k.err = fmt.Errorf("a message of the %s is longer than %d bytes", k.peer, k.limit.Load())
	default:
		k.err = fmt.Errorf("the %s has gone: %w", k.peer, cmp.Or(err, io.EOF))
	}
}

var errTooLong = errors.New("message too long")

// line is the scanner's split function. It returns errTooLong for a line longer than k.limit.
func (k *control) line(data []byte, atEOF bool) (advance int, token []byte, err error) {
	advance, token, err = bufio.ScanLines(data, atEOF)
	length := advance
	if token == nil {
		length = len(data) // so far
	}
	if int64(length) > k.limit.Load() {
		return 0, nil, errTooLong
	}
	return advance, token, err
}

// parse decodes a message, and makes its texts safe to print.
func parse(line []byte) (m message, err error) {
	if err := json.Unmarshal(line, &m); err != nil {
		return m, err
	}
	if m.Kind == "" || len(m.Counts) > result.MaxQPs {
		return m, errors.New("not a message")
	}
	result.Clean(&m)
	return m, nil
}

func shorten(b []byte) []byte {
	b, _, _ = bytes.Cut(b, []byte("\r"))
	return b[:min(len(b), 60)]
}

func (k *control) close() {
	close(k.done)
	k.conn.Close()
}

// sendTime is how long a send may block because the peer does not read.
const sendTime = 20 * time.Second

func (k *control) send(m message) error { return k.sendFor(m, sendTime) }

func (k *control) sendFor(m message, patience time.Duration) error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.conn.SetWriteDeadline(time.Now().Add(patience))
	if _, err := k.conn.Write(append(b, '\n')); err != nil {
		return fmt.Errorf("the %s has gone: %w", k.peer, err)
	}
	return nil
}

// fail sends err to the peer and returns err. It does not send an error that came from the peer.
func (k *control) fail(err error) error {
	var told *peerError
	if !errors.As(err, &told) {
		k.send(message{Kind: msgError, Text: strings.ReplaceAll(err.Error(), "\n", "; ")})
	}
	return err
}

// expect waits, for at most answerTime, for a message of one of the kinds. It returns errStopped
// when stop is closed.
func (k *control) expect(stop <-chan struct{}, kinds ...string) (message, error) {
	return k.expectFor(answerTime, stop, kinds...)
}

func (k *control) expectFor(patience time.Duration, stop <-chan struct{}, kinds ...string) (message, error) {
	timer := time.NewTimer(patience)
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
		return message{}, fmt.Errorf("no message from the %s for %v", k.peer, patience)
	}
}

// judge returns nil if the message is of one of the kinds. Otherwise it returns an error: a
// *peerError if the peer reported one.
func (k *control) judge(m message, kinds ...string) error {
	for _, kind := range kinds {
		if m.Kind == kind {
			return nil
		}
	}
	if m.Kind == msgError {
		return &peerError{k.peer, m.Text}
	}
	return fmt.Errorf("the %s sent %q, expected %q: different versions of datperf?", k.peer, m.Kind, kinds)
}

// errStopped is the error of a wait that ended because the stop channel was closed.
var errStopped = errors.New("stopped")

// helloTime is how long a server waits for a client's hello. idleTime is how long it waits for the
// client's next case.
const (
	helloTime = 20 * time.Second
	idleTime  = 10 * time.Minute
)

// answerPlain sends an error to a client that did not begin with TLS. Then it reads until the
// client closes, because closing with unread data would discard the answer.
func answerPlain(conn net.Conn, err error) {
	conn.SetDeadline(time.Now().Add(time.Second))
	b, _ := json.Marshal(message{Kind: msgError, Text: err.Error()})
	conn.Write(append(b, '\n'))
	io.CopyN(io.Discard, conn, strangerLimit)
}

// greet sends a client's hello and returns the facts in the server's welcome. It sets the kind,
// magic and protocol of the hello. The caller sets the other fields.
func (k *control) greet(ctx context.Context, patience time.Duration, hello message, warn func(text string)) (
	*result.Facts, error) {
	hello.Kind, hello.Magic, hello.Protocol = msgHello, magic, Protocol
	if err := k.send(hello); err != nil {
		return nil, err
	}
	k.live(warn)
	welcome, err := k.expectFor(patience, ctx.Done(), msgWelcome)
	if err != nil {
		return nil, err
	}
	if welcome.Magic != magic || welcome.Protocol != Protocol {
		return nil, fmt.Errorf("the server speaks protocol %d, this client %d: use the same version of datperf at both ends",
			welcome.Protocol, Protocol)
	}
	facts, err := readRaw[result.Facts](welcome.Facts)
	if err != nil {
		return nil, fmt.Errorf("the server's welcome lacks its facts: %w", err)
	}
	return facts, nil
}

// localAddr returns the address of this end of the control connection. It returns the zero Addr if
// this end has no IP address, as on a pipe.
func (k *control) localAddr() netip.Addr {
	ap, err := netip.ParseAddrPort(k.conn.LocalAddr().String())
	if err != nil {
		return netip.Addr{}
	}
	return ap.Addr()
}

// Each end sends a sign of life every aliveEvery. If an end receives no message from its peer for
// silentTime, it warns. After goneTime without a message it closes the control connection. TCP
// alone does not detect a frozen process, and takes minutes to detect a vanished host.
const (
	aliveEvery = 2 * time.Second
	silentTime = 8 * time.Second
	goneTime   = 30 * time.Second
)

// ErrSilent is the error if a peer was connected, but sends nothing.
var ErrSilent = errors.New("it is frozen, or its host or the network is gone")

// live starts a goroutine that sends signs of life and watches for those of the peer. If the peer
// is silent, the goroutine calls warn once, unless warn is nil. If the connection is a pipe, there
// is no such goroutine, because both ends are in one process.
func (k *control) live(warn func(text string)) {
	if k.conn.RemoteAddr().Network() == "pipe" {
		return
	}
	k.heard.Store(int64(time.Since(k.begun)))
	go func() {
		tick := time.NewTicker(aliveEvery / 2)
		defer tick.Stop()
		for sent := time.Now(); ; {
			select {
			case <-k.done:
				return
			case <-k.gone:
				return
			case <-tick.C:
			}
			silent := time.Since(k.begun) - time.Duration(k.heard.Load())
			if silent > silentTime && warn != nil {
				warn(fmt.Sprintf("nothing was heard from the %s at %v for %v: it is frozen, or its host or the network is gone; "+
					"giving up after %v", k.peer, k.conn.RemoteAddr(), silent.Round(time.Second), goneTime))
				warn = nil
			}
			if silent > goneTime {
				err := fmt.Errorf("nothing was heard from the %s for %v: %w", k.peer, goneTime, ErrSilent)
				k.silent.Store(&err)
				k.conn.Close()
				return
			}
			if time.Since(sent) >= aliveEvery {
				sent = time.Now()
				k.sendFor(message{Kind: msgAlive}, aliveEvery)
			}
		}
	}()
}

// errFlood reports that a peer sent signs of life too often.
var errFlood = errors.New("more signs of life than a living peer sends")

// alive counts a sign of life of the peer, and returns errFlood if there were too many.
func (k *control) alive() error {
	const tolerance = 100
	k.signs++
	if k.signs > tolerance+int(time.Since(k.begun)/(aliveEvery/4)) {
		return errFlood
	}
	return nil
}
