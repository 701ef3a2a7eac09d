package softnic

import "github.com/godat/godat/udat/internal/fabric"

// Hook injects faults into one device. Package nicfault, which only tests import, makes it; the
// devices of a program have none.
type Hook struct {
	Maker any // for the package that has made the hook

	// Create returns an error if no object of kind r can be created. Adapter.Mu is held.
	Create func(r Resource) error
	// Post returns an error if nothing can be posted.
	Post func() error
	// Request is called before a request is put into the send queue of q.
	Request func(q *QP)
	// Holds reports whether the transport must not start request n of q yet. If so, the hook wakes
	// the link of q later.
	Holds func(q *QP, n uint64) bool
	// Start is called once for each request that the transport starts. If its result is not
	// StatusSuccess, the request completes with it and is not sent.
	Start func() fabric.Status
	// Receive is called when a message has taken its receive. If its result is not StatusSuccess, the
	// receive completes with it, and the sender's request with StatusRemoteOp.
	Receive func() fabric.Status
	// Ahead returns how many receives a queue pair takes from its SRQ before their messages come.
	Ahead func() int
	// Send returns what the dispatcher of the device to runs when message m arrives, or nil if m is
	// lost. Without the hook it runs arrive. Adapter.Mu is held.
	Send func(m Message, to *Device, arrive func()) func()
	// Reaches reports whether messages pass between q and peer.
	Reaches func(q, peer *QP) bool
}

// Message is a kind of message of connection management, for Hook.Send.
type Message int

// The messages.
const (
	MsgRequest    Message = iota // of a connect
	MsgReply                     // of an accept
	MsgReady                     // of the active end, after the reply; it causes the acceptor's EventEstablished
	MsgReject                    // of a reject, by the program or by the fabric
	MsgDisconnect                // of a disconnect
)
