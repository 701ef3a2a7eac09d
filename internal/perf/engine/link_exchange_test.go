package engine

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/internal/perf/result"
)

// exchanged returns a case with --connect exchange on a verbs device, or skips the test.
func exchanged(t *testing.T) result.Case {
	t.Helper()
	if victim() == "mem0" {
		t.Skip("without a verbs device")
	}
	c := result.Default()
	c.Layer, c.Connect, c.Size, c.Iters, c.Verify = result.Cverbs, result.Exchange, 100, 50, true
	return c
}

// Queue pairs connected by an exchange measure like those connected by the connection manager: in
// both directions, and several at once, each with its own peer. The payload of each is verified.
func TestExchange(t *testing.T) {
	base := exchanged(t)
	for _, test := range []string{result.Send, result.Write, result.Read} {
		for _, direction := range []string{result.Out, result.In, result.Both} {
			c := base
			c.Test, c.Direction, c.Mode, c.QPs = test, direction, result.Bandwidth, 3
			doc, err := measure(t, victim(), c)
			assert.NilError(t, err, "%s %s", test, direction)
			for _, f := range doc.Runs[0].Flows() {
				assert.Equal(t, f.Stream.Ops, c.Iters, "%s %s", test, direction)
			}
			assert.Assert(t, doc.Runs[0].Client.Verified+doc.Runs[0].Server.Verified > 0)
		}
	}
	second := base // and a second case of the same conversation
	doc, err := measure(t, victim(), base, second)
	assert.NilError(t, err)
	assert.Equal(t, len(doc.Runs), 2)
}

// Queue pairs of unreliable transports can be connected by an exchange too.
func TestExchangeTransports(t *testing.T) {
	c := exchanged(t)
	if victim() == "loop0" {
		t.Skip("there are no other transports on it")
	}
	c.Verify, c.Stall = false, result.Seconds(time.Minute)
	for _, c.Transport = range []string{result.UC, result.UD} {
		doc, err := measure(t, victim(), c)
		assert.NilError(t, err, c.Transport)
		assert.Equal(t, doc.Runs[0].Client.Initiated.Latency.Count, c.Iters)
	}
}

// --connect exchange with the layer udat is refused, with an error that says why.
func TestExchangeRefused(t *testing.T) {
	for want, spoil := range map[string]func(*result.Case){
		"--connect exchange with --layer udat": func(c *result.Case) { c.Layer = result.UDAT },
		`--connect "cm": must be one of`:       func(c *result.Case) { c.Connect = result.CM },
		`--connect "other": must be one of`:    func(c *result.Case) { c.Connect = "other" },
	} {
		c := result.Default()
		c.Layer, c.Connect = result.Cverbs, result.Exchange
		c.Complete()
		assert.NilError(t, c.Validate())
		spoil(&c)
		assert.ErrorContains(t, c.Validate(), want)
	}
}

// port returns an address of two queue pairs that a peer may send.
func port() address {
	return address{LID: 7, GID: "fe800000000000000000000000000001", MTU: 1024,
		QPs: [][2]uint32{{17, 0}, {max24 - 1, max24}}}
}

// An address that no correct peer has is refused. The error names the field and its limit. This
// applies to each field, of each queue pair. Fields that the other end would not use are not
// checked.
func TestHostileAddress(t *testing.T) {
	for _, global := range []bool{false, true} {
		good := port()
		_, err := good.check(2, global)
		assert.NilError(t, err)
	}
	for name, c := range map[string]struct {
		global bool
		spoil  func(*address)
		want   string
	}{
		"no GID":           {true, func(a *address) { a.GID = "" }, "gid"},
		"a long GID":       {true, func(a *address) { a.GID = strings.Repeat("0", 1000) }, "gid"},
		"no number":        {true, func(a *address) { a.GID = strings.Repeat("xx", 16) }, "gid"},
		"a zero GID":       {true, func(a *address) { a.GID = strings.Repeat("00", 16) }, "gid"},
		"a multicast GID":  {true, func(a *address) { a.GID = "ff" + a.GID[2:] }, "gid"},
		"no LID":           {false, func(a *address) { a.LID = 0 }, "lid 0"},
		"a multicast LID":  {false, func(a *address) { a.LID = maxUnicastLID + 1 }, "lid 49152"},
		"an MTU of 0":      {true, func(a *address) { a.MTU = 0 }, "mtu_bytes 0"},
		"an MTU between":   {true, func(a *address) { a.MTU = 1500 }, "mtu_bytes 1500"},
		"a negative MTU":   {true, func(a *address) { a.MTU = -1024 }, "mtu_bytes -1024"},
		"no queue pairs":   {true, func(a *address) { a.QPs = nil }, "qps: 0 queue pairs, must be 2"},
		"one of two":       {true, func(a *address) { a.QPs = a.QPs[:1] }, "qps: 1 queue pairs, must be 2"},
		"one too many":     {true, func(a *address) { a.QPs = append(a.QPs, a.QPs[0]) }, "qps: 3 queue pairs"},
		"the manager's":    {true, func(a *address) { a.QPs[1][0] = 1 }, "number 1 of queue pair 1"},
		"of multicast":     {true, func(a *address) { a.QPs[1][0] = max24 }, "number 16777215 of queue pair 1"},
		"a long number":    {true, func(a *address) { a.QPs[0][0] = 1 << 24 }, "number 16777216 of queue pair 0"},
		"a long PSN":       {true, func(a *address) { a.QPs[1][1] = 1 << 24 }, "sequence number 16777216 of queue pair 1"},
		"twice the same":   {true, func(a *address) { a.QPs[1][0] = 17 }, "number 17 of queue pair 1 is there twice"},
		"the largest of a": {true, func(a *address) { a.QPs[0][1] = 1<<32 - 1 }, "sequence number 4294967295"},
	} {
		a := port()
		c.spoil(&a)
		_, err := a.check(2, c.global)
		assert.ErrorContains(t, err, c.want, name)
	}
}

// A server refuses a client without an address, or with a wrong one, and serves the next.
func TestHostileExchange(t *testing.T) {
	c := exchanged(t)
	c.Complete()
	dial, log := watched(t, &Server{})
	wrong := port()
	for want, place := range map[string]*address{"did not send the address": nil, "2 queue pairs, must be 1": &wrong} {
		k := newTalk(t, dial())
		k.hello()
		k.say(message{Kind: msgCase, Case: &c})
		ready := k.hear()
		assert.Equal(t, ready.Kind, msgReady, ready.Text)
		_, err := ready.Place.check(1, ready.Place.Global)
		assert.NilError(t, err)
		k.say(message{Kind: msgConnected, Memory: &remote{}, Place: place})
		m := k.hear()
		assert.Equal(t, m.Kind, msgError)
		assert.Assert(t, strings.Contains(m.Text, want), m.Text)
		sessionEnds(t, log)
	}
	_, err := measure(t, victim(), c)
	assert.NilError(t, err)
}

// The longest address, of MaxQPs queue pairs, fits into a client's message.
func TestLongestAddress(t *testing.T) {
	a := address{LID: maxUnicastLID, GID: strings.Repeat("f", 32), Global: true, MTU: 4096}
	for range result.MaxQPs {
		a.QPs = append(a.QPs, [2]uint32{max24, max24})
	}
	text := string(raw(message{Kind: msgConnected, Place: &a, Memory: &remote{1<<64 - 1, 1<<32 - 1}}))
	assert.Assert(t, len(text) < clientLimit, fmt.Sprint(len(text)))
}
