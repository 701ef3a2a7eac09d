package verbsfabric

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"net/netip"
	"slices"
	"time"

	"github.com/godat/godat/cverbs"
	"github.com/godat/godat/udat/internal/fabric"
)

// A ping is a connection request to the listener that the peer's device has for pings, with the
// numbers of queue pairs of this end, 4 bytes each. The device rejects it with a mark for each of
// them. The port is random, so that a host that has started anew does not answer for the one that
// has gone. The kernel queues pingBacklog requests and rejects the other ones, without marks.
const (
	pingBacklog = 4
	pingMost    = 14 // queue pairs of a ping: rdma_cm has room for 56 bytes
	pongHead    = "pong"
	aliveMark   = 'a'
	goneMark    = 'g'
)

// pingPatience is for how long the next ping to a peer's device waits for the answer to the latest.
const pingPatience = 100 * time.Millisecond

// hostPort is the port for peers that have told none: other programs, and kernels before 5.9. No
// service point listens on it, and the peer's kernel says so.
const hostPort = 1

// pingQPN is no queue pair's number. The number of one that is connected would end its connection:
// the peer would take the request for one of a host that has started anew.
const pingQPN = 1<<24 - 1

// pinger asks one peer's device about the connections to it. Each ping asks about many.
type pinger struct {
	path
	dev *device

	// Guarded by the device's pingMu.
	users   int     // connections that have asked
	waiting []*conn // whose question has not been sent
	pings   []*ping // without an answer
	latest  *ping   // nil: it was answered
}

// path is where a ping goes, and from where.
type path struct {
	local  netip.Addr
	remote netip.AddrPort
}

type ping struct {
	by    *pinger
	id    *cverbs.CMID
	asked []question
	sent  time.Time
}

// question is whether the peer's device has the connection of this end's queue pair qpn.
type question struct {
	qpn uint32
	on  func(fabric.PingAnswer)
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
	d := c.dev
	if d.iwarp {
		on(fabric.PingAlive)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.destroyed || c.state != stUp {
		return
	}
	d.pingMu.Lock()
	defer d.pingMu.Unlock()
	if c.pinger == nil {
		c.pinger = d.pingerTo(path{c.local.Addr(), netip.AddrPortFrom(c.remote.Addr(), cmp.Or(c.pingPort, hostPort))})
		c.pinger.users++
	}
	p := c.pinger
	if c.onPong == nil {
		p.waiting = append(p.waiting, c)
	}
	c.onPong = on
	if p.latest == nil || time.Since(p.latest.sent) > pingPatience {
		p.send()
	}
}

// pingerTo returns the pinger of a path; pingMu is held.
func (d *device) pingerTo(to path) *pinger {
	p := d.pingers[to]
	if p == nil {
		p = &pinger{path: to, dev: d}
		d.pingers[to] = p
	}
	return p
}

// send sends a ping with the questions that have waited longest; pingMu is held.
func (p *pinger) send() {
	g := &ping{by: p, sent: time.Now()}
	n := min(len(p.waiting), pingMost)
	for _, c := range p.waiting[:n] {
		g.asked = append(g.asked, question{c.qp.v.Num(), c.onPong})
		c.onPong = nil
	}
	p.waiting = slices.Delete(p.waiting, 0, n)
	id, err := p.dev.ch.CreateID(cverbs.PortSpaceTCP)
	if err != nil {
		for _, q := range g.asked {
			q.on(fabric.PingBusy) // nothing is known of the peer
		}
		return
	}
	g.id = id
	id.SetData(g)
	p.pings, p.latest = append(p.pings, g), g
	if err := id.ResolveAddr(netip.AddrPortFrom(p.local, 0), p.remote, p.dev.opts.CMWait); err != nil {
		p.dev.post(g.end)
	}
}

// handle runs on the event goroutine.
func (g *ping) handle(ev cverbs.CMEvent) {
	var err error
	switch ev.Type {
	case cverbs.CMEventAddrResolved:
		err = g.id.ResolveRoute(g.by.dev.opts.CMWait)
	case cverbs.CMEventRouteResolved:
		var numbers []byte
		for _, q := range g.asked {
			numbers = binary.BigEndian.AppendUint32(numbers, q.qpn)
		}
		err = g.id.Connect(cverbs.ConnParam{QPNum: pingQPN, PrivateData: numbers})
	case cverbs.CMEventRejected, cverbs.CMEventConnectResponse:
		g.answered(ev)
		g.end()
	default:
		g.end()
	}
	if err != nil {
		g.end()
	}
}

// answered hands out the answers.
func (g *ping) answered(ev cverbs.CMEvent) {
	p := g.by
	p.dev.pingMu.Lock()
	for _, c := range p.waiting {
		c.onPong(fabric.PingBusy) // it learns that somebody answers, its own answer comes later
	}
	p.dev.pingMu.Unlock()
	for i, q := range g.asked {
		mark := markOf(ev.PrivateData, i)
		switch {
		case p.remote.Port() == hostPort || mark == aliveMark: // with hostPort any answer of the host will do
			q.on(fabric.PingAlive)
		case ev.Status == cverbs.RejectNoListener || mark == goneMark:
			q.on(fabric.PingGone)
		default:
			q.on(fabric.PingBusy)
		}
	}
}

// markOf returns the mark of a ping's queue pair i, 0 for none.
func markOf(private []byte, i int) byte {
	if marks, ok := bytes.CutPrefix(private, []byte(pongHead)); ok && i < len(marks) {
		return marks[i]
	}
	return 0
}

// end ends a ping once. After the latest the next one goes out.
func (g *ping) end() {
	p, d := g.by, g.by.dev
	d.pingMu.Lock()
	i := slices.Index(p.pings, g)
	if i >= 0 {
		p.pings = slices.Delete(p.pings, i, i+1)
		if p.latest == g {
			p.latest = nil
			if len(p.waiting) > 0 {
				p.send()
			}
		}
	}
	d.pingMu.Unlock()
	if i >= 0 {
		d.destroyID(g.id)
	}
}

// pong returns what to reject a request with: a ping is told which of its connections are alive.
func (d *device) pong(l *listener, ev cverbs.CMEvent) []byte {
	if l != &d.pinged {
		return nil
	}
	from := ev.ID.RemoteAddr().Addr()
	alive := map[uint32]bool{} // by the number of the peer's queue pair
	for _, c := range d.allConns() {
		c.mu.Lock()
		if c.remote.Addr() == from && (c.state == stAccepted || c.state == stUp) {
			alive[c.peerQPN] = true
		}
		c.mu.Unlock()
	}
	return marks(ev.PrivateData, alive)
}

// marks returns the answer to a ping, in whose private data zeros follow the numbers.
func marks(numbers []byte, alive map[uint32]bool) []byte {
	answer := []byte(pongHead)
	for number := range slices.Chunk(numbers, 4) {
		switch {
		case len(number) < 4 || binary.BigEndian.Uint32(number) == 0:
			return answer
		case alive[binary.BigEndian.Uint32(number)]:
			answer = append(answer, aliveMark)
		default:
			answer = append(answer, goneMark)
		}
	}
	return answer
}

// endPings takes back the connection's questions. The last connection to a device ends the pings to
// it. The caller holds the connection's lock.
func (c *conn) endPings() {
	p, d := c.pinger, c.dev
	if p == nil {
		return
	}
	d.pingMu.Lock()
	c.pinger = nil
	if c.onPong != nil {
		c.onPong = nil
		p.waiting = slices.DeleteFunc(p.waiting, func(other *conn) bool { return other == c })
	}
	var left []*ping
	if p.users--; p.users == 0 {
		delete(d.pingers, p.path)
		left, p.pings = p.pings, nil
	}
	d.pingMu.Unlock()
	for _, g := range left {
		d.destroyID(g.id)
	}
}
