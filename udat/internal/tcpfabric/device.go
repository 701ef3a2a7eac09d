package tcpfabric

import (
	"net/netip"
	"sync"

	"github.com/godat/godat/udat/internal/softnic"
)

// Device is one opening of the host's TCP.
type Device struct {
	softnic.Device
	at     netip.Addr // listens here and connects from here; invalid: all addresses
	poller *poller
	links  map[*link]struct{} // with a socket; guarded by Adapter.Mu

	hotMu   sync.Mutex
	heated  []*hotSet // with links that are hot
	ticking []*hotSet // the poller's
}

// host is this device's address for a listener or an attempt without one.
func (d *Device) host() netip.Addr { return d.HW.Attr.Info.Addr }

// unlist takes the link out of those with a socket.
func (d *Device) unlist(l *link) {
	d.HW.Mu.Lock()
	defer d.HW.Mu.Unlock()
	delete(d.links, l)
}
