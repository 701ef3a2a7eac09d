package udat_test

import (
	"fmt"
	"slices"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/rule"
)

// call is one call on an endpoint, and what happens in each state: in the states of ok it succeeds,
// in those of flush the posted work is flushed, in all others it returns InvalidState and changes
// nothing.
type call struct {
	name      string
	ok, flush []udat.EPState
	do        func(t *testing.T, e *end) error
	flushed   func(e *end) *udat.EVD
	rules     []string
	windows   bool // it needs memory windows
}

func requestEVD(e *end) *udat.EVD { return e.request }

var calls = []call{
	{
		name: "post_recv", ok: allStates, flush: []udat.EPState{udat.EPDisconnected},
		do:      func(t *testing.T, e *end) error { return e.ep.PostRecv(e.iov(0, 8), 99, 0) },
		flushed: func(e *end) *udat.EVD { return e.recv },
		rules:   []string{"EPST-50", "EPST-51", "EP-RECV-04", "EP-RECV-05", "C-31"},
	},
	{
		name: "post_send", ok: []udat.EPState{udat.EPConnected, udat.EPDisconnected},
		flush:   []udat.EPState{udat.EPDisconnected},
		do:      func(t *testing.T, e *end) error { return e.ep.PostSend(e.iov(0, 8), 99, 0) },
		flushed: requestEVD, rules: []string{"EPST-52", "EPST-54", "EP-SEND-03", "POST-11"},
	},
	{
		name: "post_rdma_read", ok: []udat.EPState{udat.EPConnected, udat.EPDisconnected},
		flush:   []udat.EPState{udat.EPDisconnected},
		do:      func(t *testing.T, e *end) error { return e.ep.PostRDMARead(e.iov(0, 8), 99, e.mem.RMRTriplet(0, 8), 0) },
		flushed: requestEVD, rules: []string{"EPST-52", "EPST-54", "EP-READ-04"},
	},
	{
		name: "post_rdma_write", ok: []udat.EPState{udat.EPConnected, udat.EPDisconnected},
		flush: []udat.EPState{udat.EPDisconnected},
		do: func(t *testing.T, e *end) error {
			return e.ep.PostRDMAWrite(e.iov(0, 8), 99, e.mem.RMRTriplet(0, 8), 0)
		},
		flushed: requestEVD, rules: []string{"EPST-53", "EPST-54", "EP-WRITE-03"},
	},
	{
		name: "rmr_bind", ok: []udat.EPState{udat.EPConnected, udat.EPDisconnected},
		do: func(t *testing.T, e *end) error {
			rmr, err := e.pz.CreateRMR()
			assert.NilError(t, err)
			_, err = rmr.Bind(e.mem.Triplet(0, 64), udat.PrivRemoteRead, e.ep, 99, 0)
			return err
		},
		rules: []string{"EPST-53", "EPST-54"}, windows: true,
	},
	{
		name: "ep_connect", ok: []udat.EPState{udat.EPUnconnected},
		do: func(t *testing.T, e *end) error {
			return e.ep.Connect(e.ia.Addr(), 4711, patience, nil, udat.QoSBestEffort, udat.ConnectDefault)
		},
		rules: []string{"EP-CONNECT-02"},
	},
	{
		name: "cr_accept", ok: []udat.EPState{udat.EPUnconnected},
		do: func(t *testing.T, e *end) error {
			cr := ask(t, newEnd(t, e.ia.Name(), setup{}), e, nil)
			err := cr.Accept(e.ep, nil)
			if err != nil {
				assert.NilError(t, cr.Reject(nil), "a refused accept leaves the request")
			}
			return err
		},
	},
	{
		name: "rsp_create", ok: []udat.EPState{udat.EPUnconnected}, rules: []string{"EP-CREATE-10", "RSP-CREATE-03"},
		do: func(t *testing.T, e *end) error {
			_, err := e.ia.CreateRSP(freeQual(t, e), e.ep, e.cr)
			return err
		},
	},
	{
		name: "ep_disconnect, abrupt", rules: []string{"EP-DISC-08", "EP-DISC-09"},
		ok: []udat.EPState{udat.EPActiveConnectionPending, udat.EPCompletionPending, udat.EPConnected,
			udat.EPDisconnectPending, udat.EPDisconnected},
		do: func(t *testing.T, e *end) error { return e.ep.Disconnect(udat.CloseAbrupt) },
	},
	{
		name: "ep_disconnect, graceful", rules: []string{"EP-DISC-05", "EP-DISC-08", "EP-DISC-09"},
		ok: []udat.EPState{udat.EPActiveConnectionPending, udat.EPCompletionPending, udat.EPConnected,
			udat.EPDisconnectPending, udat.EPDisconnected},
		do: func(t *testing.T, e *end) error { return e.ep.Disconnect(udat.CloseGraceful) },
	},
	{
		name: "ep_reset", ok: []udat.EPState{udat.EPUnconnected, udat.EPDisconnected}, rules: []string{"EP-RESET-04"},
		do: func(t *testing.T, e *end) error { return e.ep.Reset() },
	},
	{
		name: "ep_free", rules: []string{"EP-FREE-01", "EPST-38"},
		ok: []udat.EPState{
			udat.EPUnconnected, udat.EPActiveConnectionPending, udat.EPCompletionPending, udat.EPConnected,
			udat.EPDisconnectPending, udat.EPDisconnected,
		},
		do: func(t *testing.T, e *end) error {
			err := e.ep.Free()
			if err == nil {
				refused(t, e.ep.Free(), udat.InvalidHandle, udat.SubHandleEP)
			}
			return err
		},
	},
	{
		name: "queries", ok: allStates, rules: []string{"EP-WMARK-01"},
		do: func(t *testing.T, e *end) error {
			if _, _, _, err := e.ep.GetStatus(); err != nil {
				return err
			}
			if _, _, err := e.ep.RecvQuery(); err != nil {
				return err
			}
			return e.ep.SetWatermark(udat.WatermarkInfinite, 10)
		},
	},
}

// freeQual returns a qualifier on which nobody listens.
func freeQual(t *testing.T, e *end) udat.ConnQual {
	psp := listen(t, e)
	assert.NilError(t, psp.Free())
	return psp.Qual()
}

func in(list []udat.EPState, s udat.EPState) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

// TestCallsByState makes every call in every state.
func TestCallsByState(t *testing.T) {
	onEachOutside(t, func(t *testing.T, dev string) {
		for _, s := range canBe(t, dev) {
			t.Run(s.String(), func(t *testing.T) {
				e, _ := inState(t, dev, s, setup{})
				calls := slices.DeleteFunc(slices.Clone(calls), func(c call) bool {
					return c.windows && udat.DeviceAttr(e.ia).MaxMW == 0
				})
				for _, c := range calls {
					if in(c.ok, s) {
						continue
					}
					refused(t, c.do(t, e), udat.InvalidState, subtypes[s])
					assert.Equal(t, state(t, e.ep), s, "%s has changed the state", c.name)
				}
				for _, c := range calls {
					if !in(c.ok, s) {
						continue
					}
					e, _ := inState(t, dev, s, setup{})
					assert.NilError(t, c.do(t, e), c.name)
					if in(c.flush, s) {
						flushed(t, c.flushed(e), 99)
						empty(t, c.flushed(e))
					}
				}
			})
		}
		attr := udat.DeviceAttr(open(t, dev))
		for _, c := range calls {
			if c.windows && attr.MaxMW == 0 {
				continue
			}
			rule.Proves(t, slices.DeleteFunc(slices.Clone(c.rules), func(r string) bool {
				return !attr.Acknowledged && slices.Contains([]string{"EPST-54", "C-31", "EP-DISC-05"}, r) // of DISCONNECT_PENDING
			})...)
		}
	})
}

// subtypes maps the state that a refused call found to the subtype of its error.
var subtypes = map[udat.EPState]udat.Subtype{
	udat.EPUnconnected: udat.SubStateEPUnconnected, udat.EPReserved: udat.SubStateEPReserved,
	udat.EPPassiveConnectionPending: udat.SubStateEPPassConnPending,
	udat.EPTentativeConnection:      udat.SubStateEPTentConnPending,
	udat.EPActiveConnectionPending:  udat.SubStateEPActConnPending, udat.EPConnected: udat.SubStateEPConnected,
	udat.EPDisconnectPending: udat.SubStateEPDiscPending, udat.EPDisconnected: udat.SubStateEPDisconnected,
	udat.EPCompletionPending: udat.SubStateEPComplPending,
}

// outcome is the effect of a cause in a state: the next state and the event. The zero value means
// no effect.
type outcome struct {
	next  udat.EPState
	event udat.EventNumber
}

// ofConnections lists the causes that TestTransitions applies.
var ofConnections = []string{
	"established", "peer rejected", "rejected", "unreachable", "failed", "timed out", "peer left", "removed", "broken",
	"drained",
	"abrupt", "graceful",
}

// same returns a map in which all causes have the outcome o, except those in except.
func same(o outcome, except map[string]outcome) map[string]outcome {
	all := map[string]outcome{}
	for _, c := range ofConnections {
		all[c] = o
	}
	for c, o := range except {
		all[c] = o
	}
	return all
}

var (
	nothing  = outcome{}
	connects = outcome{udat.EPConnected, udat.EventConnectionEstablished}
	leaves   = outcome{udat.EPDisconnected, udat.EventConnectionDisconnected}
	breaks   = outcome{udat.EPDisconnected, udat.EventConnectionBroken}
	refuses  = outcome{udat.EPDisconnected, udat.EventConnectionNonPeerRejected}
	misses   = outcome{udat.EPDisconnected, udat.EventConnectionAcceptError}
)

// wanted is the state machine of the specification.
var wanted = map[udat.EPState]map[string]outcome{
	udat.EPUnconnected:              same(nothing, nil),
	udat.EPReserved:                 same(nothing, nil),
	udat.EPPassiveConnectionPending: same(nothing, nil),
	udat.EPTentativeConnection:      same(nothing, nil),
	udat.EPDisconnected:             same(nothing, nil),
	udat.EPActiveConnectionPending: same(refuses, map[string]outcome{
		"established": connects, "peer rejected": {udat.EPDisconnected, udat.EventConnectionPeerRejected},
		"unreachable": {udat.EPDisconnected, udat.EventConnectionUnreachable},
		"timed out":   {udat.EPDisconnected, udat.EventConnectionTimedOut},
		"abrupt":      leaves, "graceful": leaves, "drained": nothing,
	}),
	udat.EPCompletionPending: same(misses, map[string]outcome{
		"established": connects, "abrupt": leaves, "graceful": leaves, "drained": nothing,
	}),
	udat.EPConnected: same(breaks, map[string]outcome{
		"established": nothing, "timed out": nothing, "peer left": leaves, "abrupt": leaves,
		"graceful": {udat.EPDisconnectPending, 0}, "drained": nothing,
	}),
	udat.EPDisconnectPending: same(breaks, map[string]outcome{
		"established": nothing, "timed out": nothing, "peer left": leaves, "abrupt": leaves, "graceful": nothing,
		"drained": leaves,
	}),
}

// TestTransitions applies every cause in every state directly: it proves the table, but no rule
// about the events of a fabric.
func TestTransitions(t *testing.T) {
	onMemOutside(t, func(t *testing.T, dev string) {
		assert.Equal(t, udat.StatesOfTable(), len(wanted)+2,
			"the states of the specification, FLUSHING, and that of a freed endpoint")
		for _, s := range canBe(t, dev) {
			for _, cause := range ofConnections {
				t.Run(fmt.Sprintf("%v/%s", s, cause), func(t *testing.T) {
					e, _ := inState(t, dev, s, setup{})
					assert.NilError(t, e.ep.PostRecv(e.iov(0, 8), 77, 0))
					if s == udat.EPDisconnected {
						flushed(t, e.recv, 77)
					}
					if s == udat.EPConnected {
						assert.NilError(t, e.ep.PostSend(nil, 78, 0)) // has no receive: a graceful disconnect waits for it
					}
					e.ep.Suffer(slices.Index(udat.Causes[:], cause))
					want, known := wanted[s][cause]
					assert.Assert(t, known)
					if want == nothing {
						want.next = s
					}
					assert.Equal(t, state(t, e.ep), want.next)
					if want.event != 0 {
						ev := expect(t, e.conn, want.event)
						assert.Equal(t, ev.EP, e.ep)
						with := want == connects || want.event == udat.EventConnectionPeerRejected || cause == "rejected" &&
							want.event == udat.EventConnectionNonPeerRejected
						assert.Equal(t, len(ev.PrivateData()) > 0, with)
					}
					if want.next == udat.EPDisconnected && s != udat.EPDisconnected {
						flushed(t, e.recv, 77)
					}
					empty(t, e.conn)
				})
			}
		}
	})
}

// TestFabricEvents makes the fabric report each of its events, during an attempt and on a
// connection.
func TestFabricEvents(t *testing.T) {
	onMemOutside(t, func(t *testing.T, dev string) {
		for kind, cause := range map[fabric.ConnEventKind]string{
			fabric.EventEstablished: "established", fabric.EventPeerRejected: "peer rejected", fabric.EventRejected: "rejected",
			fabric.EventUnreachable: "unreachable", fabric.EventFailed: "failed", fabric.EventDisconnected: "peer left",
			fabric.EventRemoved: "removed",
		} {
			for _, s := range []udat.EPState{udat.EPActiveConnectionPending, udat.EPConnected} {
				t.Run(fmt.Sprintf("%v/%s", s, cause), func(t *testing.T) {
					e, _ := inState(t, dev, s, setup{})
					e.ep.Late()(fabric.ConnEvent{Kind: kind})
					want := wanted[s][cause]
					if want == nothing {
						want.next = s
					}
					assert.Equal(t, state(t, e.ep), want.next)
					if want.event != 0 {
						expect(t, e.conn, want.event)
					}
					empty(t, e.conn)
				})
			}
		}
	})
}

// TestLateEvents delivers events of an earlier connection of the endpoint.
func TestLateEvents(t *testing.T) {
	onMem(t, func(t *testing.T, dev string) {
		e, peer := pair(t, dev, setup{})
		late := e.ep.Late()
		part(t, e, peer, udat.CloseAbrupt)
		kinds := []fabric.ConnEventKind{
			fabric.EventEstablished, fabric.EventPeerRejected, fabric.EventRejected, fabric.EventUnreachable, fabric.EventFailed,
			fabric.EventDisconnected, fabric.EventRemoved,
		}
		tell := func(want udat.EPState) {
			for _, k := range kinds {
				late(fabric.ConnEvent{Kind: k})
				assert.Equal(t, state(t, e.ep), want)
			}
			empty(t, e.conn)
		}
		tell(udat.EPDisconnected)
		assert.NilError(t, e.ep.Reset())
		tell(udat.EPUnconnected)
		assert.NilError(t, peer.ep.Reset())
		connect(t, e, peer)
		tell(udat.EPConnected)
		assert.NilError(t, e.ep.Free())
		for _, k := range kinds {
			late(fabric.ConnEvent{Kind: k})
		}
		empty(t, e.conn)
		rule.Proves(t, "EP-FREE-04", "EP-CONNECT-12")
	})
}
