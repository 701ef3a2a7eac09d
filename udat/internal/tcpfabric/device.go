package tcpfabric

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/godat/godat/udat/internal/softnic"
)

// Device is an open device of the fabric.
type Device struct {
	softnic.Device
	at     netip.Addr // the address to listen on and to connect from; invalid: all addresses
	poller *poller
	budget budget
	links  map[*link]struct{} // the links that have a socket; guarded by Adapter.Mu

	watching atomic.Bool // a call of check will come

	progressMu sync.Mutex
	owing      []*progress // the queues for which tick must send an acknowledgement
	paying     []*progress // scratch space of tick
}

// userTimeout is the time after which TCP gives up a peer that does not acknowledge: half a minute
// with 7 retries, the default.
func (d *Device) userTimeout() time.Duration { return 4 * time.Duration(d.Opts.Retry+1) * time.Second }

// closedLimit is the time after which a peer is given up whose window is closed, and whose host
// does not answer TCP's probes. TCP sends one at least every two minutes.
const closedLimit = 130 * time.Second

// watch makes the method check run soon.
func (d *Device) watch() {
	if !d.watching.Swap(true) {
		time.AfterFunc(d.userTimeout()/4, func() { d.check(closedLimit) })
	}
}

// check sets TCP's user timeout on the links whose data TCP has not delivered. The timeout is off
// on an idle connection, because it would end the keep-alive after one probe. It is off while the
// window of the peer is closed, because its program may be stopped while its host answers. Then
// check itself ends the connection if the host has not answered for longer than limit.
func (d *Device) check(limit time.Duration) {
	for _, l := range d.waiting() {
		l.unacked.Store(false)
		var data, closed bool
		var silent time.Duration
		l.qp.In.Lock()
		if l.live.Load() {
			l.sock.raw(func(fd uintptr) {
				if data, closed, silent = undelivered(fd); data {
					l.unacked.Store(true)
				}
				timeout := time.Duration(0) // off
				if data && !closed {
					timeout = d.userTimeout()
				}
				if l.timeout != timeout {
					l.timeout = timeout
					setUserTimeout(fd, timeout)
				}
			})
		}
		l.qp.In.Unlock()
		if closed && silent > limit && l.end.CompareAndSwap(nil, &end{syscall.ETIMEDOUT}) {
			l.run()
		}
	}
	d.watching.Store(false)
	if len(d.waiting()) > 0 {
		d.watch()
	}
}

// waiting returns the links with data that TCP may not have delivered.
func (d *Device) waiting() (list []*link) {
	d.HW.Mu.Lock()
	defer d.HW.Mu.Unlock()
	for l := range d.links {
		if l.unacked.Load() {
			list = append(list, l)
		}
	}
	return list
}

// host returns the local address of a listener, or of an attempt that is not connected yet.
func (d *Device) host() netip.Addr { return d.HW.Attr.Info.Addr }

// unlist removes the link from Device.links, which holds the links that have a socket.
func (d *Device) unlist(l *link) {
	d.HW.Mu.Lock()
	defer d.HW.Mu.Unlock()
	delete(d.links, l)
}
