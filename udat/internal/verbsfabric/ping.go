package verbsfabric

import (
	"net/netip"
	"slices"
	"sync"

	"github.com/godat/godat/cverbs"
)

// pingPort is a port that no service point listens on, so that the peer's connection manager
// refuses the request at once. It does so in the kernel: a stopped process does not matter.
const pingPort = 1

// pingQPN is no queue pair's number. The number of one that is connected would end its connection:
// the peer would take the request for one of a host that has started anew.
const pingQPN = 1<<24 - 1

// ping is a connection request that asks a host for an answer, whichever.
type ping struct {
	dev *device
	on  func()

	mu sync.Mutex
	id *cverbs.CMID // nil: over
}

// Ping asks the peer's host for an answer. iWARP needs none: TCP gives up by itself.
func (c *conn) Ping(on func()) {
	if c.dev.iwarp {
		on()
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
		on() // nothing is known of the peer
		return
	}
	p := &ping{dev: c.dev, on: on, id: id}
	id.SetData(p)
	c.pings = append(c.pings, p)
	to := netip.AddrPortFrom(c.remote.Addr(), pingPort)
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
		err = id.Connect(cverbs.ConnParam{QPNum: pingQPN})
	case cverbs.CMEventRejected, cverbs.CMEventConnectResponse:
		p.close()
		p.on()
	default:
		p.close()
	}
	if err != nil {
		p.close()
	}
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
		id.Close()
	}
}
