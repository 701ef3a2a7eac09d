package engine

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/cverbs"
	"github.com/godat/godat/internal/perf/result"
)

// fuzzCase is a case of a conversation, as a client writes it.
func fuzzCase(change func(*result.Case)) string {
	c := result.Default()
	change(&c)
	c.Complete()
	b, _ := json.Marshal(message{Kind: msgCase, Case: &c})
	return string(b)
}

const fuzzHello = `{"kind":"hello","magic":"datperf","protocol":3,"version":"v1","facts":{"host":"h"},"cases":2}`

// conversations returns what a client may send, from correct to hostile.
func conversations() []string {
	lines := func(all ...string) string { return strings.Join(all, "\n") + "\n" }
	small := fuzzCase(func(c *result.Case) { c.Iters = 1 })
	return []string{
		"GET / HTTP/1.1\r\n\r\n",
		lines(fuzzHello, `{"kind":"bye"}`),
		lines(fuzzHello, small, `{"kind":"connected","memory":{"addr":1,"key":2}}`,
			`{"kind":"sent","counts":[18446744073709551615]}`, `{"kind":"end","end":{}}`),
		lines(fuzzHello, small, `{"kind":"error","text":"\u001b[2J\n"}`),
		lines(fuzzHello, strings.Replace(small, `"verify":false`, `"verify":true`, 1)),
		lines(fuzzHello, strings.Replace(small, `"queue_pairs":1`, `"queue_pairs":4096`, 1)),
		lines(fuzzHello, strings.Replace(small, `"size_bytes":2`, `"size_bytes":1073741824`, 1)),
		lines(fuzzHello, `{"kind":"case"}`),
		lines(`{"kind":"hello","magic":"datperf","protocol":99,"version":"\u202e\u0007"}`),
		lines(fuzzHello, `{"kind":"interval","interval":{"start_s":-1e9}}`, `{"kind":"sent","counts":[1]}`,
			`{"kind":"finish"}`),
		`{"kind":"` + strings.Repeat("x", strangerLimit),
	}
}

// FuzzServer connects a server to a client that sends anything. When the client has gone, the
// server's conversation must end. The server must answer in messages only, and must log no control
// character.
func FuzzServer(f *testing.F) {
	for _, text := range conversations() {
		f.Add([]byte(text))
	}
	chosen, err := choose("mem0", netip.Addr{})
	assert.NilError(f, err)
	f.Fuzz(func(t *testing.T, said []byte) {
		s := &Server{Setup: Setup{chosen: &chosen},
			Log: func(text string) { assert.Assert(t, clean(text) && len(text) < 20000, "%q", text) }}
		s.memory = &budget{limit: 32 << 20}
		a, b := net.Pipe()
		served := make(chan struct{})
		go func() {
			defer close(served)
			s.serve(context.Background(), b)
		}()
		heard := make(chan struct{})
		go func() {
			defer close(heard)
			for lines := bufio.NewScanner(a); lines.Scan(); {
				m, err := parse(lines.Bytes())
				assert.Check(t, err, "%q", lines.Text())
				assert.Check(t, clean(m.Text), "%q", m.Text)
			}
		}()
		io.Copy(a, strings.NewReader(string(said)))
		a.Close()
		select {
		case <-served:
		case <-time.After(patience):
			t.Fatal("the server does not notice that the client has gone")
		}
		<-heard
		assert.Equal(t, s.memory.used, int64(0))
	})
}

// FuzzMessage parses a line of the control connection. The result must be safe to print, and can be
// encoded again.
func FuzzMessage(f *testing.F) {
	for _, text := range conversations() {
		for line := range strings.Lines(text) {
			f.Add([]byte(line))
		}
	}
	f.Add([]byte(`{"kind":"welcome","facts":{"device":"\u001b","warnings":["\n"]}}`))
	f.Add([]byte(`{"kind":"end","end":{"initiated":{"latency":{"percentiles":[{"percentile":50,"value_ns":1}]}},` +
		`"counters":{"\u0000":1}}}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		m, err := parse(line)
		if err != nil {
			return
		}
		for _, text := range []string{m.Kind, m.Magic, m.Version, m.Text} {
			assert.Assert(t, clean(text) && len(text) <= 2010, "%q", text)
		}
		if facts, err := readRaw[result.Facts](m.Facts); err == nil {
			for _, text := range append(facts.Warnings, facts.Device, facts.Chosen) {
				assert.Assert(t, clean(text), "%q", text)
			}
		}
		if end, err := readRaw[result.End](m.End); err == nil {
			for name := range end.Counters {
				assert.Assert(t, clean(name), "%q", name)
			}
		}
		_, err = json.Marshal(m)
		assert.NilError(t, err)
	})
}

// FuzzPerftest exchanges all messages of perftest's programs with a peer that sends anything.
// Accepted values must be within the ranges of their types, and errors must be safe to print.
func FuzzPerftest(f *testing.F) {
	q := queuePair{lid: 1, reads: 16, num: 0x123456, psn: 0xfedcba, remote: remote{Addr: 1 << 47, Key: 7}}
	for _, gids := range []bool{false, true} {
		said := append([]byte(perftestVersion), make([]byte, 16-len(perftestVersion))...)
		said = append(said, 0, 0, 0, 1, '5', 0)
		said = append(append(said, q.encode(gids)...), make([]byte, 40)...)
		f.Add(said, gids)
		f.Add(said[:30], gids)
		f.Add(bytes.ReplaceAll(said, []byte(":"), []byte("\x1b")), gids)
	}
	f.Add([]byte("0x1p-2\x00\x1b[2J........."), false)
	f.Fuzz(func(t *testing.T, said []byte, gids bool) {
		a, b := net.Pipe()
		go func() {
			go io.Copy(io.Discard, b)
			b.Write(said)
			b.Close()
		}()
		defer a.Close()
		x := &exchange{conn: a, client: true, gids: gids}
		_, err := x.versions()
		if err == nil {
			_, err = x.number("number", 1)
		}
		if err == nil {
			var mtu cverbs.MTU
			if mtu, err = x.mtu(3); err == nil {
				assert.Assert(t, mtu.Bytes() > 0 && mtu <= 3)
			}
		}
		var peers []queuePair
		if err == nil {
			peers, err = x.queuePairs("queue pairs", []queuePair{q})
		}
		if err == nil {
			assert.Assert(t, peers[0].num < 1<<24 && peers[0].psn < 1<<24 && peers[0].lid < 1<<16)
			_, err = x.report(perftestReport{})
		}
		assert.Assert(t, err == nil || clean(err.Error()), "%q", err)
	})
}
