package cverbs

import (
	"bytes"
	"net"
	"net/netip"
	"syscall"
	"testing"

	"gotest.tools/v3/assert"
)

// badMulticast checks that AttachMulticast and DetachMulticast refuse a group with this error.
func badMulticast(t *testing.T, q *QP, group GID, want string) {
	t.Helper()
	for _, call := range []func(GID, uint16) error{q.AttachMulticast, q.DetachMulticast} {
		err := call(group, 0)
		assert.ErrorIs(t, err, syscall.EINVAL)
		assert.ErrorContains(t, err, want)
	}
}

func TestMulticastBadInput(t *testing.T) {
	a, _ := newPair(t, openDevice(t))
	badMulticast(t, a.qp, netip.MustParseAddr("::ffff:239.1.2.3").As16(), "only UD has multicast")
}

// A queue pair attaches to several groups, and twice to one of them. It can be closed after it has
// left all groups.
func TestMulticast(t *testing.T) {
	ctx := openRoCE(t)
	notOnLoop(t, ctx)
	attr, err := ctx.QueryDevice()
	assert.NilError(t, err)
	if attr.MaxMcastGrp < 2 || attr.MaxMcastQPAttach < 1 {
		t.Skip("the device has no multicast")
	}
	e := newEnd(t, ctx, func(i *QPInit) { i.Type = QPTypeUD })
	for _, g := range []string{"::", "fe80::1", "fe00::1", "::ffff:10.0.0.1", "::ffff:223.255.255.255",
		"::ffff:240.0.0.0"} {
		badMulticast(t, e.qp, netip.MustParseAddr(g).As16(), "not a multicast address")
	}
	groups := []GID{netip.MustParseAddr("::ffff:239.1.2.3").As16(), netip.MustParseAddr("ff0e::1234").As16()}
	for _, g := range groups {
		assert.NilError(t, e.qp.AttachMulticast(g, 0))
	}
	assert.NilError(t, e.qp.AttachMulticast(groups[0], 0))
	for _, g := range groups {
		assert.ErrorIs(t, e.qp.Close(), syscall.EBUSY)
		assert.NilError(t, e.qp.DetachMulticast(g, 0))
		err := e.qp.DetachMulticast(g, 0)
		assert.ErrorIs(t, err, syscall.EINVAL)
		assert.ErrorContains(t, err, g.String())
	}
	assert.NilError(t, e.qp.Close())
	assert.Equal(t, e.qp.AttachMulticast(groups[0], 0), ErrClosed)
}

// listenIP makes this host a member of a group at the IP level. What a socket or a queue pair of
// this host sends to the group then comes back.
func listenIP(t *testing.T, local, group netip.Addr) {
	t.Helper()
	ifaces, err := net.Interfaces()
	assert.NilError(t, err)
	for _, iface := range ifaces {
		addrs, _ := iface.Addrs()
		for _, a := range addrs {
			if netip.MustParsePrefix(a.String()).Addr() == local.WithZone("") {
				s, err := net.ListenMulticastUDP("udp", &iface, &net.UDPAddr{IP: group.AsSlice(), Port: 0})
				assert.NilError(t, err)
				t.Cleanup(func() { s.Close() })
				return
			}
		}
	}
	t.Fatalf("no interface has %v", local)
}

// TestMulticastDelivery: a datagram to a group comes to each queue pair that is attached to it, and
// to no other.
func TestMulticastDelivery(t *testing.T) {
	ctx := openRoCE(t)
	notOnLoop(t, ctx)
	ud := func(i *QPInit) { i.Type = QPTypeUD }
	for _, name := range []string{"239.1.2.5", "ff0e::1236"} {
		group, local := netip.MustParseAddr(name), netip.Addr{}
		for _, a := range localAddrs(t, ctx) {
			if a.Is4() == group.Is4() && !a.IsLinkLocalUnicast() {
				local = a
			}
		}
		if !local.IsValid() {
			t.Logf("the device has no address for %v", group)
			continue
		}
		listenIP(t, local, group)
		table, err := ctx.GIDTable()
		assert.NilError(t, err)
		path := AHAttr{Port: 1, IsGlobal: true, HopLimit: 1, DGID: group.As16()}
		for _, e := range table {
			if e.GID.Addr() == local && e.Type == GIDTypeRoCEv2 {
				path.SGIDIndex = uint8(e.Index)
			}
		}
		var ends [4]*end // the last end is not attached
		for i := range ends {
			e := newEnd(t, ctx, ud)
			assert.NilError(t, e.qp.ToRTR(QPAttr{}))
			assert.NilError(t, e.qp.ToRTS(QPAttr{}))
			e.recv(1, e.sge(0, 140))
			e.recv(2, e.sge(200, 140))
			ends[i] = e
		}
		for _, e := range ends[:3] {
			assert.NilError(t, e.qp.AttachMulticast(group.As16(), 0))
		}
		from := ends[3]
		ah := closing[*AH](t)(from.pd.CreateAH(path))
		send := func(seed byte) {
			fill(from.buf[1000:1100], seed)
			from.send(SendWR{Opcode: OpSend, AH: ah.Handle(), RemoteQPN: 0xffffff, RemoteQKey: 0x11111111},
				from.sge(1000, 100))
			from.sent()
		}
		send(1)
		for _, e := range ends[:3] {
			wc := e.received()
			assert.Equal(t, wc.ID, uint64(1))
			assert.Equal(t, wc.SrcQP, from.qp.Num())
			assert.Assert(t, bytes.Equal(e.buf[40:140], from.buf[1000:1100]))
		}
		assert.NilError(t, ends[1].qp.DetachMulticast(group.As16(), 0))
		send(2)
		for _, i := range []int{0, 2} {
			ends[i].received()
			assert.Assert(t, bytes.Equal(ends[i].buf[240:340], from.buf[1000:1100]))
			assert.NilError(t, ends[i].qp.DetachMulticast(group.As16(), 0))
		}
		for _, i := range []int{1, 3} {
			n, err := ends[i].rcq.Poll(make([]WC, 1))
			assert.NilError(t, err)
			assert.Equal(t, n, 0, "%d is not attached", i)
		}
	}
}
