package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
	"unicode"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/internal/perf/result"
)

// victim returns the device of the servers: the one in GODAT_TEST_DEVICE, or mem0.
func victim() string {
	all := devices()
	return all[len(all)-1]
}

// watched starts a server. The channel log receives the lines of its log.
func watched(t *testing.T, s *Server) (dial func() net.Conn, log <-chan string) {
	lines := make(chan string, 1000)
	s.Device, s.Log = victim(), func(text string) { lines <- text }
	dial, stop := serve(t, s)
	t.Cleanup(stop)
	return dial, lines
}

// soon is how long something that happens at once may take on the slowest machine.
const soon = 20 * time.Second

// sessionEnds waits for the log line that says that a session has ended, and returns it.
func sessionEnds(t *testing.T, log <-chan string) string {
	t.Helper()
	for late := time.After(soon); ; {
		select {
		case text := <-log:
			if !strings.Contains(text, " on "+victim()) && !strings.Contains(text, "giving up after") {
				return text
			}
		case <-late:
			t.Fatalf("the session stays")
		}
	}
}

// hello sends a client's hello and waits for the server's welcome.
func (k *talk) hello() {
	k.t.Helper()
	k.say(message{Kind: msgHello, Magic: magic, Protocol: Protocol, Cases: 1})
	assert.Equal(k.t, k.hear().Kind, msgWelcome)
}

// begin sends the default case, and waits until the server is ready for it.
func (k *talk) begin() {
	k.t.Helper()
	c := result.Default()
	c.Complete()
	k.say(message{Kind: msgCase, Case: &c})
	assert.Equal(k.t, k.hear().Kind, msgReady)
}

// closed waits until the server no longer listens.
func (k *talk) closed() {
	k.t.Helper()
	for until := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		conn, err := net.Dial("tcp", k.conn.RemoteAddr().String())
		if err != nil {
			return
		}
		conn.Close()
		assert.Assert(k.t, time.Now().Before(until), "the server still listens")
	}
}

// attach plays the client's part of a case until both ends begin.
func (k *talk) attach(c *result.Case) link {
	k.t.Helper()
	k.hello()
	k.say(message{Kind: msgCase, Case: c})
	lay, _, err := fit(c)
	assert.NilError(k.t, err)
	chosen, err := choose(victim(), netip.Addr{})
	assert.NilError(k.t, err)
	l, err := openLink(c, lay, chosen)
	assert.NilError(k.t, err)
	k.t.Cleanup(func() { l.close() })
	ready := k.hear()
	assert.Equal(k.t, ready.Kind, msgReady, ready.Text)
	l.setRemote(*ready.Memory)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	assert.NilError(k.t, l.connect(ctx, ready.Addr, ready.Token))
	mem := l.memory()
	k.say(message{Kind: msgConnected, Memory: &mem})
	assert.Equal(k.t, k.hear().Kind, msgGo)
	return l
}

// The server refuses a plan that no datperf client would send, before it registers or posts
// anything. The error names the flag that is wrong.
func TestHostilePlans(t *testing.T) {
	dial, _ := watched(t, &Server{})
	for name, c := range map[string]struct {
		spoil func(*result.Case)
		want  string
	}{
		"a window without signal": {func(c *result.Case) {
			c.Test, c.Mode, c.Batch, c.Signal = result.Send, result.Bandwidth, 8, 64
		}, "--signal 64"},
		"verification without signal": {func(c *result.Case) {
			c.Test, c.Mode, c.Verify, c.Signal = result.Read, result.Bandwidth, true, 4
		}, "--signal 4"},
		"an open loop without signal": {func(c *result.Case) {
			c.Test, c.Mode, c.Rate, c.Signal = result.Send, result.Bandwidth, 5, 4
		}, "--signal 4"},
		"more memory than there is": {func(c *result.Case) { c.Test, c.Size, c.QPs = result.Send, 1<<30, 4096 },
			"--size 1073741824"},
		"atomics of another size":   {func(c *result.Case) { c.Test, c.Size = result.FetchAdd, 4 }, "--size 4"},
		"a layer that is not there": {func(c *result.Case) { c.Layer = result.Cverbs }, "--layer cverbs"},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "a layer that is not there" && victim() != "mem0" {
				t.Skip("it is there")
			}
			bad := result.Default()
			bad.Iters = 1
			bad.Complete()
			c.spoil(&bad)
			k := newTalk(t, dial())
			k.hello()
			k.say(message{Kind: msgCase, Case: &bad})
			m := k.hear()
			if m.Kind == msgReady { // taken for good: see what it does
				k.conn.Close()
			}
			assert.Equal(t, m.Kind, msgError)
			assert.Assert(t, strings.Contains(m.Text, c.want), m.Text)
		})
	}
}

// A client that falsely says that its part has ended leaves nothing behind at the server, whether
// it then disconnects or stays.
func TestEarlyEnd(t *testing.T) {
	files := 0
	for _, direction := range result.Directions {
		for _, mode := range result.Modes {
			for _, stays := range []bool{false, true} {
				c := many().Cases[0]
				c.Direction, c.Mode = direction, mode
				if c.Complete(); c.Validate() != nil {
					continue
				}
				t.Run(fmt.Sprintf("%s/%s/stays=%v", direction, mode, stays), func(t *testing.T) {
					dial, log := watched(t, &Server{})
					k := newTalk(t, dial())
					k.attach(&c)
					fmt.Fprintln(k.conn, `{"kind":"end","end":{}}`)
					if !stays {
						k.conn.Close()
					}
					sessionEnds(t, log)
				})
				if files == 0 { // what stays open for good is open now
					files = openFiles()
				}
			}
		}
	}
	for until := time.Now().Add(soon); openFiles() > files; time.Sleep(10 * time.Millisecond) {
		assert.Assert(t, time.Now().Before(until), "%d descriptors instead of %d", openFiles(), files)
	}
}

// openFiles returns the number of this process's descriptors, if the system tells it.
func openFiles() int {
	entries, _ := os.ReadDir("/proc/self/fd")
	return len(entries)
}

// A client that has sent everything, says so and disconnects before the server has received
// everything leaves nothing behind either.
func TestEndAndGone(t *testing.T) {
	dial, log := watched(t, &Server{})
	k := newTalk(t, dial())
	c := many().Cases[0]
	c.Mode = result.Bandwidth
	c.Complete()
	c.Stall = result.Seconds(time.Hour)
	k.attach(&c)
	k.say(message{Kind: msgSent, Counts: []uint64{5}})
	fmt.Fprintln(k.conn, `{"kind":"end","end":{}}`)
	k.conn.Close()
	sessionEnds(t, log)
}

// A client that falsely says that it is connected and then disconnects leaves nothing behind.
// setupTime is far longer than the test waits.
func TestEarlyConnected(t *testing.T) {
	dial, log := watched(t, &Server{})
	k := newTalk(t, dial())
	k.hello()
	k.begin()
	k.say(message{Kind: msgConnected, Memory: &remote{}})
	k.conn.Close()
	assert.Assert(t, strings.Contains(sessionEnds(t, log), "the client has gone"))
}

// clean reports whether a text can be printed to a terminal as one line.
func clean(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) })
}

const nasty = "\x1b[2J\x1b]0;title\x07\r\nforged line\u202e\x00"

// What a client says about itself appears in the server's log as one short line without control
// characters.
func TestClientText(t *testing.T) {
	for _, m := range []message{
		{Kind: msgHello, Magic: magic, Protocol: 99, Version: nasty},
		{Kind: msgError, Text: nasty + strings.Repeat("x", 5000)},
		{Kind: nasty},
	} {
		dial, log := watched(t, &Server{})
		newTalk(t, dial()).say(m)
		text := sessionEnds(t, log)
		assert.Assert(t, clean(text) && len(text) < 4000, "%q", text)
	}
}

// What a server sends (errors, facts, notes) is printed by the client in the same way.
func TestServerText(t *testing.T) {
	for name, script := range map[string][]string{
		"an error":  {`{"kind":"error","text":` + quoted(nasty+strings.Repeat("x", 700_000)) + `}`},
		"a kind":    {`{"kind":` + quoted(nasty) + `}`},
		"a version": {`{"kind":"welcome","magic":"datperf","protocol":9,"version":` + quoted(nasty) + `}`},
		"facts": {
			fmt.Sprintf(`{"kind":"welcome","magic":"datperf","protocol":%d,`, Protocol) +
				fmt.Sprintf(`"facts":{"fabric":"mem","device":%s,"warnings":[%s]}}`, quoted(nasty), quoted(nasty)),
			`{"kind":"error","text":"enough"}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := net.Pipe()
			go func() {
				go io.Copy(io.Discard, b)
				for _, line := range script {
					fmt.Fprintln(b, line)
				}
			}()
			defer b.Close()
			cl := &Client{Setup: Setup{Device: "mem0"}}
			cl.Watcher.Begin = func(_, server *result.Facts) {
				assert.Assert(t, clean(server.Device) && clean(server.Warnings[0]), "%q", server)
			}
			_, err := cl.Run(t.Context(), a, many())
			assert.Assert(t, err != nil && clean(err.Error()) && len(err.Error()) < 4000, "%v", err)
		})
	}
}

func quoted(s string) string {
	b, _ := json.Marshal(s)
	return string(b)
}

// A peer that sends an endless line is cut off, before its hello and after.
func TestUnfinishedLine(t *testing.T) {
	dial, log := watched(t, &Server{})
	for _, hello := range []bool{false, true} {
		k := newTalk(t, dial())
		limit := strangerLimit
		if hello {
			k.hello()
			limit = clientLimit
		}
		part := []byte(strings.Repeat(`{"kind":"`, 1000))
		sent := 0
		for {
			n, err := k.conn.Write(part)
			if sent += n; err != nil {
				break
			}
			assert.Assert(t, sent < 64<<20, "the server takes it all")
		}
		assert.Assert(t, strings.Contains(sessionEnds(t, log), fmt.Sprintf("longer than %d bytes", limit)))
	}
}

// A client that sends more and more without waiting for answers is cut off too. The server does not
// keep its messages.
func TestOutOfTurn(t *testing.T) {
	dial, log := watched(t, &Server{})
	k := newTalk(t, dial())
	k.hello()
	c := result.Default()
	c.Complete()
	k.say(message{Kind: msgCase, Case: &c})
	for range 10 * maxQueued {
		fmt.Fprintln(k.conn, `{"kind":"finish"}`)
	}
	sessionEnds(t, log)
}

// The cases of all clients share the server's memory. A case that does not fit is refused with the
// figures. It fits when another client has gone.
func TestServerMemory(t *testing.T) {
	dial, log := watched(t, &Server{MaxMemory: 48 << 20})
	c := many().Cases[0]
	c.Mode, c.Size, c.Depth, c.RxDepth = result.Bandwidth, 1<<20, 12, 12
	c.Complete()
	first := newTalk(t, dial())
	first.attach(&c)
	for range 3 {
		second := newTalk(t, dial())
		second.hello()
		second.say(message{Kind: msgCase, Case: &c})
		m := second.hear()
		assert.Equal(t, m.Kind, msgError)
		assert.Assert(t, strings.Contains(m.Text,
			"needs 29 MiB of memory at the server, whose --max-memory is 48 MiB, of which other clients use 29 MiB"), m.Text)
		sessionEnds(t, log)
	}
	first.conn.Close()
	sessionEnds(t, log)
	newTalk(t, dial()).attach(&c)

	c.QPs = 40
	third := newTalk(t, dial())
	third.hello()
	third.say(message{Kind: msgCase, Case: &c})
	assert.Equal(t, third.hear().Kind, msgError)
}

// The memory that a case uses in addition to its registered memory is at most what layout.cost
// computes.
func TestCost(t *testing.T) {
	chosen, err := choose("mem0", netip.Addr{})
	assert.NilError(t, err)
	for _, shape := range []result.Case{
		{QPs: 1, Depth: 1, RxDepth: 1}, {QPs: 1, Depth: 16384, RxDepth: 16384}, {QPs: 512, Depth: 1, RxDepth: 1},
		{QPs: 256, Depth: 128, RxDepth: 128, Rate: 1},
	} {
		c := result.Default()
		c.Test, c.Mode, c.Size, c.Iters = result.SendImm, result.Bandwidth, 8, 1
		c.QPs, c.Depth, c.RxDepth, c.Rate = shape.QPs, shape.Depth, shape.RxDepth, shape.Rate
		c.Complete()
		lay, _, err := fit(&c)
		assert.NilError(t, err)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		l, err := openLink(&c, lay, chosen)
		assert.NilError(t, err)
		w := newWorker(&c, lay, l, newShared(), true, fabricMem, nil, nil)
		(&streamer{worker: w}).begin()
		runtime.ReadMemStats(&after)
		taken := int64(after.TotalAlloc - before.TotalAlloc)
		t.Logf("%d queue pairs, depth %d: %d bytes taken, %d reckoned", c.QPs, c.Depth, taken, lay.cost(&c)-int64(lay.total))
		assert.Assert(t, taken <= lay.cost(&c)-int64(lay.total))
		assert.NilError(t, l.close())
	}
}

// The server serves at most MaxClients clients at the same time. Connections without a hello keep
// nobody out, however many they are.
func TestMaxClients(t *testing.T) {
	dial, log := watched(t, &Server{MaxClients: 2})
	for range lobbySize + 50 {
		dial()
	}
	one, two := newTalk(t, dial()), newTalk(t, dial())
	one.hello()
	two.hello()
	three := newTalk(t, dial())
	three.say(message{Kind: msgHello, Magic: magic, Protocol: Protocol, Cases: 1})
	m := three.hear()
	assert.Equal(t, m.Kind, msgError)
	assert.Assert(t, strings.Contains(m.Text, "this server is full: 2 clients (--max-clients)"), m.Text)
	one.say(message{Kind: msgBye})
	for text := ""; !strings.Contains(text, "done, 0 cases"); text = sessionEnds(t, log) {
	}
	newTalk(t, dial()).hello()
}

// A server for one client does not count a stranger as that client. It ends after the client.
func TestOneClient(t *testing.T) {
	dial, log := watched(t, &Server{Clients: 1})
	fmt.Fprintln(dial(), "GET / HTTP/1.1")
	sessionEnds(t, log)
	k := newTalk(t, dial())
	k.hello()
	k.closed()
	k.begin()
}

// The last client of a server with a number of clients leaves the lobby before the server closes
// the lobby.
func TestLastClientLeavesLobby(t *testing.T) {
	s := &Server{Clients: 1}
	dial, _ := watched(t, s)
	k := newTalk(t, dial())
	for entered := false; !entered; time.Sleep(time.Millisecond) {
		s.lobby.mu.Lock()
		if entered = len(s.lobby.conns) == 1; entered {
			break // with the lobby locked: nobody leaves
		}
		s.lobby.mu.Unlock()
	}
	k.say(message{Kind: msgHello, Magic: magic, Protocol: Protocol, Cases: 1})
	select {
	case <-s.quitting:
		t.Error("the lobby is closed while the client is in it")
	case <-time.After(300 * time.Millisecond):
	}
	s.lobby.mu.Unlock()
	assert.Equal(t, k.hear().Kind, msgWelcome)
	k.closed()
	k.begin()
}
