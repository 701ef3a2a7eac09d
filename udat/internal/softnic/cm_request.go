package softnic

import (
	"net/netip"
	"slices"

	"github.com/godat/godat/udat/internal/fabric"
)

// Request is the part of a connection request, at the passive end, that all transports share. The
// request type of each transport embeds it. The fields never change, except answered, which
// Adapter.Mu guards.
type Request struct {
	Lis           *Listener
	Local, Remote netip.AddrPort
	Data          []byte // private
	In, Out       uint8
	Refuse        func(private []byte, byConsumer bool) // sends a reject; Adapter.Mu is not held

	answered bool
}

// Arrive calls the listener's handler with self, the transport's request that embeds r. If the
// listener or the device is closed, or the device has been removed, Arrive rejects the request
// instead. The dispatcher calls Arrive.
func (r *Request) Arrive(self fabric.Request) {
	l := r.Lis
	d := l.dev
	d.HW.Mu.Lock()
	if l.closed || d.Usable("") != nil {
		d.HW.Mu.Unlock()
		r.Refuse(nil, false)
		return
	}
	d.requests[r] = struct{}{}
	d.HW.Mu.Unlock()
	l.on(self)
}

func (r *Request) LocalAddr() netip.AddrPort   { return r.Local }
func (r *Request) RemoteAddr() netip.AddrPort  { return r.Remote }
func (r *Request) Private() ([]byte, bool)     { return slices.Clone(r.Data), false }
func (r *Request) ReadDepths() (in, out uint8) { return r.In, r.Out }

// A call of pending returns an error if the request cannot be answered; Adapter.Mu is held.
func (r *Request) pending(op string) error {
	if r.answered {
		return Failed(op+": the request has been answered", fabric.ErrClosed)
	}
	return r.Lis.dev.Usable(op)
}

// Answered is called when the request has its answer, and records this. Adapter.Mu is held.
func (r *Request) Answered() {
	r.answered = true
	delete(r.Lis.dev.requests, r)
}

// Remains undoes Answered. The transport calls it if it could not send the answer. Adapter.Mu is
// held.
func (r *Request) Remains() {
	r.answered = false
	r.Lis.dev.requests[r] = struct{}{}
}

// Reject rejects the request.
func (r *Request) Reject(private []byte, byConsumer bool) error {
	const op = "reject"
	hw := r.Lis.dev.HW
	if len(private) > hw.Attr.MaxRejectData {
		return Invalid(op, "private data of %d bytes is above the limit %d", len(private), hw.Attr.MaxRejectData)
	}
	hw.Mu.Lock()
	if err := r.pending(op); err != nil {
		hw.Mu.Unlock()
		return err
	}
	r.Answered()
	hw.Mu.Unlock()
	r.Refuse(private, byConsumer)
	return nil
}

// Take makes c the passive end of the requested connection, with the queue pair q. After that, the
// transport must send the reply and call Answered. Adapter.Mu is held.
func (r *Request) Take(c *Conn, q fabric.QP, p fabric.AcceptParams, on func(fabric.ConnEvent)) error {
	const op = "accept"
	if err := r.pending(op); err != nil {
		return err
	}
	d := r.Lis.dev
	if err := c.claim(op, d, q, p.Private, d.HW.Attr.MaxAcceptData, on); err != nil {
		return err
	}
	c.State, c.Local, c.Remote = Accepting, r.Local, r.Remote
	c.In, c.Out = min(p.ReadIn, r.In), min(p.ReadOut, r.Out)
	return nil
}
