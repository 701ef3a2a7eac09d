package memfabric

import (
	"slices"

	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/softnic"
)

// request is a connection request at the passive end.
type request struct {
	softnic.Request
	from *conn
	dev  *Device
}

func (r *request) refuse(private []byte, byConsumer bool) {
	ev := fabric.ConnEvent{Kind: fabric.EventRejected, Private: slices.Clone(private), Err: errBusy}
	if byConsumer {
		ev.Kind, ev.Err = fabric.EventPeerRejected, nil
	}
	r.dev.HW.Mu.Lock()
	defer r.dev.HW.Mu.Unlock()
	r.from.turnDown(r.dev, ev)
}

func (r *request) Accept(q fabric.QP, p fabric.AcceptParams, on func(fabric.ConnEvent)) (fabric.Conn, error) {
	d := r.dev
	d.HW.Mu.Lock()
	defer d.HW.Mu.Unlock()
	c := &conn{dev: d}
	if err := r.Take(&c.Conn, q, p, on); err != nil {
		return nil, err
	}
	ready := c.Ready
	linkOf(c.QP).awaited.Store(&ready)
	if !c.join(r.from) {
		c.Drop()
		return nil, softnic.Failed("accept", fabric.ErrQPState)
	}
	r.Answered()
	private := slices.Clone(p.Private)
	d.send(MsgReply, r.from.dev, func() { r.from.replied(c, private) })
	c.Expire(handshakeLimit, fabric.EventFailed)
	return c, nil
}
