package softnic

import (
	"net/netip"

	"github.com/godat/godat/udat/internal/fabric"
)

// Listener is the part of a listener that all transports share. The listener type of each transport
// embeds it.
type Listener struct {
	At     netip.AddrPort
	Accept fabric.Filter

	dev    *Device
	on     func(fabric.Request)
	ended  func()
	closed bool // guarded by Adapter.Mu
}

// Listen makes l a listener of the device. It calls bind, which must begin to listen and set l.At.
// When the listener ends, by Close or because the device is removed, onEnd is called. Adapter.Mu is
// not held during the calls of bind and onEnd.
func (d *Device) Listen(l *Listener, on func(fabric.Request), bind func() error, onEnd func()) error {
	const op = "listen"
	if on == nil {
		return Invalid(op, "no handler")
	}
	if err := d.admit(op, Listeners); err != nil {
		return err
	}
	l.dev, l.on, l.ended = d, on, onEnd // before bind, after which a request may come at once
	if err := bind(); err != nil {
		d.release(Listeners)
		return Failed(op, err)
	}
	d.HW.Mu.Lock()
	defer d.HW.Mu.Unlock()
	d.listeners[l] = struct{}{}
	return nil
}

func (l *Listener) Addr() netip.AddrPort { return l.At }

func (l *Listener) Close() error {
	d := l.dev
	d.HW.Mu.Lock()
	if l.closed {
		d.HW.Mu.Unlock()
		return Failed("close listener", fabric.ErrClosed)
	}
	l.closed = true
	delete(d.listeners, l)
	d.drop(Listeners)
	d.HW.Mu.Unlock()
	l.ended()
	return nil
}
