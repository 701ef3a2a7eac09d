package cverbs

import (
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// localAddrs returns the addresses of this host that belong to the device.
func localAddrs(t testing.TB, ctx *Context) (all []netip.Addr) {
	t.Helper()
	ch := closing[*EventChannel](t)(CreateEventChannel())
	defer ch.Close()
	ifaces, err := net.Interfaces()
	assert.NilError(t, err)
	for _, iface := range ifaces {
		addrs, _ := iface.Addrs()
		for _, a := range addrs {
			ip := netip.MustParsePrefix(a.String()).Addr()
			if ip.IsLinkLocalUnicast() {
				ip = ip.WithZone(iface.Name)
			}
			id := closing[*CMID](t)(ch.CreateID(PortSpaceTCP))
			if id.BindAddr(netip.AddrPortFrom(ip, 0)) == nil && id.Device() == ctx.Name() {
				all = append(all, ip)
			}
			assert.NilError(t, id.Close())
		}
	}
	return all
}

func localAddr(t testing.TB, ctx *Context) netip.Addr {
	t.Helper()
	all := localAddrs(t, ctx)
	assert.Assert(t, len(all) > 0, "no address of this host belongs to %s", ctx.Name())
	for _, a := range all {
		if a.Is4() {
			return a
		}
	}
	return all[0]
}

// want takes the next event, and fails the test unless the event is of type typ.
func want(t testing.TB, ch *EventChannel, typ CMEventType) CMEvent {
	t.Helper()
	ev, err := ch.Get(soon())
	assert.NilError(t, err)
	assert.Equal(t, ev.Type, typ, "%+v", ev)
	return ev
}

// listen creates a listener on a free port.
func listen(t testing.TB, addr netip.Addr) (*EventChannel, *CMID) {
	t.Helper()
	ch := closing[*EventChannel](t)(CreateEventChannel())
	id := closing[*CMID](t)(ch.CreateID(PortSpaceTCP))
	assert.NilError(t, id.BindAddr(netip.AddrPortFrom(addr, 0)))
	assert.NilError(t, id.Listen(8))
	return ch, id
}

// resolve creates an id that is ready to connect.
func resolve(t testing.TB, ch *EventChannel, to netip.AddrPort) *CMID {
	t.Helper()
	id := closing[*CMID](t)(ch.CreateID(PortSpaceTCP))
	assert.NilError(t, id.ResolveAddr(netip.AddrPort{}, to, 2*time.Second))
	want(t, ch, CMEventAddrResolved)
	assert.NilError(t, id.ResolveRoute(2*time.Second))
	want(t, ch, CMEventRouteResolved)
	return id
}

// drive moves a queue pair that is not on the id through its states.
func drive(t testing.TB, id *CMID, qp *QP, states ...QPState) {
	t.Helper()
	for _, s := range states {
		attr, mask, err := id.InitQPAttr(s)
		assert.NilError(t, err)
		assert.NilError(t, qp.Modify(attr, mask))
	}
}

// meet connects two queue pairs in INIT through the connection manager.
func meet(t testing.TB, ctx *Context, addr netip.Addr, active, passive *QP) (client, server *CMID, cch,
	sch *EventChannel) {
	t.Helper()
	sch, lid := listen(t, addr)
	cch = closing[*EventChannel](t)(CreateEventChannel())
	client = resolve(t, cch, lid.LocalAddr())
	assert.NilError(t, client.Connect(ConnParam{PrivateData: []byte("hello"), ResponderResources: 4, InitiatorDepth: 3,
		RetryCount: 7, RNRRetryCount: 7, QPNum: active.Num()}))
	req := want(t, sch, CMEventConnectRequest)
	server = closing[*CMID](t)(req.ID, nil)
	assert.Equal(t, req.ListenID, lid)
	assert.Equal(t, string(req.PrivateData[:5]), "hello")
	assert.Equal(t, req.InitiatorDepth, uint8(4), "what the peer takes is what this side may start")
	assert.Equal(t, req.ResponderResources, uint8(3))
	iwarp := isIWARP(t, ctx) // iWARP's messages do not carry queue pair numbers
	assert.Assert(t, iwarp || req.QPNum == active.Num())
	drive(t, server, passive, QPStateRTR, QPStateRTS)
	assert.NilError(t, server.Accept(ConnParam{PrivateData: []byte("welcome"), ResponderResources: 3, InitiatorDepth: 4,
		RNRRetryCount: 7, QPNum: passive.Num()}))
	if iwarp { // the connection is established when the answer comes
		resp := want(t, cch, CMEventEstablished)
		assert.Equal(t, string(resp.PrivateData[:7]), "welcome")
		assert.Equal(t, want(t, sch, CMEventEstablished).ID, server)
		return client, server, cch, sch
	}
	resp := want(t, cch, CMEventConnectResponse)
	assert.Equal(t, string(resp.PrivateData[:7]), "welcome")
	assert.Equal(t, resp.QPNum, passive.Num())
	drive(t, client, active, QPStateRTR, QPStateRTS)
	assert.NilError(t, client.Establish())
	assert.Equal(t, want(t, sch, CMEventEstablished).ID, server)
	return client, server, cch, sch
}

func isErr(t testing.TB, err, target error) {
	t.Helper()
	assert.Assert(t, errors.Is(err, target), "%v is not %v", err, target)
}
