package memfabric

import (
	"fmt"
	"net/netip"

	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/softnic"
)

type listener struct {
	softnic.Listener
	dev *Device
}

// Listen accepts requests for 127.0.0.1 and ::1. The fabric has port numbers of its own, and none
// of them is privileged.
func (d *Device) Listen(port uint16, accept fabric.Filter, on func(fabric.Request)) (fabric.Listener, error) {
	l := &listener{dev: d}
	l.Accept = accept
	bind := func() error {
		d.HW.Mu.Lock()
		defer d.HW.Mu.Unlock()
		if port == 0 {
			port = d.net.freePort()
		}
		if port == 0 || d.net.listeners[port] != nil {
			return fmt.Errorf("%s: port %d: %w", deviceName, port, fabric.ErrAddrInUse)
		}
		d.net.listeners[port] = l
		l.At = netip.AddrPortFrom(addr4, port)
		return nil
	}
	unbind := func() {
		d.HW.Mu.Lock()
		defer d.HW.Mu.Unlock()
		if d.net.listeners[port] == l { // after a removal, another listener may have the port
			delete(d.net.listeners, port)
		}
	}
	if err := d.Device.Listen(&l.Listener, on, bind, unbind); err != nil {
		return nil, err
	}
	return l, nil
}
