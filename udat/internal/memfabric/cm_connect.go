package memfabric

import (
	"net/netip"
	"slices"

	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/softnic"
)

// Connect starts a connection to one of the fabric's addresses.
func (d *Device) Connect(q fabric.QP, p fabric.ConnectParams, on func(fabric.ConnEvent)) (fabric.Conn, error) {
	c := &conn{dev: d}
	if err := d.Attempt(&c.Conn, q, p, on); err != nil {
		return nil, err
	}
	d.HW.Mu.Lock()
	defer d.HW.Mu.Unlock()
	to := c.Remote.Addr()
	c.Local = netip.AddrPortFrom(to, d.net.freePort())
	if to != addr4 && to != addr6 {
		c.Local = netip.AddrPortFrom(addr4, c.Local.Port())
		c.Finish(fabric.EventUnreachable, errNoHost)
		return c, nil
	}
	c.Expire(handshakeLimit, fabric.EventUnreachable)
	l := d.net.listeners[c.Remote.Port()]
	if l == nil {
		c.turnDown(d, fabric.ConnEvent{Kind: fabric.EventRejected, Err: errNobody})
		return c, nil
	}
	r := &request{from: c, dev: l.dev}
	r.Request = softnic.Request{Lis: &l.Listener, Local: c.Remote, Remote: c.Local, Data: slices.Clone(p.Private),
		In: p.ReadOut, Out: p.ReadIn, Refuse: r.refuse}
	d.send(MsgRequest, l.dev, func() {
		if !l.Accept.Accepts(r.Remote) {
			d.HW.Mu.Lock()
			defer d.HW.Mu.Unlock()
			c.turnDown(l.dev, fabric.ConnEvent{Kind: fabric.EventRejected, Err: errFiltered})
			return
		}
		r.Arrive(r)
	})
	return c, nil
}
