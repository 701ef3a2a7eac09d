package memfabric

import (
	"net/netip"

	"github.com/godat/godat/udat/internal/softnic"
)

// deviceName is the only device of a Fabric; it may be opened any number of times.
const deviceName = "mem0"

var (
	addr4 = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	addr6 = netip.IPv6Loopback()
)

// firstFreePort is where the search for a free port starts: as many are below it as from it on.
const firstFreePort = 1 << 15

// network is what the devices of a fabric reach. Guarded by Adapter.Mu.
type network struct {
	listeners map[uint16]*listener
	nextPort  uint16
}

// Device is one opening of mem0: a device, and its connections.
type Device struct {
	softnic.Device
	faults Faults
	ready  readyList
	net    *network
}

// freePort returns an unused port, 0 if there is none; Adapter.Mu is held.
func (n *network) freePort() uint16 {
	for range firstFreePort {
		p := n.nextPort
		if n.nextPort++; n.nextPort == 0 {
			n.nextPort = firstFreePort
		}
		if n.listeners[p] == nil {
			return p
		}
	}
	return 0
}

// send passes a message of connection management to another device, or loses it where a fault says
// so.
func (d *Device) send(m Message, to *Device, arrive func()) {
	if n := &d.faults.lose[m]; *n > 0 {
		*n--
		return
	}
	if d.faults.silent() {
		return
	}
	at := &to.Events
	if to.Closed() {
		at = &d.Events // a closed device has no dispatcher; arrive finds that the connection is over
	}
	at.AddMessage(d.faults.Delayed(), func() {
		if !to.faults.silent() {
			arrive()
		}
	})
}
