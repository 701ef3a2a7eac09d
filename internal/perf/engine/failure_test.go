package engine

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/internal/perf/result"
)

// patience limits waits that must succeed.
const patience = 60 * time.Second

// talk is one end of a conversation, whose messages the test sends itself.
type talk struct {
	t     *testing.T
	conn  net.Conn
	lines *bufio.Scanner
}

func newTalk(t *testing.T, conn net.Conn) *talk {
	conn.SetDeadline(time.Now().Add(patience))
	s := bufio.NewScanner(conn)
	s.Buffer(nil, serverLimit)
	return &talk{t, conn, s}
}

func (k *talk) say(m message) {
	b, err := json.Marshal(m)
	assert.NilError(k.t, err)
	_, err = k.conn.Write(append(b, '\n'))
	assert.NilError(k.t, err)
}

func (k *talk) hear() (m message) {
	k.t.Helper()
	for m.Kind == "" || m.Kind == msgAlive {
		assert.Assert(k.t, k.lines.Scan(), "the other end said nothing: %v", k.lines.Err())
		m = message{}
		assert.NilError(k.t, json.Unmarshal(k.lines.Bytes(), &m))
	}
	return m
}

// serving starts a server. dial connects to it, and stop ends it and waits until it has ended.
func serving(t *testing.T) (dial func() net.Conn, stop func()) {
	return serve(t, &Server{Setup: Setup{Device: "mem0", Version: "test"}})
}

func serve(t *testing.T, s *Server) (dial func() net.Conn, stop func()) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NilError(t, err)
	return func() net.Conn {
		conn, err := net.Dial("tcp", ln.Addr().String())
		assert.NilError(t, err)
		t.Cleanup(func() { conn.Close() })
		return conn
	}, serveOn(t, s, ln)
}

// serveOn starts a server. stop ends it and waits until it has ended.
func serveOn(t *testing.T, s *Server, ln net.Listener) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, ln) }()
	return func() {
		cancel()
		select {
		case err := <-done:
			assert.NilError(t, err)
		case <-time.After(patience):
			t.Fatal("the server does not end")
		}
	}
}

func TestServerRefuses(t *testing.T) {
	dial, stop := serving(t)
	defer stop()
	bad := result.Default()
	bad.Complete()
	bad.Size = 0
	for name, c := range map[string]struct {
		say  []message
		want string
	}{
		"another protocol": {[]message{{Kind: msgHello, Magic: magic, Protocol: 99, Version: "v9"}},
			"the client is datperf v9 with protocol 99: use the same version at both ends"},
		"a stranger": {[]message{{Kind: msgHello, Protocol: Protocol}}, "not a datperf client"},
		"no hello":   {[]message{{Kind: msgCase}}, `sent "case", expected ["hello"]`},
		"a bad case": {[]message{{Kind: msgHello, Magic: magic, Protocol: Protocol, Cases: 1},
			{Kind: msgCase, Case: &bad}}, "--size 0: must be from 1"},
		"no case": {[]message{{Kind: msgHello, Magic: magic, Protocol: Protocol, Cases: 1}, {Kind: msgCase}},
			"a case message without a case"},
	} {
		t.Run(name, func(t *testing.T) {
			k := newTalk(t, dial())
			for i, m := range c.say {
				k.say(m)
				if i < len(c.say)-1 {
					assert.Equal(t, k.hear().Kind, msgWelcome)
				}
			}
			m := k.hear()
			assert.Equal(t, m.Kind, msgError)
			assert.Assert(t, strings.Contains(m.Text, c.want), m.Text)
		})
	}
	conn := dial() // no JSON at all
	fmt.Fprint(conn, "GET / HTTP/1.1\r\n\r\n")
	assert.Assert(t, strings.Contains(newTalk(t, conn).hear().Text, `is not a datperf client: it sent "GET / HTTP/1.1"`))
}

// many returns a plan that would take forever.
func many() Plan {
	c := result.Default()
	c.Duration, c.Interval = result.Seconds(time.Hour), result.Seconds(20*time.Millisecond)
	c.Complete()
	return Plan{Cases: []result.Case{c}, Repeats: 1}
}

// ready is a link whose operations complete at once, so that its loops never wait.
type ready struct {
	link
	done []done
}

func (r *ready) unsignalled(int) uint32 { return 0 }

func (r *ready) request(qp int, seq uint64, n int, flush bool) error {
	r.done = append(r.done, done{qp: int32(qp), n: uint32(n)})
	return nil
}

func (r *ready) poll(out []done, _ int) (int, error) {
	n := copy(out, r.done)
	r.done = r.done[:copy(r.done, r.done[n:])]
	return n, nil
}

// A loop whose polls always find something is stopped too.
func TestStopWithoutIdling(t *testing.T) {
	for _, mode := range result.Modes {
		c := many().Cases[0]
		c.Test, c.Mode = result.Read, mode
		lay, err := layoutOf(&c)
		assert.NilError(t, err)
		sh, why := newShared(), errors.New("stopped by hand")
		w := newWorker(&c, lay, &ready{}, sh, true, fabricMem, func(result.Interval) {}, nil)
		time.AfterFunc(20*time.Millisecond, func() { sh.abort(why) })
		ended := make(chan error, 1)
		go func() {
			_, err := w.run()
			ended <- err
		}()
		select {
		case err := <-ended:
			assert.Assert(t, errors.Is(err, why), "%v", err)
		case <-time.After(patience):
			t.Fatal("the loop does not end")
		}
	}
}

// A server that shuts down in the middle of a run tells its clients, and ends.
func TestServerShutsDown(t *testing.T) {
	for _, mode := range result.Modes {
		dial, stop := serving(t)
		started := make(chan struct{})
		var once sync.Once
		cl := &Client{Setup: Setup{Device: "mem0"},
			Watcher: Watcher{Interval: func(result.Interval) { once.Do(func() { close(started) }) }}}
		plan := many()
		plan.Cases[0].Mode = mode
		failed := make(chan error, 1)
		go func() {
			_, err := cl.Run(context.Background(), dial(), plan)
			failed <- err
		}()
		select {
		case <-started:
		case err := <-failed:
			t.Fatal(err)
		}
		stop()
		select {
		case err := <-failed:
			assert.Error(t, err, plan.Cases[0].Name()+": the server says: the server is shutting down")
		case <-time.After(patience):
			t.Fatal("the client does not notice")
		}
	}
}

// If a client is interrupted, or its process dies, the server ends the client's run and keeps
// serving.
func TestClientGoes(t *testing.T) {
	dial, stop := serving(t)
	defer stop()
	for _, die := range []bool{false, true} {
		ctx, cancel := context.WithCancel(context.Background())
		conn := dial()
		cl := &Client{Setup: Setup{Device: "mem0"}, Watcher: Watcher{Case: func(int, int, *result.Case, int) {
			time.AfterFunc(50*time.Millisecond, func() {
				if die {
					conn.Close()
				} else {
					cancel()
				}
			})
		}}}
		_, err := cl.Run(ctx, conn, many())
		if die {
			assert.Assert(t, err != nil)
			ended := strings.Contains(err.Error(), "has gone")
			early := strings.Contains(err.Error(), "connection 0") // the server refuses what a slow client still sets up
			assert.Assert(t, ended || early, "%v", err)
		} else {
			assert.Assert(t, errors.Is(err, context.Canceled), "%v", err)
		}
		cancel()
	}
	c := result.Default()
	c.Iters = 10
	c.Complete()
	cl := &Client{Setup: Setup{Device: "mem0"}}
	doc, err := cl.Run(context.Background(), dial(), Plan{Cases: []result.Case{c}, Repeats: 2})
	assert.NilError(t, err)
	assert.Equal(t, len(doc.Runs), 2)
}

// silent is a link on which nothing ever completes.
type silent struct{ link }

func (silent) poll([]done, int) (int, error) { return 0, nil }

func (silent) wait(_ []done, timeout time.Duration) (int, error) {
	time.Sleep(timeout)
	return 0, nil
}

// An end does not wait forever for messages that its peer claims to have sent.
func TestLostMessages(t *testing.T) {
	for _, poll := range result.Polls {
		c := many().Cases[0]
		c.Mode, c.Poll, c.Stall = result.Bandwidth, poll, result.Seconds(100*time.Millisecond)
		lay, err := layoutOf(&c)
		assert.NilError(t, err)
		w := newWorker(&c, lay, silent{}, newShared(), false, fabricMem, nil, nil)
		w.sh.setExpect([]uint64{5})
		_, err = w.run()
		assert.ErrorContains(t, err, "no completion for")
	}
}

// A client that is told to finish keeps the results so far, in every direction, and skips the rest
// of the plan.
func TestFinish(t *testing.T) {
	dial, stop := serving(t)
	defer stop()
	for _, mode := range result.Modes {
		for _, direction := range result.Directions {
			c := many().Cases[0]
			c.Mode, c.Direction, c.Verify = mode, direction, true
			c.Complete()
			if c.Validate() != nil {
				continue
			}
			finish := make(chan struct{})
			var once sync.Once
			cl := &Client{Setup: Setup{Device: "mem0"}, Finish: finish,
				Watcher: Watcher{Interval: func(result.Interval) { once.Do(func() { close(finish) }) }}}
			doc, err := cl.Run(t.Context(), dial(), Plan{Cases: []result.Case{c, c}, Repeats: 1})
			assert.Assert(t, errors.Is(err, ErrFinished), "%v", err)
			assert.Equal(t, len(doc.Runs), 1)
			for _, f := range doc.Runs[0].Flows() {
				assert.Assert(t, f.Stream.Ops > 0)
			}
			assert.DeepEqual(t, doc.Runs[0].Notes, result.Notes{"ended early, by an interrupt"})
		}
	}
}

// A client that is told to finish while the server is silent, before the first run measures
// anything, ends at once, and says so to the server.
func TestFinishBeforeMeasuring(t *testing.T) {
	a, b := net.Pipe()
	finish := make(chan struct{})
	failed := make(chan error, 1)
	go func() {
		cl := &Client{Setup: Setup{Device: "mem0"}, Finish: finish}
		_, err := cl.Run(t.Context(), a, many())
		failed <- err
	}()
	k := newTalk(t, b) // it waits for less time than the client would
	assert.Equal(t, k.hear().Kind, msgHello)
	k.say(message{Kind: msgWelcome, Magic: magic, Protocol: Protocol, Facts: raw(result.Facts{Fabric: fabricMem})})
	assert.Equal(t, k.hear().Kind, msgCase)
	close(finish)
	m := k.hear()
	assert.Equal(t, m.Kind, msgError)
	assert.Equal(t, m.Text, ErrFinished.Error())
	assert.Assert(t, errors.Is(<-failed, ErrFinished))
}

// Several clients are served at the same time.
func TestClientsAtOnce(t *testing.T) {
	dial, stop := serving(t)
	defer stop()
	errs := make(chan error)
	const clients = 4
	for range clients {
		conn := dial()
		go func() {
			c := result.Default()
			c.Mode, c.Iters, c.Verify, c.Size, c.Poll = result.Bandwidth, 500, true, 1000, result.Event
			c.Complete()
			cl := &Client{Setup: Setup{Device: "mem0"}}
			_, err := cl.Run(context.Background(), conn, Plan{Cases: []result.Case{c}, Repeats: 1})
			errs <- err
		}()
	}
	for range clients {
		assert.NilError(t, <-errs)
	}
}

// A client that opens a control connection but connects no queue pair does not keep the server
// forever. One that says that it gives up does not keep the server at all.
func TestSetupEnds(t *testing.T) {
	dial, stop := serving(t)
	defer stop()
	k := newTalk(t, dial())
	k.hello()
	k.begin()
	k.say(message{Kind: msgError, Text: "I cannot"})
	assert.Assert(t, !k.lines.Scan(), "the server keeps talking: %q", k.lines.Text())
}

// check notices wrong data: every byte counts.
func TestPayload(t *testing.T) {
	for _, size := range []int{1, 7, 8, 9, 64, 1001} {
		b := make([]byte, size)
		fill(b, 3, 77)
		assert.NilError(t, check(b, 3, 77))
		for i := range b {
			b[i] ^= 0x10
			assert.ErrorContains(t, check(b, 3, 77),
				fmt.Sprintf("message 77 of queue pair 3, %d bytes, differs from byte", size))
			b[i] ^= 0x10
		}
		if size >= 8 {
			assert.Assert(t, check(b, 3, 78) != nil)
			assert.Assert(t, check(b, 2, 77) != nil)
		}
	}
}

// If the memory does not contain what was sent, verification fails, in every kind of test.
func TestCorruptionIsSeen(t *testing.T) {
	chosen, err := choose("mem0", netip.Addr{})
	assert.NilError(t, err)
	for _, test := range []string{result.Send, result.Write, result.Read} {
		c := result.Default()
		c.Test, c.Mode, c.Iters, c.Verify, c.Size = test, result.Bandwidth, 300, true, 512
		c.Complete()
		lay, _, err := fit(&c)
		assert.NilError(t, err)
		l, err := openLink(&c, lay, chosen)
		assert.NilError(t, err)
		w := newWorker(&c, lay, l, newShared(), true, fabricMem, nil, nil)
		w.sh.setExpect([]uint64{8})
		switch test {
		case result.Read:
			err = w.verifyResults(0, 0, 8)
		case result.Write:
			w.initOps = false
			err = w.verifyTargets()
		default:
			err = w.gotMessage(&done{recv: true, n: 512})
		}
		assert.ErrorContains(t, err, "wrong payload", test)
		assert.NilError(t, l.close())
	}
}

// Nothing is left behind: neither goroutines nor adapters.
func TestNoLeaks(t *testing.T) {
	before := runtime.NumGoroutine()
	c := result.Default()
	c.Iters, c.QPs = 20, 3
	_, err := measure(t, "mem0", c)
	assert.NilError(t, err)
	for until := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > before; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(until) {
			buf := make([]byte, 1<<20)
			t.Fatalf("%d goroutines instead of %d:\n%s", runtime.NumGoroutine(), before, buf[:runtime.Stack(buf, true)])
		}
	}
}

// A run that fails keeps the intervals of both ends in the document, which says how many runs were
// planned and why they are not all in it.
func TestFailedRunKeepsIntervals(t *testing.T) {
	dial, stop := serving(t)
	defer stop()
	plan := many()
	plan.Cases[0].Mode, plan.Cases[0].Direction, plan.Repeats = result.Bandwidth, result.Both, 3
	ctx, cancel := context.WithCancelCause(t.Context())
	seen := map[string]int{}
	why := errors.New("stopped by hand")
	cl := &Client{Setup: Setup{Device: "mem0"}, Watcher: Watcher{Interval: func(iv result.Interval) {
		if seen[iv.End]++; seen[clientEnd] >= 2 && seen[serverEnd] >= 2 {
			cancel(why)
		}
	}}}
	doc, err := cl.Run(ctx, dial(), plan)
	assert.Assert(t, errors.Is(err, why), "%v", err)
	assert.Equal(t, len(doc.Runs), 0)
	lost := doc.Incomplete
	assert.Assert(t, lost != nil)
	assert.Equal(t, lost.String(), "the plan of 3 runs is incomplete: stopped by hand")
	assert.Equal(t, lost.Repeat, 1)
	assert.Equal(t, lost.Case.Mode, result.Bandwidth)
	kept := map[string]int{}
	for _, iv := range lost.Intervals {
		kept[iv.End]++
	}
	assert.Assert(t, kept[clientEnd] >= 2 && kept[serverEnd] >= 2, "%v", kept)
	var b bytes.Buffer
	assert.NilError(t, doc.Write(&b))
	back, err := result.Parse(b.Bytes())
	assert.NilError(t, err)
	assert.Equal(t, len(back.Incomplete.Intervals), len(lost.Intervals))
}
