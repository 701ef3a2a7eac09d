//go:build linux && cgo

package cverbs

import (
	"net/netip"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// member is a datagram id whose queue pair receives what is sent to its groups.
type member struct {
	t   *testing.T
	ch  *EventChannel
	id  *CMID
	cq  *CQ
	pd  *PD
	qp  *QP
	mr  *MR
	buf []byte
}

const slot = GRHSize + 64 // bytes of buffer for each datagram

// newMember creates a member on a local address, and posts its receives.
func newMember(t *testing.T, local netip.Addr) *member {
	t.Helper()
	m := &member{t: t, buf: make([]byte, 8*slot)}
	m.ch = closing[*EventChannel](t)(CreateEventChannel())
	m.id = closing[*CMID](t)(m.ch.CreateID(PortSpaceUDP))
	assert.NilError(t, m.id.BindAddr(netip.AddrPortFrom(local, 0)))
	ctx, err := m.id.Context()
	assert.NilError(t, err)
	m.pd = closing[*PD](t)(ctx.AllocPD())
	m.cq = closing[*CQ](t)(ctx.CreateCQ(32, nil, 0))
	m.mr = closing[*MR](t)(m.pd.RegMR(m.buf, AccessLocalWrite))
	m.qp = closing[*QP](t)(m.id.CreateQP(m.pd, QPInit{Type: QPTypeUD, SendCQ: m.cq, RecvCQ: m.cq, Cap: defaultCap}))
	for i := range 6 {
		_, err := m.qp.PostRecv([]RecvWR{{ID: uint64(i), NumSGE: 1}}, []SGE{m.sge(i*slot, slot)})
		assert.NilError(t, err)
	}
	return m
}

func (m *member) sge(off, n int) SGE {
	return SGE{Addr: m.mr.Addr() + uint64(off), Length: uint32(n), LKey: m.mr.LKey()}
}

// mustJoin joins a group and returns its event.
func (m *member) mustJoin(group netip.Addr, as JoinFlag) CMEvent {
	m.t.Helper()
	assert.NilError(m.t, m.id.JoinMulticast(group, as))
	ev := want(m.t, m.ch, CMEventMulticastJoin)
	assert.Equal(m.t, ev.ID, m.id)
	assert.Equal(m.t, ev.Group, group)
	assert.Equal(m.t, ev.AH.DGID.Addr(), group)
	assert.Equal(m.t, ev.QPNum, uint32(0xffffff))
	return ev
}

// send sends a text to the group of an event.
func (m *member) send(ev CMEvent, text string) {
	m.t.Helper()
	ah := closing[*AH](m.t)(m.pd.CreateAH(ev.AH))
	copy(m.buf[7*slot:], text)
	_, err := m.qp.PostSend([]SendWR{{ID: 99, Opcode: OpSend, Flags: SendSignaled, NumSGE: 1, AH: ah.Handle(),
		RemoteQPN: ev.QPNum, RemoteQKey: ev.QKey}}, []SGE{m.sge(7*slot, len(text))})
	assert.NilError(m.t, err)
	wc := poll(m.t, m.cq, 1)[0]
	assert.Equal(m.t, wc.Status, WCSuccess)
	assert.Equal(m.t, wc.ID, uint64(99))
	assert.NilError(m.t, ah.Close())
}

// gets takes the next datagram, and fails the test unless it contains the text.
func (m *member) gets(text string) WC {
	m.t.Helper()
	wc := poll(m.t, m.cq, 1)[0]
	assert.Equal(m.t, wc.Status, WCSuccess)
	data := m.buf[int(wc.ID)*slot:][GRHSize:wc.ByteLen]
	assert.Equal(m.t, string(data), text)
	return wc
}

func (m *member) getsNothing() {
	m.t.Helper()
	n, err := m.cq.Poll(make([]WC, 1))
	assert.NilError(m.t, err)
	assert.Equal(m.t, n, 0)
}

// TestCMMulticast: a datagram to a group comes to each member. It comes neither to members that
// have left nor to members that only send. A member of two groups gets the datagrams of both.
func TestCMMulticast(t *testing.T) {
	ctx := openRoCE(t)
	notOnLoop(t, ctx)
	local := localAddr(t, ctx)
	groups := [2]netip.Addr{netip.MustParseAddr("239.1.2.3"), netip.MustParseAddr("239.1.2.4")}
	sender := newMember(t, local)
	to := sender.mustJoin(groups[0], JoinSendOnly)
	toOther := sender.mustJoin(groups[1], JoinSendOnly)
	var members [3]*member
	for i := range members {
		members[i] = newMember(t, local)
		members[i].mustJoin(groups[0], JoinFullMember)
	}
	members[2].mustJoin(groups[1], JoinFullMember)

	sender.send(to, "to all")
	for _, m := range members {
		wc := m.gets("to all")
		assert.Equal(t, wc.SrcQP, sender.qp.Num())
		assert.Equal(t, wc.Flags&WCGRH, WCGRH)
	}
	sender.send(toOther, "to one")
	members[2].gets("to one")

	// One member leaves. The next datagram that it gets is the one that is sent after it has joined
	// again.
	isErr(t, members[1].qp.Close(), syscall.EBUSY)
	assert.NilError(t, members[1].id.LeaveMulticast(groups[0]))
	sender.send(to, "to the others")
	members[0].gets("to the others")
	members[2].gets("to the others")
	members[1].getsNothing()
	members[1].mustJoin(groups[0], JoinFullMember)
	sender.send(to, "to all again")
	for _, m := range members {
		m.gets("to all again")
		m.getsNothing()
	}
	sender.getsNothing()

	// A queue pair can be closed once its id has left all groups.
	assert.NilError(t, members[2].id.LeaveMulticast(groups[0]))
	isErr(t, members[2].qp.Close(), syscall.EBUSY)
	assert.NilError(t, members[2].id.LeaveMulticast(groups[1]))
	for i, m := range members {
		if i < 2 {
			assert.NilError(t, m.id.LeaveMulticast(groups[0]))
		}
		assert.NilError(t, m.qp.Close())
	}
	assert.NilError(t, sender.qp.Close(), "a member that only sends is not attached")
	assert.NilError(t, sender.id.Close())
}

// TestCMMulticastLeaveEarly: after a group was left, its pending event is not returned, and does
// not attach the queue pair.
func TestCMMulticastLeaveEarly(t *testing.T) {
	ctx := openRoCE(t)
	notOnLoop(t, ctx)
	m := newMember(t, localAddr(t, ctx))
	group, next := netip.MustParseAddr("239.1.2.3"), netip.MustParseAddr("239.1.2.4")
	for range 20 {
		assert.NilError(t, m.id.JoinMulticast(group, JoinFullMember))
		assert.NilError(t, m.id.LeaveMulticast(group))
	}
	m.mustJoin(next, JoinFullMember) // the next event
	_, ok := m.ch.event()            // once more, as if the event had been read and not converted yet
	assert.Assert(t, ok)
	assert.NilError(t, m.id.LeaveMulticast(next))
	_, ok = m.ch.event()
	assert.Assert(t, !ok)
	_, err := m.ch.Get(time.Now().Add(50 * time.Millisecond))
	assert.Assert(t, err != nil)
	assert.NilError(t, m.qp.Close())
	assert.NilError(t, m.id.JoinMulticast(group, JoinFullMember))
	assert.NilError(t, m.id.Close()) // while the group is joined
}

func TestCMMulticastBadInput(t *testing.T) {
	ctx := openDevice(t)
	notOnLoop(t, ctx)
	ch := closing[*EventChannel](t)(CreateEventChannel())
	group, local := netip.MustParseAddr("::ffff:239.1.2.3"), netip.AddrPortFrom(localAddr(t, ctx), 0)
	refused := func(err error, want string) {
		t.Helper()
		isErr(t, err, syscall.EINVAL)
		assert.ErrorContains(t, err, want)
	}
	udp := closing[*CMID](t)(ch.CreateID(PortSpaceUDP))
	refused(udp.JoinMulticast(group, JoinFullMember), "not bound to a device yet")
	assert.NilError(t, udp.BindAddr(local))
	for _, bad := range []string{"10.0.0.1", "fe80::1", "::", "240.0.0.0"} {
		refused(udp.JoinMulticast(netip.MustParseAddr(bad), JoinFullMember), bad+" is not a multicast address")
		refused(udp.LeaveMulticast(netip.MustParseAddr(bad)), bad+" is not a multicast address")
	}
	refused(udp.JoinMulticast(netip.Addr{}, JoinFullMember), "not a multicast address")
	refused(udp.JoinMulticast(group, 2), "JoinFlag(2)")
	refused(udp.LeaveMulticast(group), "has not been joined")
	tcp := closing[*CMID](t)(ch.CreateID(PortSpaceTCP))
	assert.NilError(t, tcp.BindAddr(local))
	refused(tcp.JoinMulticast(group, JoinFullMember), "port space is TCP")
	if isIWARP(t, ctx) {
		return
	}
	err := udp.JoinMulticast(netip.MustParseAddr("ff0e::1"), JoinFullMember)
	isErr(t, err, ErrNotSupported)
	assert.ErrorContains(t, err, "no IPv6 groups on RoCE v2")
	assert.NilError(t, udp.JoinMulticast(group, JoinFullMember))
	refused(udp.JoinMulticast(group.Unmap(), JoinSendOnly), "joined already")
	assert.NilError(t, udp.LeaveMulticast(group.Unmap()))
	refused(udp.LeaveMulticast(group), "has not been joined")
	assert.NilError(t, udp.Close())
	assert.Equal(t, udp.JoinMulticast(group, JoinFullMember), ErrClosed)
	assert.Equal(t, udp.LeaveMulticast(group), ErrClosed)
}
