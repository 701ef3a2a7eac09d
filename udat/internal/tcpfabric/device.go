package tcpfabric

import (
	"net/netip"
	"sync"

	"github.com/godat/godat/udat/internal/softnic"
)

// Device is an open device of the fabric.
type Device struct {
	softnic.Device
	at     netip.Addr // the address to listen on and to connect from; invalid: all addresses
	poller *poller
	budget budget
	links  map[*link]struct{} // the links that have a socket; guarded by Adapter.Mu

	hotMu   sync.Mutex
	heated  []*hotSet // the sets that tick must check
	ticking []*hotSet // scratch space of tick
}

// host returns the local address of a listener, or of an attempt that is not connected yet.
func (d *Device) host() netip.Addr { return d.HW.Attr.Info.Addr }

// unlist removes the link from Device.links, which holds the links that have a socket.
func (d *Device) unlist(l *link) {
	d.HW.Mu.Lock()
	defer d.HW.Mu.Unlock()
	delete(d.links, l)
}
