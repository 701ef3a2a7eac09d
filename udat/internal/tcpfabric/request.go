package tcpfabric

import (
	"crypto/x509"
	"errors"

	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/softnic"
	"github.com/godat/godat/udat/internal/tcpfabric/iwarp"
)

// request is a connection request at the passive end.
type request struct {
	softnic.Request
	dev     *Device
	lis     *listener
	tcp     stream
	setup   iwarp.Setup
	counted bool // by listener.ask
}

func (r *request) refuse(private []byte, byConsumer bool) {
	if byConsumer && !r.setup.Extended {
		private = append([]byte(rejectMarker), private...)
	}
	s := iwarp.Setup{Reply: true, Revision: r.setup.Revision, Reject: true, CRC: r.setup.CRC, Private: private,
		Extended: r.setup.Extended, Busy: !byConsumer, Enhanced: r.setup.Enhanced}
	writeSetup(r.tcp, &s) // an error means that the peer has gone
	r.tcp.Close()
	if r.counted {
		r.lis.answer(r.Remote.Addr())
	}
}

func (r *request) Accept(q fabric.QP, p fabric.AcceptParams, on func(fabric.ConnEvent)) (fabric.Conn, error) {
	c := &conn{dev: r.dev}
	mu := &r.dev.HW.Mu
	mu.Lock()
	if err := r.Take(&c.Conn, q, p, on); err != nil {
		mu.Unlock()
		return nil, err
	}
	l := linkOf(c.QP)
	c.Depart = l.depart
	r.Answered()
	a := agreed{own: r.setup.Extended, crc: r.setup.CRC || c.dev.wantsCRC(r.tcp), in: c.In, out: c.Out,
		segment: c.dev.keep(r.tcp)}
	reply, err := r.reply(&a, p.Private)
	mu.Unlock()
	if err == nil {
		a.first = reply
		err = c.start(r.tcp, a)
	}
	if err != nil {
		mu.Lock()
		defer mu.Unlock()
		c.Drop()
		if !errors.Is(err, fabric.ErrQPState) {
			r.Remains()
		} else {
			r.lis.answer(r.Remote.Addr())
		}
		return nil, softnic.Failed("accept", err)
	}
	r.lis.answer(r.Remote.Addr())
	defer l.open()
	mu.Lock()
	defer mu.Unlock()
	if c.State == softnic.Accepting {
		c.Expire(replyLimit, fabric.EventFailed)
		if !a.own && !r.setup.PeerToPeer { // no ready message follows
			l.waitFirst()
			c.Establish(nil)
		}
	}
	return c, nil
}

func (r *request) reply(a *agreed, private []byte) ([]byte, error) {
	s := iwarp.Setup{Reply: true, Revision: r.setup.Revision, CRC: a.crc, Extended: a.own, Private: private}
	if r.setup.Enhanced {
		s.Enhanced, s.In, s.Out = true, uint16(a.in), uint16(a.out)
		s.PeerToPeer = r.setup.PeerToPeer && (r.setup.ReadyWrite || r.setup.ReadyRead)
		s.ReadyWrite = s.PeerToPeer && r.setup.ReadyWrite
		s.ReadyRead = s.PeerToPeer && !s.ReadyWrite
	}
	return s.Append(nil)
}

// PeerCertificates implements fabric.Authenticated.
func (r *request) PeerCertificates() []*x509.Certificate { return certificates(r.tcp) }
