// Package fabric is the narrow waist between package udat and whatever moves the bytes: the interfaces and
// plain structs that an RDMA fabric offers. It holds no code; its flat types of work are those of package cverbs.
//
// Conventions that every fabric keeps and udat builds on:
//
//   - Every method is safe for concurrent use. Close is idempotent in effect: a second call returns ErrClosed.
//   - Handlers (of listeners, connections and asynchronous events) are called one at a time, in order, by one
//     goroutine per Device. They must not block for long and may call any method except Device.Close.
//   - After Close of a Listener, Conn or QP has returned, a handler call that had already begun may still finish:
//     the receiver tells late events from current ones.
//   - Completions never arrive in the goroutine of the poster, but through CQ.Poll.
package fabric

import (
	"errors"
	"net/netip"
	"time"
)

// Errors that every fabric reports the same way; they may be wrapped with the fabric's own cause.
var (
	ErrClosed        = errors.New("object is closed")
	ErrInUse         = errors.New("object is in use")
	ErrNoDevice      = errors.New("no such device")
	ErrNotSupported  = errors.New("not supported by this device")
	ErrResources     = errors.New("out of resources")
	ErrAddrInUse     = errors.New("address or port is in use")
	ErrAddrDenied    = errors.New("no permission for this port")
	ErrAddrInvalid   = errors.New("address cannot be used")
	ErrInvalid       = errors.New("invalid argument")
	ErrQueueFull     = errors.New("queue is full")
	ErrQPState       = errors.New("queue pair is in the wrong state")
	ErrDeviceRemoved = errors.New("device has been removed")
)

// Fabric is one way to reach RDMA devices: the verbs of this host, or the fabric inside this process.
type Fabric interface {
	// Name is the kind of the fabric: "verbs" or "mem".
	Name() string
	// Devices lists what Open can open now. A host without RDMA gives an empty list and the reason as the error.
	Devices() ([]DeviceInfo, error)
	// Open opens a device by its name, or by one of its IP addresses. ErrNoDevice says that this fabric has none
	// of that name; any other error says that it has and could not open it. async receives the device's
	// asynchronous events; it may be nil.
	Open(name string, opts Options, async func(AsyncEvent)) (Device, error)
}

// Options are the settings of one open device.
type Options struct {
	RNRRetry uint8         // receiver-not-ready retries of its connections, 0 to 6; 7 is for ever
	Retry    uint8         // transport retries of its connections, 0 to 7
	CMWait   time.Duration // bound of each internal step of connecting (address, route); 0 is the fabric's default
}

// DeviceInfo describes a device (one port of it) that can be opened.
type DeviceInfo struct {
	Name   string       // what Open takes
	Fabric string       // Fabric.Name
	Addr   netip.Addr   // the address that it listens on; invalid where the port has none
	Addrs  []netip.Addr // all addresses that Open takes for it, the best first
	Active bool         // the port is up
	Detail string       // for people: transport, link layer, GID taken and why
}

// Attr holds the limits and facts of an open device.
type Attr struct {
	Info           DeviceInfo
	VendorName     string
	VendorID       uint32
	PartID         uint32
	HWVersion      uint32
	FWVersion      string
	Reach          string // for people: what to look at where a peer does not answer
	Transport      string // "IB", "RoCE v2", "iWARP", "mem", ...
	MaxQP          int
	MaxQPWR        int // outstanding work requests of one queue of a queue pair
	MaxSGE         int
	MaxReadSGE     int
	MaxCQ          int
	MaxCQE         int
	MaxMR          int
	MaxMRSize      uint64
	MaxPD          int
	MaxMW          int // 0: no memory windows
	MaxSRQ         int // 0: no shared receive queues
	MaxSRQWR       int
	MaxSRQSGE      int
	MaxReadIn      int // outstanding RDMA reads and atomics per queue pair, as target
	MaxReadOut     int // the same, as initiator
	MaxReadTotal   int
	MaxMessage     uint64
	MaxInline      int // largest inline send that CreateQP will be asked for
	MaxConnData    int // private data with a connect
	MaxAcceptData  int // private data with an accept
	MaxRejectData  int // private data with a reject
	MTU            int // active path MTU, bytes
	PageSize       int
	MWType2        bool // the windows are of type 2 (bound through the send queue with a key that changes)
	SRQResize      bool
	Atomics        bool
	SendInvalidate bool
	WriteImmediate bool
	SRQExactCounts bool // SRQ.Available and QP.Taken are known, and QP.SetTakenLimits works
	SRQOtherPD     bool // a queue pair may be in another domain than its SRQ, whose own then holds for receives
	ReadSinkRemote bool // the sink of an RDMA read needs remote write access (iWARP)
	PeerToPeer     bool // both ends may send first (not so on plain iWARP)
	ExactBounds    bool // memory windows enforce their bounds
	TellsTarget    bool // who refuses a remote operation hears AsyncQPFatal before the initiator hears of the refusal
	EnforcesRNR    bool // a send without a posted receive fails after RNRRetry
	Acknowledged   bool // a send or write is done when the peer has taken it, and tells what the peer refuses (iWARP: the connection ends)
	SolicitedArm   bool // CQ.Arm can ask for solicited completions only; else it arms for all
}

// Device is an open device.
type Device interface {
	Attr() Attr
	AllocPD() (PD, error)
	// CreateCQ makes a completion queue of at least depth entries, not armed.
	CreateCQ(depth int) (CQ, error)
	// CreateQP makes a reliable connected queue pair that takes receives at once (verbs: INIT).
	CreateQP(QPInit) (QP, error)
	// Listen takes connection requests on a port of the device's own address; port 0 picks a free one above 1023.
	// The handler gets every request at once and may keep it as long as it likes. How many is its affair: the fabric counts none.
	Listen(port uint16, on func(Request)) (Listener, error)
	// Connect starts to connect qp and returns at once. Exactly one of the outcome events follows on the handler,
	// unless Conn.Close comes first; after EventEstablished at most one of EventDisconnected or EventRemoved.
	Connect(qp QP, p ConnectParams, on func(ConnEvent)) (Conn, error)
	// Close ends the device. Objects that still exist make it return ErrInUse, naming them, and change nothing.
	Close() error
}

// PD is a protection domain.
type PD interface {
	// RegMR registers buf, whose memory must not move until Close. Remote write and atomic access imply local write.
	RegMR(buf []byte, access Access) (MR, error)
	// AllocMW makes an unbound memory window.
	AllocMW() (MW, error)
	CreateSRQ(depth, maxSGE int) (SRQ, error)
	Close() error
}

// MR is a registered memory region.
type MR interface {
	LKey() uint32
	RKey() uint32
	// Close deregisters. When it returns the fabric touches the memory no more; work that still names the
	// region completes with an error.
	Close() error
}

// MW is a memory window; QP.Bind binds it.
type MW interface {
	// RKey is the key of the latest binding, 0 before the first.
	RKey() uint32
	Close() error
}

// CQ is a completion queue with its own notification channel.
type CQ interface {
	// Poll takes up to len(wcs) completions, oldest first, without blocking or allocating. Where another poll
	// is cheap it polls up to polls times for the first.
	Poll(wcs []WC, polls int) (int, error)
	// Arm asks for one notification: for the next completion, or with solicitedOnly for the next that is solicited
	// or in error. Completions that were queued before Arm cause none: poll once more after arming.
	Arm(solicitedOnly bool) error
	// Wait parks the goroutine until an armed notification comes (fired true), Wake is called (fired false), or
	// the deadline passes (os.ErrDeadlineExceeded); the zero time is no deadline. One waiter at a time.
	Wait(deadline time.Time) (fired bool, err error)
	// Wake makes the current Wait return, or the next one if none is under way. It never blocks.
	Wake()
	// Resize changes the depth to at least depth, keeping what is queued.
	Resize(depth int) error
	Depth() int
	Close() error
}

// SRQ is a shared receive queue.
type SRQ interface {
	PostRecv(wrs []RecvWR, sges []SGE) (int, error)
	// SetLimit arms one AsyncSRQLimit event for when fewer than limit receives are queued; 0 disarms.
	SetLimit(limit int) error
	// Resize changes the capacity to at least depth, keeping what is queued.
	Resize(depth int) error
	Depth() int
	// Available is the number of receives queued, or -1 where the device does not tell.
	Available() int
	Close() error
}

// QPInit says what a new queue pair is made of.
type QPInit struct {
	PD                     PD
	SendCQ, RecvCQ         CQ
	SRQ                    SRQ // nil: a receive queue of its own
	MaxSend, MaxRecv       int // work requests outstanding
	MaxSendSGE, MaxRecvSGE int
	MaxInline              int // wanted; QP.MaxInline tells what was granted
}

// QP is a reliable connected queue pair. It takes receives from its creation, sends once it is connected, and
// both once it is in error, where everything posted is flushed in order.
type QP interface {
	Num() uint32
	MaxInline() int
	// PostSend posts the batch in order and rings once. It returns how many were taken; an error speaks of the
	// first that was not. wrs and sges are free again at return; nothing is allocated.
	PostSend(wrs []SendWR, sges []SGE) (int, error)
	PostRecv(wrs []RecvWR, sges []SGE) (int, error)
	// Bind posts the binding of a window to part of a region and returns the new remote key at once; length 0
	// unbinds. The completion has WC opcode OpWCBind.
	Bind(mw MW, wr BindWR) (rkey uint32, err error)
	// Taken is the number of receives that the queue pair has taken from its SRQ and not completed, or -1 where the device
	// does not tell. One that is in error and takes no more may tell 0 even there.
	Taken() int
	// SetTakenLimits arms one AsyncQPSoftLimit and one AsyncQPHardLimit, each for when more receives than that are taken,
	// which may be now; a negative limit is none.
	SetTakenLimits(soft, hard int) error
	// SetError moves the queue pair to the error state: everything posted is flushed. A queue pair that an error of its
	// own has broken needs it too, before receives that are posted then are sure to be flushed.
	SetError() error
	// Close destroys the queue pair. When it returns nothing that was posted touches memory any more.
	Close() error
}

// ConnectParams are the terms of an active connect.
type ConnectParams struct {
	Remote          netip.AddrPort
	Private         []byte
	ReadIn, ReadOut uint8 // outstanding reads and atomics that this end serves and starts
}

// AcceptParams are the terms of an accept. The fabric lowers the depths to what the peer offered.
type AcceptParams struct {
	Private         []byte
	ReadIn, ReadOut uint8
}

// Conn is one connection, or one attempt at it.
type Conn interface {
	LocalAddr() netip.AddrPort
	RemoteAddr() netip.AddrPort
	// ReadDepths are the depths in force once established.
	ReadDepths() (in, out uint8)
	// Awaits says, for people, what an attempt under way waits for.
	Awaits() string
	// Disconnect moves the queue pair to error and tells the peer. It is harmless when repeated or after the peer's.
	// An end that began hears EventDisconnected when the other answers; an attempt under way ends in EventFailed at once.
	Disconnect() error
	// Close forgets the connection: an attempt under way is given up, an established one disconnected. It does not
	// wait for a peer that no longer answers; what has to linger does so inside the fabric, within a bound.
	Close() error
}

// Listener takes connection requests.
type Listener interface {
	Addr() netip.AddrPort
	// Close stops listening. Requests that the handler has been given stay valid.
	Close() error
}

// Request is a connection request that awaits an answer.
type Request interface {
	LocalAddr() netip.AddrPort
	RemoteAddr() netip.AddrPort
	// Private is the data that the peer sent. Where padded is true it may have zeroes at its end that the peer did not send.
	Private() (data []byte, padded bool)
	// ReadDepths are the depths that this end may use at the most: in serves the peer's reads, out is for its own.
	ReadDepths() (in, out uint8)
	// Accept answers with qp. EventEstablished follows on the handler, or EventFailed if the peer has given up. On
	// an error nothing has changed and the request is still there.
	Accept(qp QP, p AcceptParams, on func(ConnEvent)) (Conn, error)
	// Reject answers no. byConsumer makes the peer see EventPeerRejected, else EventRejected, which does not tell the length of its data.
	Reject(private []byte, byConsumer bool) error
}

// ConnEventKind is what happened to a connection.
type ConnEventKind uint8

// The outcomes of connecting, and the ends of a connection.
const (
	EventEstablished  ConnEventKind = iota // data can flow; Private holds the acceptor's data at the active end
	EventPeerRejected                      // the consumer at the other end said no; Private may hold its data
	EventRejected                          // nobody listens, the backlog is full, or the other end cannot; Private may hold data
	EventUnreachable                       // no route, no such host, or it does not answer
	EventFailed                            // the handshake failed in another way
	EventDisconnected                      // the other end disconnected, first or in answer
	EventRemoved                           // the device has gone
)

// ConnEvent tells of a connection. Private is the receiver's to keep.
type ConnEvent struct {
	Kind    ConnEventKind
	Private []byte
	Padded  bool  // Private may have zeroes at its end that the peer did not send
	Err     error // the fabric's own words for the cause, where there are any
}

// AsyncKind is the kind of an asynchronous event.
type AsyncKind uint8

// Asynchronous events.
const (
	AsyncCQError AsyncKind = iota
	AsyncQPFatal
	AsyncQPLastWQE
	AsyncQPSoftLimit // of QP.SetTakenLimits
	AsyncQPHardLimit
	AsyncSRQError
	AsyncSRQLimit
	AsyncDeviceFatal
	AsyncPortError
	AsyncPortActive
)

// AsyncEvent is an asynchronous event; the object that it is about is set, the others are nil.
type AsyncEvent struct {
	Kind  AsyncKind
	CQ    CQ
	QP    QP
	SRQ   SRQ
	Count int // AsyncQPSoftLimit, AsyncQPHardLimit: the receives that were taken
}
