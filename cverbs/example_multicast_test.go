package cverbs_test

import (
	"fmt"
	"log"
	"net/netip"
	"time"

	"github.com/godat/godat/cverbs"
)

// groupMember is a datagram queue pair on an id, with one buffer.
type groupMember struct {
	events *cverbs.EventChannel
	id     *cverbs.CMID
	pd     *cverbs.PD
	cq     *cverbs.CQ
	mr     *cverbs.MR
	qp     *cverbs.QP
	buf    []byte
}

// joinGroup creates a queue pair on the device of a local address, and joins the group. The event
// that it returns contains the path and the keys that a sender needs.
func joinGroup(local, group netip.Addr, as cverbs.JoinFlag) (m groupMember, joined cverbs.CMEvent) {
	var err error
	m.events, err = cverbs.CreateEventChannel()
	check(err)
	m.id, err = m.events.CreateID(cverbs.PortSpaceUDP)
	check(err)
	check(m.id.BindAddr(netip.AddrPortFrom(local, 0)))
	device, err := m.id.Context()
	check(err)
	m.pd, err = device.AllocPD()
	check(err)
	m.cq, err = device.CreateCQ(4, nil, 0)
	check(err)
	m.buf = make([]byte, 1024)
	m.mr, err = m.pd.RegMR(m.buf, cverbs.AccessLocalWrite)
	check(err)
	m.qp, err = m.id.CreateQP(m.pd, cverbs.QPInit{Type: cverbs.QPTypeUD, SendCQ: m.cq, RecvCQ: m.cq,
		Cap: cverbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}})
	check(err)
	_, err = m.qp.PostRecv([]cverbs.RecvWR{{ID: 1, NumSGE: 1}}, m.segment(len(m.buf)))
	check(err)

	check(m.id.JoinMulticast(group, as))
	joined, err = m.events.Get(time.Now().Add(10 * time.Second))
	check(err)
	check(joined.Err())
	return m, joined
}

func (m groupMember) segment(n int) []cverbs.SGE {
	return []cverbs.SGE{{Addr: m.mr.Addr(), Length: uint32(n), LKey: m.mr.LKey()}}
}

// completion polls for a completion, for at most 10 seconds.
func (m groupMember) completion() cverbs.WC {
	wc := make([]cverbs.WC, 1)
	for range 10000 {
		n, err := m.cq.Poll(wc)
		check(err)
		if n == 1 {
			return wc[0]
		}
		time.Sleep(time.Millisecond)
	}
	log.Fatal("no completion")
	return wc[0]
}

// close leaves the group first, because a queue pair that is attached to a group cannot be closed.
func (m groupMember) close(group netip.Addr) {
	check(m.id.LeaveMulticast(group))
	check(m.qp.Close())
	check(m.mr.Close())
	check(m.cq.Close())
	check(m.pd.Close())
	check(m.id.Close())
	check(m.events.Close())
}

// One queue pair sends a text to a multicast group, and two receive it. All three use the first
// RoCE device of this host that has an IPv4 address.
func ExampleCMID_JoinMulticast() {
	local, ok := firstRoCE()
	if !ok {
		log.Fatal("this host has no RoCE device with an IPv4 address")
	}
	group := netip.MustParseAddr("239.7.1.1")
	sender, to := joinGroup(local, group, cverbs.JoinSendOnly)
	defer sender.close(group)
	var members [2]groupMember
	for i := range members {
		members[i], _ = joinGroup(local, group, cverbs.JoinFullMember)
		defer members[i].close(group)
	}

	path, err := sender.pd.CreateAH(to.AH)
	check(err)
	defer path.Close()
	n := copy(sender.buf, "to all")
	_, err = sender.qp.PostSend([]cverbs.SendWR{{ID: 2, Opcode: cverbs.OpSend, Flags: cverbs.SendSignaled, NumSGE: 1,
		AH: path.Handle(), RemoteQPN: to.QPNum, RemoteQKey: to.QKey}}, sender.segment(n))
	check(err)
	sender.completion()
	for i, m := range members {
		wc := m.completion()
		fmt.Printf("member %d: %s, %s\n", i, wc.Status, m.buf[cverbs.GRHSize:wc.ByteLen])
	}
	// On a host with a device this prints:
	// member 0: SUCCESS, to all
	// member 1: SUCCESS, to all
}

// firstRoCE returns an IPv4 address of a RoCE device.
func firstRoCE() (netip.Addr, bool) {
	devices, err := cverbs.Devices()
	check(err)
	for _, d := range devices {
		ctx, err := cverbs.OpenDevice(d.Name)
		check(err)
		defer ctx.Close()
		attr, err := ctx.QueryDevice()
		check(err)
		if table, err := ctx.GIDTable(); err == nil && attr.MaxMcastGrp > 0 {
			for _, e := range table {
				if e.Type == cverbs.GIDTypeRoCEv2 && e.Addr().Is4() {
					return e.Addr(), true
				}
			}
		}
	}
	return netip.Addr{}, false
}
