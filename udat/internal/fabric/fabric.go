// Package fabric defines what package udat needs of an RDMA fabric: interfaces and plain structs.
// It has no code that does work; its flat types are those of package cverbs.
//
// Every fabric keeps these conventions:
//
//   - Every method is safe for concurrent use. A second Close returns ErrClosed.
//   - One goroutine per Device calls all handlers (of listeners, connections and asynchronous
//     events), one at a time and in order. They must not block for long, and may call any method
//     except Device.Close.
//   - A handler call that had begun may still finish after Close of a Listener, Conn or QP has
//     returned; the receiver must recognize late events.
//   - Completions come through CQ.Poll, never in the poster's goroutine.
package fabric

import (
	"errors"
	"net/netip"
	"time"
)

// Errors that all fabrics share; a fabric may wrap them with its own cause.
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

// Fabric is one way to reach RDMA devices: the verbs of this host, RDMA over TCP, or the fabric
// inside this process.
type Fabric interface {
	// Name is the kind of the fabric: "verbs", "tcp" or "mem".
	Name() string
	// Devices lists the devices that Open can open now. On a host without RDMA the list is empty
	// and the error is the reason.
	Devices() ([]DeviceInfo, error)
	// Open opens a device by its name, or by one of its IP addresses. ErrNoDevice means that this
	// fabric has no such device; any other error that opening it failed. async receives the
	// device's asynchronous events and may be nil.
	Open(name string, opts Options, async func(AsyncEvent)) (Device, error)
}

// Options are the settings of one open device.
type Options struct {
	RNRRetry uint8         // receiver-not-ready retries of its connections, 0 to 6; 7 is for ever
	Retry    uint8         // transport retries of its connections, 0 to 7, or DefaultRetry
	CMWait   time.Duration // bound of each internal step of connecting (address, route); 0 is the fabric's default
	Path     PathOptions   // of its connections

	// Checksums says whether this end asks for a checksum of each message, which only the fabric tcp
	// has; both ends use them if one asks. nil: as the fabric does by itself.
	Checksums *bool
}

// DefaultRetry stands for 7 transport retries, or fewer on a device that with 7 would retry for
// ever.
const DefaultRetry = 255

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
	SRQOtherPD     bool // a queue pair may be in another domain than its SRQ; the SRQ's domain then counts for receives
	ReadSinkRemote bool // the sink of an RDMA read needs remote write access (iWARP)
	PeerToPeer     bool // both ends may send first (not so on plain iWARP)
	ExactBounds    bool // memory windows enforce their bounds
	TellsTarget    bool // a target that refuses an operation gets AsyncQPFatal before the initiator learns of it
	EnforcesRNR    bool // a send without a posted receive fails after RNRRetry
	Acknowledged   bool // a send or write completes when the peer has it, and fails if the peer refuses it
	SolicitedArm   bool // CQ.Arm can ask for solicited completions only; else it arms for all
	FailuresNotify bool // a CQ that is armed for solicited completions only notifies of every failure too
}

// Device is an open device.
type Device interface {
	Attr() Attr
	AllocPD() (PD, error)
	// CreateCQ creates a completion queue of at least depth entries, not armed.
	CreateCQ(depth int) (CQ, error)
	// CreateQP creates a reliable connected queue pair that takes receives at once (verbs: INIT).
	CreateQP(QPInit) (QP, error)
	// Listen accepts connection requests on a port of the device's own address; port 0 chooses a
	// free one above 1023. The handler receives every request at once and may keep it for any time.
	// The fabric does not limit their number.
	Listen(port uint16, on func(Request)) (Listener, error)
	// Connect starts connecting qp and returns. The handler receives exactly one outcome event,
	// unless Conn.Close comes first; after EventEstablished at most one EventDisconnected or
	// EventRemoved follows.
	Connect(qp QP, p ConnectParams, on func(ConnEvent)) (Conn, error)
	// Close closes the device. While objects of it exist it returns ErrInUse, names them, and
	// changes nothing.
	Close() error
}

// PD is a protection domain.
type PD interface {
	// RegMR registers buf, whose memory must not move until Close. Remote write and atomic access
	// imply local write.
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
	// Close deregisters the region. After it the fabric does not access the memory; work that still
	// names the region completes with an error.
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
	// Poll takes up to len(wcs) completions, oldest first, without blocking or allocating. If
	// repeated polls are cheap on the device it polls an empty queue up to polls times.
	Poll(wcs []WC, polls int) (int, error)
	// Arm requests one notification: for the next completion, or with solicitedOnly for the next
	// solicited or failed one. Completions already queued cause none: poll once more after arming.
	Arm(solicitedOnly bool) error
	// Wait blocks until an armed notification comes (fired is true), Wake is called (fired is
	// false), or the deadline passes (os.ErrDeadlineExceeded). The zero deadline never expires. One
	// waiter at a time.
	Wait(deadline time.Time) (fired bool, err error)
	// Wake makes the current Wait, or else the next one, return. It never blocks.
	Wake()
	// Resize changes the depth to at least depth, keeping what is queued.
	Resize(depth int) error
	Depth() int
	Close() error
}

// SRQ is a shared receive queue.
type SRQ interface {
	PostRecv(wrs []RecvWR, sges []SGE) (int, error)
	// SetLimit arms one AsyncSRQLimit event for when fewer than limit receives are queued; 0
	// disarms.
	SetLimit(limit int) error
	// Resize changes the capacity to at least depth, keeping what is queued.
	Resize(depth int) error
	Depth() int
	// Available returns the number of queued receives, or -1 if the device does not report it.
	Available() int
	Close() error
}

// QPInit describes a new queue pair.
type QPInit struct {
	PD                     PD
	SendCQ, RecvCQ         CQ
	SRQ                    SRQ // nil: a receive queue of its own
	MaxSend, MaxRecv       int // work requests outstanding
	MaxSendSGE, MaxRecvSGE int
	MaxInline              int // wanted; QP.MaxInline tells what was granted
}

// QP is a reliable connected queue pair. It takes receives from its creation, sends once it is
// connected, and both in the error state, where it flushes everything in order.
type QP interface {
	Num() uint32
	MaxInline() int
	// Path returns the path of the connection as the device has it. Before it is connected the
	// values mean nothing. ErrNotSupported: the fabric has no packets.
	Path() (Path, error)
	// PostSend posts the batch in order with one doorbell. It returns the number accepted; an error
	// is about the first request that was not. wrs and sges may be reused at once. It does not
	// allocate.
	PostSend(wrs []SendWR, sges []SGE) (int, error)
	PostRecv(wrs []RecvWR, sges []SGE) (int, error)
	// Bind posts the binding of a window to part of a region and returns the new remote key; length
	// 0 unbinds. The completion's opcode is OpWCBind.
	Bind(mw MW, wr BindWR) (rkey uint32, err error)
	// Taken returns the number of receives taken from the SRQ and not completed, or -1 if the
	// device does not report it. Such a device may still report 0 for a queue pair in error that
	// takes no more.
	Taken() int
	// SetTakenLimits arms one AsyncQPSoftLimit and one AsyncQPHardLimit, each due when more
	// receives are taken, which may be at once. A negative limit is none.
	SetTakenLimits(soft, hard int) error
	// SetError moves the queue pair to the error state and flushes everything. Call it also for a
	// queue pair that its own error has broken: only then later receives are sure to be flushed. A
	// device that counts the receives taken (SRQExactCounts) completes no more messages afterwards.
	SetError() error
	// Close destroys the queue pair. After it no posted work accesses memory.
	Close() error
}

// ConnectParams are the parameters of an active connect.
type ConnectParams struct {
	Remote          netip.AddrPort
	Private         []byte
	ReadIn, ReadOut uint8 // outstanding reads and atomics that this end serves and starts
}

// AcceptParams are the parameters of an accept. The fabric lowers the depths to those that the peer
// offered.
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
	// Awaits returns, for people, what a pending attempt waits for.
	Awaits() string
	// Disconnect moves the queue pair to error and notifies the peer. It may be repeated, and may
	// follow the peer's. The end that disconnects first receives EventDisconnected when the peer
	// answers; a pending attempt ends with EventFailed at once.
	Disconnect() error
	// Close releases the connection: a pending attempt is given up, an established connection is
	// disconnected. It does not wait for a silent peer; the fabric finishes the disconnect itself,
	// within a bound.
	Close() error
}

// Listener accepts connection requests.
type Listener interface {
	Addr() netip.AddrPort
	// Close stops listening. Requests that the handler has received stay valid.
	Close() error
}

// Request is a connection request without an answer yet.
type Request interface {
	LocalAddr() netip.AddrPort
	RemoteAddr() netip.AddrPort
	// Private returns the peer's data. If padded is true it may end with zeroes that the peer did
	// not send.
	Private() (data []byte, padded bool)
	// ReadDepths returns the largest depths for this end: in serves the peer's reads, out is for
	// its own.
	ReadDepths() (in, out uint8)
	// Accept accepts with qp. The handler receives EventEstablished, or EventFailed if the peer has
	// given up. An error changes nothing: the request still awaits its answer.
	Accept(qp QP, p AcceptParams, on func(ConnEvent)) (Conn, error)
	// Reject rejects the request. With byConsumer the peer receives EventPeerRejected, else
	// EventRejected, whose data has no known length.
	Reject(private []byte, byConsumer bool) error
}

// ConnEventKind is the kind of a connection event.
type ConnEventKind uint8

// The outcomes of connecting, and the ends of a connection.
const (
	EventEstablished  ConnEventKind = iota // data can flow; Private holds the acceptor's data at the active end
	EventPeerRejected                      // the consumer at the other end said no; Private may hold its data
	EventRejected                          // no listener, a full backlog, or a failure there; Private may hold data
	EventUnreachable                       // no route, no such host, or it does not answer
	EventFailed                            // the handshake failed in another way
	EventDisconnected                      // the other end disconnected, first or in answer
	EventRemoved                           // the device has gone
)

// ConnEvent is an event of a connection. The receiver owns Private.
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

// AsyncEvent is an asynchronous event. Its object is set, the other ones are nil.
type AsyncEvent struct {
	Kind  AsyncKind
	CQ    CQ
	QP    QP
	SRQ   SRQ
	Count int // AsyncQPSoftLimit, AsyncQPHardLimit: the receives that were taken
}
