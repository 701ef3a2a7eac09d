// Package cm implements the connections and listeners of package verbsfabric with rdma_cm's ids. It
// uses the device and its queue pairs through two small interfaces.
//
// A [Manager] has one goroutine, which reads the events of one device's ids and calls every
// handler. The goroutine parks in Go's poller. All methods are safe for concurrent use.
package cm

import (
	"net/netip"

	"github.com/godat/godat/cverbs"
	"github.com/godat/godat/udat/internal/fabric"
)

// Port has the properties of an open port that never change.
type Port struct {
	Device  string // as rdma_cm names it
	Num     uint8
	IWARP   bool
	Attr    fabric.Attr
	Options fabric.Options
}

// Device is an open port.
type Device interface {
	Port() *Port
	// Addrs returns the addresses to listen on. The port's own address comes first.
	Addrs() []netip.Addr
	// SourceFor returns the local address for a destination. It returns false if no address is of the
	// destination's IP family.
	SourceFor(dst netip.Addr) (netip.Addr, bool)
	// NoRoute reports whether messages between the addresses have to wait, because there is no
	// route for them.
	NoRoute(local netip.Addr, remote netip.AddrPort) bool
	// OwnQP returns the device's queue pair for q. q is this queue pair or a decorator of it.
	OwnQP(q fabric.QP) (QP, error)
	// Gone is called once, on the event goroutine, when the device has been removed.
	Gone()
}

// QP is a queue pair that a connection moves from state to state.
type QP interface {
	Num() uint32
	// Claim reserves the queue pair, in INIT, for an attempt. dataCame is called when data comes
	// before the connection is established.
	Claim(dataCame func()) error
	// Unclaim ends the claim of an attempt whose queue pair is still in INIT.
	Unclaim()
	// Connect moves the queue pair through RTR to RTS with the path of id. It also reports whether the
	// queue pair has left INIT, which may be so even after an error.
	Connect(id *cverbs.CMID, in, out uint8) (moved bool, err error)
	// Connected is called when the driver itself has moved the queue pair to RTS, as iWARP drivers do.
	Connected()
	// SetError moves the queue pair to the error state.
	SetError() error
}
