package engine

import (
	"context"
	"encoding/json"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/internal/perf/result"
)

// A client warns within 10 s that the server is frozen, and gives up after 30 s. With a secret
// it gives up after 8 s.
func TestFrozenServer(t *testing.T) {
	ofNoDevice(t)
	synctest.Test(t, func(t *testing.T) {
		// The peer's kernel takes what is written, as it does for a stopped process.
		frozen := func() net.Conn {
			client, server := newWire().cable()
			t.Cleanup(func() { server.Close() })
			return client
		}
		secret, err := Secure([]byte(strings.Repeat("x", minSecret)))
		assert.NilError(t, err)
		begun := time.Now()
		_, err = secureClient(t.Context(), frozen(), secret)
		assert.ErrorContains(t, err, "nothing was heard from it for 8s: it is frozen")
		assert.Equal(t, time.Since(begun), 8*time.Second)

		begun = time.Now()
		var warned []string
		cl := &Client{Setup: Setup{Device: "mem0"}, Watcher: Watcher{Warn: func(text string) {
			warned = append(warned, text)
			assert.Check(t, time.Since(begun) > silentTime && time.Since(begun) <= 10*time.Second, "%v", time.Since(begun))
		}}}
		_, err = cl.Run(t.Context(), frozen(), many())
		assert.ErrorContains(t, err, "nothing was heard from the server for 30s: it is frozen")
		assert.Check(t, time.Since(begun) <= goneTime+aliveEvery, "%v", time.Since(begun))
		assert.Equal(t, len(warned), 1)
		assert.Assert(t, strings.Contains(warned[0], "nothing was heard from the server at 127.0.0.1:"), warned[0])
	})
}

// The server logs that a client is silent, before it gives up the client.
func TestFrozenClient(t *testing.T) {
	ofNoDevice(t)
	synctest.Test(t, func(t *testing.T) {
		dial, log := bubbled(t, &Server{})
		k := newTalk(t, dial())
		k.hello()
		assert.Assert(t, strings.Contains(<-log, " on mem0"))
		text := <-log
		assert.Assert(t, strings.Contains(text, "nothing was heard from the client at 127.0.0.1:"), text)
		text = <-log
		assert.Assert(t, strings.Contains(text, "for 30s"), text)
	})
}

// A client hears a living server throughout a run in which the server has nothing to report.
func TestLivingServer(t *testing.T) {
	if testing.Short() {
		t.Skip("longer than the silence that warns")
	}
	dial, stop := serving(t)
	defer stop()
	c := result.Default()
	c.Duration, c.Interval, c.Poll = result.Seconds(silentTime+2*aliveEvery), result.Seconds(time.Minute), result.Event
	c.Complete()
	var warned atomic.Bool
	cl := &Client{Setup: Setup{Device: "mem0"}, Watcher: Watcher{Warn: func(string) { warned.Store(true) }}}
	_, err := cl.Run(context.Background(), dial(), Plan{Cases: []result.Case{c}, Repeats: 1})
	assert.NilError(t, err)
	assert.Assert(t, !warned.Load())
}

// bubbled is watched, for a test in a bubble of testing/synctest.
func bubbled(t *testing.T, s *Server) (dial func() net.Conn, log <-chan string) {
	lines := make(chan string, 1000)
	s.Device, s.Log = "mem0", func(text string) { lines <- text }
	w := newWire()
	t.Cleanup(serveOn(t, s, w))
	return func() net.Conn { return w.dial(t) }, lines
}

// A client that lives, and begins a case, but connects no queue pair, ends after a minute.
func TestSetupLimit(t *testing.T) {
	ofNoDevice(t)
	synctest.Test(t, func(t *testing.T) {
		dial, log := bubbled(t, &Server{})
		k := newTalk(t, dial())
		k.hello()
		k.begin()
		begun := time.Now()
		for end := begun.Add(setupTime); time.Now().Before(end); <-time.After(aliveEvery) {
			k.say(message{Kind: msgAlive})
		}
		text := sessionEnds(t, log)
		assert.Assert(t, strings.Contains(text, "the client has not connected within 1m0s"), text)
		assert.Equal(t, time.Since(begun), setupTime)
	})
}

// A client that has said hello but measures nothing gives way to another client. The one that has
// been idle longest gives way first. A client that measures does not give way.
func TestIdleGivesWay(t *testing.T) {
	ofNoDevice(t)
	synctest.Test(t, func(t *testing.T) {
		dial, _ := bubbled(t, &Server{MaxClients: 2})
		busy, idle := newTalk(t, dial()), newTalk(t, dial())
		busy.hello()
		busy.begin()
		idle.hello()
		asks := func() message {
			k := newTalk(t, dial())
			k.say(message{Kind: msgHello, Magic: magic, Protocol: Protocol, Cases: 1})
			m := k.hear()
			if m.Kind == msgWelcome {
				k.begin() // it measures
			}
			return m
		}
		assert.Equal(t, asks().Kind, msgError) // too soon
		time.Sleep(idleGrace)
		assert.Equal(t, asks().Kind, msgWelcome)
		m := idle.hear()
		assert.Assert(t, strings.Contains(m.Text, "this server is full, and the client measured nothing for 5s"), "%+v", m)
		time.Sleep(idleGrace + time.Second)
		assert.Equal(t, asks().Kind, msgError) // both measure
	})
}

// A step of the host's clock must not change a time that datperf measures: no code keeps a time as
// a number of the wall clock, which time.Since cannot correct.
func TestMonotonicClock(t *testing.T) {
	var files []string
	for _, dir := range []string{"..", "../../../cmd/datperf"} {
		assert.NilError(t, filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			if strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
				files = append(files, path)
			}
			return err
		}))
	}
	assert.Assert(t, len(files) > 50)
	for _, file := range files {
		text, err := os.ReadFile(file)
		assert.NilError(t, err)
		for _, wall := range []string{"UnixNano()", "UnixMicro()", "UnixMilli()", ".Unix()", "time.Unix(0", "Round(0)"} {
			assert.Assert(t, !strings.Contains(string(text), wall), "%s: %s", file, wall)
		}
	}
}

// Too many signs of life are an error.
func TestAliveFlood(t *testing.T) {
	dial, log := watched(t, &Server{})
	k := newTalk(t, dial())
	k.hello()
	alive, err := json.Marshal(message{Kind: msgAlive})
	assert.NilError(t, err)
	for range 5000 {
		if _, err := k.conn.Write(append(alive, '\n')); err != nil {
			break // the server has had enough, and hung up
		}
	}
	assert.Assert(t, strings.Contains(sessionEnds(t, log), errFlood.Error()))
}
