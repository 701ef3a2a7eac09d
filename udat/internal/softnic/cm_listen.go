package softnic

import (
	"net/netip"

	"github.com/godat/godat/udat/internal/fabric"
)

// Listener is a listener without its wire: the listener of a wire embeds it.
type Listener struct {
	At netip.AddrPort

	dev    *Device
	on     func(fabric.Request)
	ended  func()
	closed bool // guarded by Adapter.Mu
}

// Listen makes l a listener of the device, for the addresses that the wire's bind finds for it.
// ended is called when it ends, by Close or the removal of the device. Adapter.Mu is held during
// neither.
func (d *Device) Listen(l *Listener, on func(fabric.Request), bind func() error, ended func()) error {
	const op = "listen"
	if on == nil {
		return Invalid(op, "no handler")
	}
	if err := d.admit(op, Listeners); err != nil {
		return err
	}
	l.dev, l.on, l.ended = d, on, ended // a request may come as soon as bind has made l known
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
