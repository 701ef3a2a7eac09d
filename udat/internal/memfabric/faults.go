package memfabric

import (
	"sync/atomic"

	"github.com/godat/godat/udat/internal/softnic"
)

// Message is a kind of message of connection management.
type Message int

// The messages.
const (
	MsgRequest    Message = iota // of a connect
	MsgReply                     // of an accept
	MsgReady                     // of the active end, after the reply; it causes the acceptor's EventEstablished
	MsgReject                    // of a reject, by the program or by the fabric
	MsgDisconnect                // of a disconnect
	numMessages
)

// The kinds of objects, for Exhaust.
const (
	PDs       = softnic.PDs
	MRs       = softnic.MRs
	MWs       = softnic.MWs
	CQs       = softnic.CQs
	SRQs      = softnic.SRQs
	QPs       = softnic.QPs
	Listeners = softnic.Listeners
	Conns     = softnic.Conns
)

// Faults injects faults into one open device and its transport. All methods are safe for concurrent
// use and take effect at once.
type Faults struct {
	*softnic.Faults
	dev  *Device
	dead atomic.Bool
	lose [numMessages]int // guarded by Adapter.Mu
}

// A call of silent reports whether all messages from and to the device are lost.
func (f *Faults) silent() bool { return f.dead.Load() || f.Removed() }
