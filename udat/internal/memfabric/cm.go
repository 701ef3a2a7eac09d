package memfabric

import (
	"net/netip"

	"github.com/godat/godat/udat/internal/softnic"
)

// deviceName is the name of the only device of a Fabric. The device may be opened any number of
// times.
const deviceName = "mem0"

var (
	addr4 = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	addr6 = netip.IPv6Loopback()
)

// firstFreePort is the first port that freePort may choose, and also the number of ports that it
// may choose.
const firstFreePort = 1 << 15

// network holds the listeners that the devices of a fabric can connect to. Adapter.Mu guards it.
type network struct {
	listeners map[uint16]*listener
	nextPort  uint16
}

// Device is one opening of mem0.
type Device struct {
	softnic.Device
	ready readyList
	net   *network
}

// freePort returns an unused port, or 0 if there is none; Adapter.Mu is held.
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

// send sends a message of connection management to another device, whose dispatcher then calls
// onArrival.
func (d *Device) send(m softnic.Message, to *Device, onArrival func()) {
	if d.Hook != nil {
		if onArrival = d.Hook.Send(m, &to.Device, onArrival); onArrival == nil {
			return
		}
	}
	at := &to.Events
	if to.Closed() {
		at = &d.Events // a closed device has none; the sender's calls arrive, which finds the connection over
	}
	at.AddMessage(onArrival)
}
