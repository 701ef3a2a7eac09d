//go:build linux && cgo

package cverbs

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// TestCMStates: if an id does not allow a call after its latest step, the error names the step, the
// call and what to do.
func TestCMStates(t *testing.T) {
	ctx := openDevice(t)
	e := newEnd(t, ctx)
	sch, lid := listen(t, localAddr(t, ctx))
	ch := closing[*EventChannel](t)(CreateEventChannel())
	calls := map[string]func(*CMID) error{
		"BindAddr":     func(id *CMID) error { return id.BindAddr(lid.LocalAddr()) },
		"Listen":       func(id *CMID) error { return id.Listen(1) },
		"ResolveAddr":  func(id *CMID) error { return id.ResolveAddr(netip.AddrPort{}, lid.LocalAddr(), time.Second) },
		"ResolveRoute": func(id *CMID) error { return id.ResolveRoute(time.Second) },
		"Connect":      func(id *CMID) error { return id.Connect(ConnParam{QPNum: e.qp.Num()}) },
		"Establish":    (*CMID).Establish,
		"Accept":       func(id *CMID) error { return id.Accept(ConnParam{QPNum: e.qp.Num()}) },
		"Reject":       func(id *CMID) error { return id.Reject(nil) },
		"RejectECE":    func(id *CMID) error { return id.RejectECE(nil) },
		"Disconnect":   (*CMID).Disconnect,
		"Notify":       func(id *CMID) error { return id.Notify(AsyncCommEst) },
		"InitQPAttr":   func(id *CMID) error { _, _, err := id.InitQPAttr(QPStateRTR); return err },
	}
	refused := func(id *CMID, at string, wants map[string]string) {
		t.Helper()
		for _, call := range slices.Sorted(maps.Keys(wants)) {
			err := calls[call](id)
			isErr(t, err, syscall.EINVAL)
			assert.ErrorContains(t, err, fmt.Sprintf("%s: invalid argument (%s on an id after %s: it needs %s)",
				cmRules[call].verb, call, at, wants[call]))
			assert.Equal(t, cmStep(id.step.Load()).String(), at, "after %s", call)
		}
	}
	const request, connected = "CONNECT_REQUEST: take the id of that event of a listener",
		"ESTABLISHED: Connect, or Accept a request, first"
	id := closing[*CMID](t)(ch.CreateID(PortSpaceTCP))
	refused(id, "CreateID", map[string]string{
		"ResolveRoute": "ADDR_RESOLVED: ResolveAddr first",
		"Connect":      "ROUTE_RESOLVED: ResolveAddr, ResolveRoute first",
		"Establish":    "CONNECT_RESPONSE: ResolveAddr, ResolveRoute, Connect first",
		"Accept":       request, "Reject": request, "RejectECE": request,
		"Disconnect": connected,
		"Notify":     "Accept: Connect, or Accept a request, first",
		"InitQPAttr": "ADDR_RESOLVED: ResolveAddr first",
	})
	early := map[string]string{
		"BindAddr": "CreateID: a new id", "Connect": "ROUTE_RESOLVED: ResolveRoute first",
		"Establish": "CONNECT_RESPONSE: ResolveRoute, Connect first",
		"Accept":    request, "Disconnect": connected,
	}
	assert.NilError(t, calls["ResolveAddr"](id))
	want(t, ch, CMEventAddrResolved)
	refused(id, "ADDR_RESOLVED", early)
	assert.NilError(t, calls["ResolveRoute"](id))
	want(t, ch, CMEventRouteResolved)
	refused(id, "ROUTE_RESOLVED", map[string]string{
		"ResolveAddr": "CreateID: a new id", "ResolveRoute": "ADDR_RESOLVED: ResolveAddr on a new id",
		"Establish": "CONNECT_RESPONSE: Connect first", "Accept": request, "Disconnect": connected,
	})
	if ctx.Name() != "loop0" {
		return // the rest is for the loop device: Linux lets a listener disconnect
	}
	refused(lid, "Listen", map[string]string{
		"BindAddr": "CreateID: a new id", "Listen": "BindAddr: BindAddr on a new id",
		"Connect": "ROUTE_RESOLVED: ResolveAddr, ResolveRoute on a new id", "Accept": request,
	})
	assert.NilError(t, calls["Connect"](id))
	server := closing[*CMID](t)(want(t, sch, CMEventConnectRequest).ID, nil)
	refused(server, "CONNECT_REQUEST", map[string]string{
		"BindAddr": "CreateID: a new id", "Connect": "ROUTE_RESOLVED: ResolveAddr, ResolveRoute on a new id",
	})
	// Does what the advice said: Reject on the id of the event.
	assert.NilError(t, calls["Reject"](server))
	want(t, ch, CMEventRejected)
	assert.Equal(t, cmStep(server.step.Load()), cmReject)
	refused(id, "REJECTED", map[string]string{
		"ResolveAddr": "CreateID: a new id", "ResolveRoute": "ADDR_RESOLVED: ResolveAddr on a new id",
	})
	bound := closing[*CMID](t)(ch.CreateID(PortSpaceTCP))
	assert.NilError(t, bound.BindAddr(netip.AddrPortFrom(lid.LocalAddr().Addr(), 0)))
	refused(bound, "BindAddr", map[string]string{
		"BindAddr": "CreateID: a new id", "ResolveRoute": "ADDR_RESOLVED: ResolveAddr first",
		"Connect": "ROUTE_RESOLVED: ResolveAddr, ResolveRoute first",
	})
	assert.NilError(t, bound.Listen(1))
}

// TestCMAdvice checks the advice for each call after each step, without a device. The advice is
// empty if the step allows the call. Otherwise it names the call, the step, and the step that the
// call needs.
func TestCMAdvice(t *testing.T) {
	for call, rule := range cmRules {
		assert.Assert(t, len(rule.after) > 0, call)
		for at := cmCreateID; at <= cmEvents+cmStep(CMEventTimewaitExit); at++ {
			text := cmAdvice(call, at)
			if slices.Contains(rule.after, at) {
				assert.Equal(t, text, "")
				continue
			}
			head := fmt.Sprintf("%s on an id after %v: it needs %v: ", call, at, rule.after[0])
			assert.Assert(t, strings.HasPrefix(text, head) && len(text) > len(head), "%s", text)
		}
	}
	for _, c := range []struct {
		call string
		at   cmStep
		want string
	}{
		{"ResolveRoute", cmResolveAddr, "EventChannel.Get takes it first"},
		{"Connect", cmResolveAddr, "ResolveRoute first"},
		{"Connect", cmResolveRoute, "EventChannel.Get takes it first"},
		{"Establish", cmConnect, "EventChannel.Get takes it first"},
		{"Connect", cmDisconnected, "ResolveAddr, ResolveRoute on a new id"},
		{"Connect", cmConnectResponse, "ResolveAddr, ResolveRoute on a new id"},
		{"Listen", cmCreateID, "BindAddr first"},
		{"SetAFOnly", cmListen, "a new id"},
	} {
		_, way, _ := strings.Cut(cmAdvice(c.call, c.at), ": it needs ")
		_, way, _ = strings.Cut(way, ": ")
		assert.Equal(t, way, c.want, "%s after %v", c.call, c.at)
	}
}
