package udat_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
	"github.com/godat/godat/udat/internal/memfabric"
)

// onMem runs a test on the fabric inside this process, whose faults it needs.
func onMem(t *testing.T, test func(t *testing.T, dev string)) {
	t.Run("mem0", func(t *testing.T) {
		noLeaks(t)
		test(t, "mem0")
	})
}

// faults is how a test breaks the end's device.
func (e *end) faults() *memfabric.Faults {
	e.t.Helper()
	d, ok := e.ia.Device().(*memfabric.Device)
	assert.Assert(e.t, ok, "only the fabric inside this process has faults")
	return d.Faults()
}

// refused checks an error's type and, where one is given, its subtype.
func refused(t *testing.T, err error, want udat.ReturnType, sub ...udat.Subtype) {
	t.Helper()
	match := &udat.Error{Type: want}
	if len(sub) > 0 {
		match.Subtype = sub[0]
	}
	assert.ErrorIs(t, err, match)
}

// ask lets a connect to b, and gives the request that arrives there.
func ask(t *testing.T, a, b *end, private []byte) *udat.CR {
	t.Helper()
	psp := listen(t, b)
	defer psp.Free()
	assert.NilError(t, a.ep.Connect(b.ia.Addr(), psp.Qual(), patience, private, udat.QoSBestEffort, udat.ConnectDefault))
	return expect(t, b.cr, udat.EventConnectionRequest).CR
}

// another makes a further endpoint on the end's objects.
func (e *end) another(attr *udat.EPAttr) *udat.EP {
	e.t.Helper()
	ep, err := e.ia.CreateEP(e.pz, e.recv, e.request, e.conn, attr)
	assert.NilError(e.t, err)
	return ep
}

// become waits until the endpoint is in the state.
func become(t *testing.T, ep *udat.EP, want udat.EPState) {
	t.Helper()
	eventually(t, func() bool { return state(t, ep) == want }, "endpoint %v, want %v", state(t, ep), want)
}

// eventually waits for a condition.
func eventually(t *testing.T, cond func() bool, format string, args ...any) {
	t.Helper()
	for until := time.Now().Add(patience); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("not within %v: %s", patience, fmt.Sprintf(format, args...))
		}
	}
}

// part ends the connection of two ends from a's side and takes both events.
func part(t *testing.T, a, b *end, flags udat.CloseFlags) {
	t.Helper()
	assert.NilError(t, a.ep.Disconnect(flags))
	expect(t, a.conn, udat.EventConnectionDisconnected)
	expect(t, b.conn, udat.EventConnectionDisconnected)
}

// inState gives an end whose endpoint is in the state, and its peer, which is nil where there is none.
func inState(t *testing.T, dev string, s udat.EPState, with setup) (e, peer *end) {
	t.Helper()
	switch s {
	case udat.EPUnconnected, udat.EPReserved, udat.EPPassiveConnectionPending, udat.EPTentativeConnection:
		e = newEnd(t, dev, with)
		if s != udat.EPUnconnected {
			t.Cleanup(e.ep.Pretend(s))
		}
		return e, nil
	case udat.EPActiveConnectionPending:
		e, peer = newEnd(t, dev, with), newEnd(t, dev, with)
		ask(t, e, peer, nil)
	case udat.EPCompletionPending:
		e, peer = newEnd(t, dev, with), newEnd(t, dev, with)
		peer.faults().Lose(memfabric.MsgReady, 1)
		assert.NilError(t, ask(t, peer, e, nil).Accept(e.ep, nil))
		expect(t, peer.conn, udat.EventConnectionEstablished)
	case udat.EPConnected:
		e, peer = pair(t, dev, with)
	case udat.EPDisconnectPending:
		e, peer = pair(t, dev, with)
		assert.NilError(t, e.ep.PostSend(nil, 1, 0)) // for which the peer has no receive
		assert.NilError(t, e.ep.Disconnect(udat.CloseGraceful))
	case udat.EPDisconnected:
		e, peer = pair(t, dev, with)
		part(t, e, peer, udat.CloseAbrupt)
	}
	assert.Equal(t, state(t, e.ep), s)
	return e, peer
}

var allStates = []udat.EPState{
	udat.EPUnconnected, udat.EPReserved, udat.EPPassiveConnectionPending, udat.EPTentativeConnection, udat.EPActiveConnectionPending,
	udat.EPConnected, udat.EPDisconnectPending, udat.EPDisconnected, udat.EPCompletionPending,
}

// canBe are the states that an endpoint of the device can be put into: only a fault holds a handshake up, and only
// requests that wait for the peer a graceful disconnect.
func canBe(t *testing.T, dev string) []udat.EPState {
	t.Helper()
	ia := open(t, dev)
	_, faults := ia.Device().(*memfabric.Device)
	return slices.DeleteFunc(slices.Clone(allStates), func(s udat.EPState) bool {
		return s == udat.EPCompletionPending && !faults || s == udat.EPDisconnectPending && !udat.DeviceAttr(ia).Acknowledged
	})
}

// acknowledged says whether a request is done when the peer has taken it, and tells what the peer refuses. On iWARP sends and writes
// complete at once, and what the peer refuses, for want of a receive for one, ends the connection.
func acknowledged(e *end) bool { return udat.DeviceAttr(e.ia).Acknowledged }

func needAcknowledged(t *testing.T, e *end) {
	t.Helper()
	if !acknowledged(e) {
		t.Skip("the device completes sends and writes before the peer has taken them")
	}
}

// needPeerToPeer skips a test in which the passive end sends before it has received, which breaks the connection where the connector
// must be first.
func needPeerToPeer(t *testing.T, e *end) {
	t.Helper()
	if !udat.DeviceAttr(e.ia).PeerToPeer {
		t.Skip("the end that has connected must be the first to send")
	}
}

// needSolicited skips a test of what only a device that tells solicited completions from others can do.
func needSolicited(t *testing.T, e *end) {
	t.Helper()
	if !udat.DeviceAttr(e.ia).SolicitedArm {
		t.Skip("the device notifies of receives whether or not they are solicited")
	}
}

func errorsIs(err error, target error) bool { return errors.Is(err, target) }

// sameBytes compares memory; a difference is told by its place.
func sameBytes(t *testing.T, got, want []byte) {
	t.Helper()
	if bytes.Equal(got, want) {
		return
	}
	assert.Equal(t, len(got), len(want))
	for i := range got {
		assert.Equal(t, got[i], want[i], "at %d of %d", i, len(want))
	}
}

// acceptedInVain waits for what comes of an accept whose peer has given up, and says whether it is DAT's event. The acceptor on plain
// iWARP is established by its own answer, and learns afterwards that nobody is there.
func acceptedInVain(t *testing.T, e *end) bool {
	t.Helper()
	ev := next(t, e.conn)
	if ev.Number == udat.EventConnectionEstablished && !udat.DeviceAttr(e.ia).PeerToPeer {
		ev = next(t, e.conn)
		assert.Assert(t, ev.Number == udat.EventConnectionDisconnected || ev.Number == udat.EventConnectionBroken, describe(ev))
		return false
	}
	assert.Equal(t, ev.Number, udat.EventConnectionAcceptError, "%s", describe(ev))
	return true
}
