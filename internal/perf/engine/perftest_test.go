package engine

import (
	"context"
	"math"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/cverbs"
	"github.com/godat/godat/internal/perf/result"
)

// TestPerftestQueuePair: this end can read what it writes, and the lengths are those that perftest
// expects. What a peer sends is checked.
func TestPerftestQueuePair(t *testing.T) {
	q := queuePair{lid: 7, reads: 16, num: 0x12, psn: 0xabcdef, remote: remote{Addr: 0x7f0000001000, Key: 0x1234},
		gid: cverbs.GID{10: 0xff, 11: 0xff, 12: 10, 15: 1}}
	for gid, length := range map[bool]int{true: 108, false: 59} {
		b := q.encode(gid)
		assert.Equal(t, len(b), length)
		var back queuePair
		assert.NilError(t, back.decode(b, gid))
		want := q
		if !gid {
			want.gid = cverbs.GID{}
		}
		assert.Equal(t, back, want)
		assert.ErrorContains(t, back.decode(make([]byte, length), gid), "fields instead of")
		for _, bad := range []string{"1abcdef", "abcdeg", ""} {
			text := strings.Replace(string(b), "abcdef", bad, 1)
			assert.ErrorContains(t, back.decode([]byte(text), gid), "field 4 is not")
		}
	}
}

// TestPerftestStrangers: an unsupported version is named, a program that is not perftest is
// recognized, and a peer that disconnects is reported.
func TestPerftestStrangers(t *testing.T) {
	padded := func(version string) string { return version + strings.Repeat("\x00", 16-len(version)) }
	for _, taken := range []string{"5.70", "5.96", "6.06", "6.28", "6.29"} {
		a, b := net.Pipe()
		go func() {
			own := make([]byte, 16)
			b.Read(own)
			b.Write([]byte(padded(taken)))
			b.Close()
		}()
		version, err := (&exchange{conn: a, client: true}).versions()
		assert.NilError(t, err)
		assert.Equal(t, version, taken)
		a.Close()
	}
	for _, c := range []struct{ sent, want string }{
		{padded("5.69"), "the peer is perftest 5.69, datperf can talk to 5.70 to 6.29"},
		{padded("6.30"), "the peer is perftest 6.30, datperf can talk to 5.70 to 6.29"},
		{padded("6.3"), "the peer is perftest 6.3, datperf can talk to"},
		{padded("10.00"), "the peer is perftest 10.00, datperf can talk to"},
		{padded("NaN"), `the peer is not a program of perftest: its version is "NaN"`},
		{"SSH-2.0-OpenSSH_9", `the peer is not a program of perftest: its version is "SSH-2.0-OpenSSH_"`},
		{"6.06", "it closed the connection"},
	} {
		a, b := net.Pipe()
		go func() {
			b.SetDeadline(time.Now().Add(30 * time.Second))
			b.Read(make([]byte, 16))
			b.Write([]byte(c.sent))
			b.Close()
		}()
		_, err := (&exchange{conn: a, client: true}).versions()
		assert.ErrorContains(t, err, c.want)
		a.Close()
	}
}

// TestPerftestFinish: Finish also ends a run that waits for its peer.
func TestPerftestFinish(t *testing.T) {
	cl := &Client{}
	if _, err := cl.chooseVerbs(netip.Addr{}); err != nil {
		t.Skip(err)
	}
	c := result.Default()
	c.Layer = result.Cverbs
	c.Complete()
	near, far := net.Pipe() // far says nothing
	defer far.Close()
	finish := make(chan struct{})
	cl.Finish = finish
	time.AfterFunc(100*time.Millisecond, func() { close(finish) })
	ended := make(chan error, 1)
	go func() {
		_, err := cl.Perftest(context.Background(), near, Plan{Cases: []result.Case{c}, Repeats: 1}, true)
		ended <- err
	}()
	select {
	case err := <-ended:
		assert.ErrorIs(t, err, errPerftestEnded)
	case <-time.After(soon):
		t.Fatal("the run goes on")
	}
}

// TestPerftestFigures: a peer's figures arrive, and impossible ones are refused.
func TestPerftestFigures(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	done := make(chan error, 1)
	own := perftestReport{size: 65536, iters: 1000, peak: 3, average: 2, messages: 1}
	go func() {
		_, err := (&exchange{conn: b}).report(own)
		done <- err
	}()
	got, err := (&exchange{conn: a, client: true}).report(perftestReport{})
	assert.NilError(t, err)
	assert.Equal(t, got, own)
	assert.NilError(t, got.check())
	assert.NilError(t, <-done)
	for want, bad := range map[string]perftestReport{
		"NaN is impossible": {average: math.NaN()}, "+Inf is impossible": {average: math.Inf(1)},
		"-1 is impossible": {messages: -1},
	} {
		assert.ErrorContains(t, bad.check(), want)
	}
}
