package udat_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/fabric/faultfabric"
	"github.com/godat/godat/udat/internal/memfabric"
	"github.com/godat/godat/udat/internal/softnic"
)

// onMem runs a test on the fabric inside this process, whose faults it needs.
func onMem(t *testing.T, test func(t *testing.T, dev string)) {
	t.Run("mem0", func(t *testing.T) {
		noLeaks(t)
		test(t, "mem0")
	})
}

// onSoftware runs a test on each device in software of the suite: it needs the faults of nic.
func onSoftware(t *testing.T, test func(t *testing.T, dev string)) {
	for _, dev := range devices() {
		if dev != "mem0" && !strings.HasPrefix(dev, "tcp") {
			continue
		}
		t.Run(dev, func(t *testing.T) {
			noLeaks(t)
			test(t, dev)
		})
	}
}

// faults is how a test breaks the end's device.
func (e *end) faults() *memfabric.Faults {
	e.t.Helper()
	d, ok := e.ia.Device().(*memfabric.Device)
	assert.Assert(e.t, ok, "only the fabric inside this process has faults")
	return d.Faults()
}

// nic is how a test breaks a device in software, whatever its wire.
func (e *end) nic() *softnic.Faults {
	e.t.Helper()
	return nicOf(e.t, e.ia)
}

func nicOf(t *testing.T, ia *udat.IA) *softnic.Faults {
	t.Helper()
	d, ok := ia.Device().(interface{ NIC() *softnic.Faults })
	assert.Assert(t, ok, "only devices in software have faults")
	return d.NIC()
}

// lacking opens a device whose attributes are changed.
func lacking(t *testing.T, dev string, change func(*fabric.Attr)) *udat.IA {
	t.Helper()
	return open(t, dev, udat.Through((&faultfabric.Script{Attr: change}).Wrap))
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

// inState gives two ends, the first one's endpoint in the state.
func inState(t *testing.T, dev string, s udat.EPState, with setup) (e, peer *end) {
	t.Helper()
	peer = newEnd(t, dev, with)
	with.script = &faultfabric.Script{}
	e = newEnd(t, dev, with)
	e.enter(peer, s)
	return e, peer
}

// enter takes an unconnected endpoint to the state, with the help of a peer. The endpoint of
// TENTATIVE_CONNECTION_PENDING is one that the provider makes; it replaces the end's.
func (e *end) enter(peer *end, s udat.EPState) {
	t := e.t
	t.Helper()
	switch s {
	case udat.EPReserved:
		listenReserved(t, e, e.ep)
	case udat.EPPassiveConnectionPending:
		qual, _ := listenReserved(t, e, e.ep)
		peer.call(e, qual, "")
		expect(t, e.cr, udat.EventConnectionRequest)
	case udat.EPTentativeConnection:
		e.tentative(peer)
	case udat.EPActiveConnectionPending:
		ask(t, e, peer, nil)
	case udat.EPCompletionPending:
		cr := ask(t, peer, e, nil)
		if d, ok := peer.ia.Device().(*memfabric.Device); ok {
			d.Faults().Lose(memfabric.MsgReady, 1)
		} else {
			e.script.On(faultfabric.ConnEvent).With(int(fabric.EventEstablished)).Times(1).Drop()
		}
		assert.NilError(t, cr.Accept(e.ep, nil))
		expect(t, peer.conn, udat.EventConnectionEstablished)
	case udat.EPConnected:
		connect(t, e, peer)
	case udat.EPDisconnectPending:
		connect(t, e, peer)
		assert.NilError(t, e.ep.PostSend(nil, 1, 0)) // for which the peer has no receive
		assert.NilError(t, e.ep.Disconnect(udat.CloseGraceful))
	case udat.EPDisconnected:
		connect(t, e, peer)
		part(t, e, peer, udat.CloseAbrupt)
	}
	assert.Equal(t, state(t, e.ep), s)
}

// tentative has a peer ask for a connection, and the provider make the endpoint for it, which
// replaces the end's.
func (e *end) tentative(peer *end) *udat.CR {
	t := e.t
	t.Helper()
	_, psp, err := e.ia.CreatePSPAny(e.cr, udat.PSPProvider)
	assert.NilError(t, err)
	peer.call(e, psp.Qual(), "")
	cr := expect(t, e.cr, udat.EventConnectionRequest).CR
	p, err := cr.Query()
	assert.NilError(t, err)
	assert.NilError(t, psp.Free())
	assert.NilError(t, e.ep.Free())
	e.ep = p.LocalEP
	assert.NilError(t, e.ep.Modify(udat.EPFieldPZ|udat.EPFieldRecvEVD|udat.EPFieldRequestEVD|udat.EPFieldConnectEVD,
		udat.EPParam{PZ: e.pz, RecvEVD: e.recv, RequestEVD: e.request, ConnectEVD: e.conn}))
	return cr
}

var allStates = []udat.EPState{
	udat.EPUnconnected, udat.EPReserved, udat.EPPassiveConnectionPending, udat.EPTentativeConnection,
	udat.EPActiveConnectionPending,
	udat.EPConnected, udat.EPDisconnectPending, udat.EPDisconnected, udat.EPCompletionPending,
}

// canBe are the states that an endpoint of the device can be put into: a graceful disconnect waits
// only for requests that wait for the peer.
func canBe(t *testing.T, dev string) []udat.EPState {
	t.Helper()
	acknowledged := udat.DeviceAttr(open(t, dev)).Acknowledged
	return slices.DeleteFunc(slices.Clone(allStates), func(s udat.EPState) bool {
		return s == udat.EPDisconnectPending && !acknowledged
	})
}

// acknowledged says whether a request is done when the peer has taken it, and tells what the peer
// refuses. On iWARP sends and writes complete at once, and what the peer refuses, for want of a
// receive for one, ends the connection.
func acknowledged(e *end) bool { return udat.DeviceAttr(e.ia).Acknowledged }

func needAcknowledged(t *testing.T, e *end) {
	t.Helper()
	if !acknowledged(e) {
		t.Skip("the device completes sends and writes before the peer has taken them")
	}
}

// needPeerToPeer skips a test in which the passive end sends before it has received, which breaks
// the connection where the connector must be first.
func needPeerToPeer(t *testing.T, e *end) {
	t.Helper()
	if !udat.DeviceAttr(e.ia).PeerToPeer {
		t.Skip("the end that has connected must be the first to send")
	}
}

// needSolicited skips a test of what only a device that tells solicited completions from others can
// do.
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

// acceptedInVain waits for what comes of an accept whose peer has given up, and says whether it is
// DAT's event. The acceptor on plain iWARP is established by its own answer, and learns afterwards
// that nobody is there.
func acceptedInVain(t *testing.T, e *end) bool {
	t.Helper()
	ev := next(t, e.conn)
	if ev.Number == udat.EventConnectionEstablished && !udat.DeviceAttr(e.ia).PeerToPeer {
		ev = next(t, e.conn)
		assert.Assert(t, ev.Number == udat.EventConnectionDisconnected || ev.Number == udat.EventConnectionBroken,
			describe(ev))
		return false
	}
	assert.Equal(t, ev.Number, udat.EventConnectionAcceptError, "%s", describe(ev))
	assert.Equal(t, ev.EP, e.ep)
	return true
}
