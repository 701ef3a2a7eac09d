package udat_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/fabric/faultfabric"
	"github.com/godat/godat/udat/internal/memfabric"
	"github.com/godat/godat/udat/internal/softnic"
	"github.com/godat/godat/udat/internal/softnic/nicfault"
)

// onSoftware runs a test that needs the faults of nic, on each software device of the suite.
func onSoftware(t *testing.T, test func(t *testing.T, dev string)) {
	software := slices.DeleteFunc(devices(), func(dev string) bool {
		return dev != "mem0" && !strings.HasPrefix(dev, "tcp")
	})
	onDevices(t, software, synctest.Test, test)
}

// faults returns the faults of the end's device on mem0.
func (e *end) faults() *nicfault.Faults {
	e.t.Helper()
	d, ok := e.ia.Device().(*memfabric.Device)
	assert.Assert(e.t, ok, "only the fabric inside this process has faults")
	return nicfault.Of(d)
}

// nic returns the faults of the end's software device, whatever its transport.
func (e *end) nic() *nicfault.Faults {
	e.t.Helper()
	return nicOf(e.t, e.ia)
}

func nicOf(t *testing.T, ia *udat.IA) *nicfault.Faults {
	t.Helper()
	d, ok := ia.Device().(interface{ NIC() *softnic.Device })
	assert.Assert(t, ok, "only devices in software have faults")
	return nicfault.Of(d)
}

// lacking opens a device whose attributes are changed.
func lacking(t *testing.T, dev string, change func(*fabric.Attr)) *udat.IA {
	t.Helper()
	return open(t, dev, udat.Through((&faultfabric.Script{Attr: change}).Wrap))
}

// refused checks an error's type and, if a subtype is given, its subtype.
func refused(t *testing.T, err error, want udat.ReturnType, sub ...udat.Subtype) {
	t.Helper()
	match := &udat.Error{Type: want}
	if len(sub) > 0 {
		match.Subtype = sub[0]
	}
	assert.ErrorIs(t, err, match)
}

// ask makes a connect to b, and returns the request that arrives there.
func ask(t *testing.T, a, b *end, private []byte) *udat.CR {
	t.Helper()
	psp := listen(t, b)
	defer psp.Free()
	assert.NilError(t, a.ep.Connect(b.ia.Addr(), psp.Qual(), patience, private, udat.QoSBestEffort, udat.ConnectDefault))
	return expect(t, b.cr, udat.EventConnectionRequest).CR
}

// another makes one more endpoint with the end's objects.
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

// part disconnects a, and dequeues the events of both ends.
func part(t *testing.T, a, b *end, flags udat.CloseFlags) {
	t.Helper()
	assert.NilError(t, a.ep.Disconnect(flags))
	expect(t, a.conn, udat.EventConnectionDisconnected)
	expect(t, b.conn, udat.EventConnectionDisconnected)
}

// inState returns two ends. The endpoint of the first is in the state.
func inState(t *testing.T, dev string, s udat.EPState, with setup) (e, peer *end) {
	t.Helper()
	peer = newEnd(t, dev, with)
	with.script = &faultfabric.Script{}
	e = newEnd(t, dev, with)
	e.enter(peer, s)
	return e, peer
}

// enter brings an unconnected endpoint to the state, with the help of a peer. For
// TENTATIVE_CONNECTION_PENDING, an endpoint that the provider makes replaces the end's endpoint.
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
			nicfault.Of(d).Lose(softnic.MsgReady, 1)
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

// tentative makes a peer request a connection for which the provider makes the endpoint. That
// endpoint replaces the end's endpoint.
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

// canBe returns the states into which a test can bring an endpoint of the device.
// DISCONNECT_PENDING is missing if no request waits for the peer.
func canBe(t *testing.T, dev string) []udat.EPState {
	t.Helper()
	acknowledged := udat.DeviceAttr(open(t, dev)).Acknowledged
	return slices.DeleteFunc(slices.Clone(allStates), func(s udat.EPState) bool {
		return s == udat.EPDisconnectPending && !acknowledged
	})
}

// acknowledged reports whether a request completes when the peer has accepted it, and fails if the
// peer refuses it. On iWARP sends and writes complete at once, and a refusal by the peer, for
// example because there is no receive, ends the connection.
func acknowledged(e *end) bool { return udat.DeviceAttr(e.ia).Acknowledged }

func needAcknowledged(t *testing.T, e *end) {
	t.Helper()
	if !acknowledged(e) {
		t.Skip("the device completes sends and writes before the peer has taken them")
	}
}

// needPeerToPeer skips a test in which the passive end sends first, if the device breaks the
// connection then because the active end must send first.
func needPeerToPeer(t *testing.T, e *end) {
	t.Helper()
	if !udat.DeviceAttr(e.ia).PeerToPeer {
		t.Skip("the end that has connected must be the first to send")
	}
}

// needSolicited skips a test that needs a device with solicited arming.
func needSolicited(t *testing.T, e *end) {
	t.Helper()
	if !udat.DeviceAttr(e.ia).SolicitedArm {
		t.Skip("the device notifies of receives whether or not they are solicited")
	}
}

func errorsIs(err error, target error) bool { return errors.Is(err, target) }

// sameBytes compares memory, and reports the place of the first difference.
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

// acceptedInVain waits for the event of an accept whose peer has given up, and reports whether it
// is the event of DAT. On plain iWARP the acceptor's own answer establishes its connection, and it
// learns only afterwards that the peer has gone.
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
