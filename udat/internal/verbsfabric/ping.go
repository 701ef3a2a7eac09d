package verbsfabric

import (
	"bytes"
	"encoding/binary"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"github.com/godat/godat/cverbs"
	"github.com/godat/godat/udat/internal/fabric"
)

// A ping is a connection request to the listener that the peer's device has for pings, with the
// number of this end's queue pair. The device rejects it with one of the markers. The port is
// random, so that a host that has started anew does not answer for the one that has gone. The
// kernel queues pingBacklog requests and rejects the other ones, without a marker.
const (
	pingBacklog = 4
	aliveMarker = "alive"
	goneMarker  = "gone"
)

// hostPort is the port for peers that have told none: other programs, and kernels before 5.9. No
// service point listens on it, and the peer's kernel says so.
const hostPort = 1

// pingQPN is no queue pair's number. The number of one that is connected would end its connection:
// the peer would take the request for one of a host that has started anew.
const pingQPN = 1<<24 - 1

type ping struct {
	dev  *device
	on   func(fabric.PingAnswer)
	host bool   // any answer of the peer's host will do
	qpn  uint32 // of this end's queue pair

	mu sync.Mutex
	id *cverbs.CMID // nil: over
}

// pingPort returns the port of the listener for pings, 0 if it does not listen on the address.
func (d *device) pingPort(local netip.Addr) uint16 {
	l := &d.pinged
	d.pingOnce.Do(func() {
		l.dev, l.backlog = d, pingBacklog
		l.listen(0) // without it peers ping the host
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	if !slices.ContainsFunc(l.ids, func(id *cverbs.CMID) bool { return id.LocalAddr().Addr() == local }) {
		return 0
	}
	return l.addr.Port()
}

// Ping asks the peer's device for an answer. iWARP needs none: TCP gives up by itself.
func (c *conn) Ping(on func(fabric.PingAnswer)) {
	if c.dev.iwarp {
		on(fabric.PingAlive)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.destroyed || c.state != stUp {
		return
	}
	c.pings = slices.DeleteFunc(c.pings, (*ping).over)
	id, err := c.dev.ch.CreateID(cverbs.PortSpaceTCP)
	if err != nil {
		on(fabric.PingBusy) // nothing is known of the peer
		return
	}
	p := &ping{dev: c.dev, on: on, id: id, host: c.pingPort == 0, qpn: c.qp.v.Num()}
	id.SetData(p)
	c.pings = append(c.pings, p)
	to := netip.AddrPortFrom(c.remote.Addr(), c.pingPort)
	if p.host {
		to = netip.AddrPortFrom(c.remote.Addr(), hostPort)
	}
	if err := id.ResolveAddr(netip.AddrPortFrom(c.local.Addr(), 0), to, c.dev.opts.CMWait); err != nil {
		p.close()
	}
}

// handle runs on the event goroutine.
func (p *ping) handle(ev cverbs.CMEvent) {
	p.mu.Lock()
	id := p.id
	p.mu.Unlock()
	if id == nil {
		return
	}
	var err error
	switch ev.Type {
	case cverbs.CMEventAddrResolved:
		err = id.ResolveRoute(p.dev.opts.CMWait)
	case cverbs.CMEventRouteResolved:
		err = id.Connect(cverbs.ConnParam{QPNum: pingQPN, PrivateData: binary.BigEndian.AppendUint32(nil, p.qpn)})
	case cverbs.CMEventRejected, cverbs.CMEventConnectResponse:
		p.close()
		switch {
		case p.host || bytes.HasPrefix(ev.PrivateData, []byte(aliveMarker)):
			p.on(fabric.PingAlive)
		case ev.Status == cverbs.RejectNoListener || bytes.HasPrefix(ev.PrivateData, []byte(goneMarker)):
			p.on(fabric.PingGone)
		default:
			p.on(fabric.PingBusy)
		}
	default:
		p.close()
	}
	if err != nil {
		p.close()
	}
}

// pong returns what to reject a request with: a ping is told whether its connection is alive.
func (d *device) pong(l *listener, ev cverbs.CMEvent) []byte {
	if l != &d.pinged || len(ev.PrivateData) < 4 {
		return nil
	}
	from, qpn := ev.ID.RemoteAddr().Addr(), binary.BigEndian.Uint32(ev.PrivateData)
	d.mu.Lock()
	conns := slices.Collect(maps.Keys(d.conns))
	d.mu.Unlock()
	for _, c := range conns {
		c.mu.Lock()
		known := c.peerQPN == qpn && c.remote.Addr() == from && (c.state == stAccepted || c.state == stUp)
		c.mu.Unlock()
		if known {
			return []byte(aliveMarker)
		}
	}
	return []byte(goneMarker)
}

// endPings gives up all pings. The caller holds the lock.
func (c *conn) endPings() {
	for _, p := range c.pings {
		p.close()
	}
	c.pings = nil
}

func (p *ping) over() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.id == nil
}

func (p *ping) close() {
	p.mu.Lock()
	id := p.id
	p.id = nil
	p.mu.Unlock()
	if id != nil {
		p.dev.destroyID(id)
	}
}
