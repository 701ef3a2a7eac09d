// Package fabric defines what package udat needs of an RDMA fabric: interfaces and plain structs.
// It implements none of them. The types of work requests and completions are those of package
// cverbs.
//
// Every fabric keeps these conventions:
//
//   - Every method is safe for concurrent use. A second Close returns ErrClosed.
//   - One goroutine of each Device calls all its handlers (of listeners, connections and
//     asynchronous events), one at a time and in order. A handler must not block for long. A
//     handler may call any method except Device.Close.
//   - When Close of a Listener, Conn or QP returns, a handler call that began earlier may still be
//     running. The handler must recognize such late events.
//   - Completions are reported by CQ.Poll only.
package fabric

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/netip"
	"time"
)

// Errors that all fabrics share. A fabric may wrap such an error together with the cause.
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
	ErrNoPort        = errors.New("no local port is free: close connections, widen net.ipv4.ip_local_port_range, or, if " +
		"closed ones are in TIME_WAIT, set net.ipv4.tcp_tw_reuse=1")
)

// Fabric is one way to reach RDMA devices: the verbs of this host, RDMA over TCP, or the fabric
// inside this process.
type Fabric interface {
	// Name returns the kind of the fabric: "verbs", "tcp" or "mem".
	Name() string
	// Devices lists the devices that Open can open now. If there is no device, the error says why.
	Devices() ([]DeviceInfo, error)
	// Open opens a device by its name, or by one of its IP addresses. ErrNoDevice means that this
	// fabric has no such device. Any other error means that the device could not be opened. async
	// receives the device's asynchronous events; it may be nil.
	Open(name string, opts Options, async func(AsyncEvent)) (Device, error)
}

// Options are the settings of one open device.
type Options struct {
	RNRRetry  uint8         // receiver-not-ready retries of the device's connections, 0 to 6; 7 means for ever
	Retry     uint8         // transport retries of the device's connections, 0 to 7, or DefaultRetry
	CMWait    time.Duration // time limit of each internal step of connecting (address, route); 0: the fabric's default
	Path      PathOptions   // path of the device's connections
	KeepAlive time.Duration // idle time before a device that WatchesPeers probes the peer's host; 0: no probes

	// Checksums says whether this end asks for a checksum of each frame. Only the fabric tcp
	// supports this option. Both ends use checksums if either end asks for them. If nil, the fabric
	// decides.
	Checksums *bool

	// BufferMemory is the memory, in bytes, that the device may use for connections with data that
	// waits for the peer: parts of messages, and what the peer does not read. When it is used up, the
	// connection that has waited longest is broken. Only the fabric tcp needs such memory. 0 means
	// 256 MiB.
	BufferMemory int

	// HideAddresses makes a fabric in software give peers other addresses than those of memory, so
	// that they do not learn where this process has its memory. Hardware uses those of memory.
	HideAddresses bool

	// TLS, unless nil, is the configuration of TLS for every connection of the device, as client and
	// as server. Only the fabric tcp supports this option.
	TLS *tls.Config
}

// DefaultRetry means 7 transport retries, or 6 on soft-RoCE, where 7 means to retry for ever.
const DefaultRetry = 255

// DeviceInfo describes a device (one port of it) that can be opened.
type DeviceInfo struct {
	Name   string       // the name to pass to Open
	Fabric string       // Fabric.Name
	Addr   netip.Addr   // the address that the device listens on; invalid if the port has none
	Addrs  []netip.Addr // all addresses that Open accepts for the device, best first
	Active bool         // the port is up
	Detail string       // for people: the transport, the link layer, the GID and why it was chosen
}

// Attr holds the limits and facts of an open device.
type Attr struct {
	Info           DeviceInfo
	VendorName     string
	VendorID       uint32
	PartID         uint32
	HWVersion      uint32
	FWVersion      string
	Reach          string // for people: what to check if a peer does not answer
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
	MaxReadOut     int // outstanding RDMA reads and atomics per queue pair, as initiator
	MaxReadTotal   int
	MaxMessage     uint64
	MaxInline      int // upper bound of QPInit.MaxInline
	MaxConnData    int // private data with a connect
	MaxAcceptData  int // private data with an accept
	MaxRejectData  int // private data with a reject
	MTU            int // active path MTU, bytes
	PageSize       int
	MWType2        bool // memory windows are of type 2 (each binding has a new key)
	SRQResize      bool
	Atomics        bool
	SendInvalidate bool
	WriteImmediate bool
	SRQExactCounts bool // SRQ.Available and QP.Taken are known, and QP.SetTakenLimits works
	SRQOtherPD     bool // a queue pair and its SRQ may be in different domains; receives then use the SRQ's domain
	ReadSinkRemote bool // the sink of an RDMA read needs remote write access (iWARP)
	PeerToPeer     bool // either end may send first (on plain iWARP only the active end may)
	ExactBounds    bool // memory windows enforce their bounds
	TellsTarget    bool // a target that refuses an operation reports AsyncQPFatal before the initiator sees the error
	EnforcesRNR    bool // a send without a posted receive fails after RNRRetry
	Acknowledged   bool // a send or write completes when the peer has it, and fails if the peer refuses it
	SolicitedArm   bool // CQ.Arm supports solicitedOnly; else it always arms for all completions
	FailuresNotify bool // a CQ that is armed for solicited completions also notifies of every failed one
	WatchesPeers   bool // the device has a keep-alive: Options.KeepAlive
}

// Device is an open device.
type Device interface {
	Attr() Attr
	AllocPD() (PD, error)
	// CreateCQ creates a completion queue of at least depth entries. The queue is not armed.
	CreateCQ(depth int) (CQ, error)
	// CreateQP creates a reliable connected queue pair. Receives can be posted to it at once (in
	// verbs, its state is INIT).
	CreateQP(QPInit) (QP, error)
	// Listen accepts connection requests on a port of the device's own address. Port 0 chooses a
	// free port above 1023. The handler is called for each request as it arrives, and may leave the
	// request unanswered for any time. The fabric does not limit the number of unanswered requests.
	//
	// The fabric calls accept for each peer before it allocates anything for the peer and, on tcp,
	// before it reads a byte. The calls may come from another goroutine than those of the handler.
	Listen(port uint16, accept Filter, on func(Request)) (Listener, error)
	// Connect starts connecting qp and returns. The handler receives exactly one event with the
	// outcome, unless Conn.Close is called first. Any event after EventEstablished means that the
	// connection has ended.
	Connect(qp QP, p ConnectParams, on func(ConnEvent)) (Conn, error)
	// Close closes the device. While objects of the device exist, Close changes nothing and returns
	// an ErrInUse error that names them.
	Close() error
}

// PD is a protection domain.
type PD interface {
	// RegMR registers buf. The memory of buf must not move until the region is closed. The remote
	// write and atomic rights include local write.
	RegMR(buf []byte, access Access) (MR, error)
	// AllocMW allocates an unbound memory window.
	AllocMW() (MW, error)
	CreateSRQ(depth, maxSGE int) (SRQ, error)
	Close() error
}

// MR is a registered memory region.
type MR interface {
	LKey() uint32
	RKey() uint32
	// RemoteAddr returns the address of the region's first byte for peers.
	RemoteAddr() uint64
	// Close deregisters the region. Once it has returned, the fabric does not access the memory,
	// and a posted request that names the region completes with an error.
	Close() error
}

// MW is a memory window. QP.Bind binds it to part of a region.
type MW interface {
	// RKey returns the remote key of the latest binding, or 0 if the window was never bound.
	RKey() uint32
	Close() error
}

// CQ is a completion queue with its own notification channel.
type CQ interface {
	// Poll moves up to len(wcs) completions to wcs, oldest first, and returns their number. It neither
	// blocks nor allocates. If the queue is empty and another try is cheap on the device, Poll tries
	// again. The parameter polls is the largest number of tries. It is 0 if the caller waits for the
	// queue next: then Poll need not make progress that a system call costs.
	Poll(wcs []WC, polls int) (int, error)
	// Arm requests one notification, for the next completion. With solicitedOnly the notification
	// is for the next completion that is solicited or failed. Completions that are already queued
	// do not notify, so the caller must poll once more after Arm.
	Arm(solicitedOnly bool) error
	// Wait blocks until an armed notification comes (fired is true), Wake is called (fired is false),
	// or the deadline passes (os.ErrDeadlineExceeded). The zero deadline never expires. Only one
	// goroutine may wait at a time.
	Wait(deadline time.Time) (fired bool, err error)
	// Wake makes the current Wait return. If no Wait is blocked, it makes the next one return. It
	// never blocks.
	Wake()
	// Resize changes the capacity to at least depth, and keeps the queued completions.
	Resize(depth int) error
	Depth() int
	Close() error
}

// SRQ is a shared receive queue.
type SRQ interface {
	PostRecv(wrs []RecvWR, sges []SGE) (int, error)
	// SetLimit arms one AsyncSRQLimit event, which is raised when fewer than limit receives are
	// queued. A limit of 0 disarms the event.
	SetLimit(limit int) error
	// Resize changes the capacity to at least depth, and keeps the queued receives.
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
	SRQ                    SRQ // nil: the queue pair has a receive queue of its own
	MaxSend, MaxRecv       int // largest numbers of outstanding work requests
	MaxSendSGE, MaxRecvSGE int
	MaxInline              int // requested; QP.MaxInline returns the granted value
}

// QP is a reliable connected queue pair. Receives can be posted as soon as the queue pair exists.
// Sends can be posted once it is connected. In the error state receives and sends can be posted,
// and the queue pair flushes them in order.
type QP interface {
	Num() uint32
	MaxInline() int
	// Path returns the path of the connection, as the device reports it. The values mean nothing
	// before the queue pair is connected. A fabric without packets returns ErrNotSupported.
	Path() (Path, error)
	// PostSend posts the batch in order, with one doorbell. It returns the number of requests that the
	// queue pair has accepted. If a request was refused, the error says why, and the requests after it
	// were not posted. The caller may reuse wrs and sges at once. PostSend does not allocate.
	PostSend(wrs []SendWR, sges []SGE) (int, error)
	PostRecv(wrs []RecvWR, sges []SGE) (int, error)
	// Bind posts a request that binds a window to part of a region, and returns the new remote key.
	// A length of 0 unbinds the window. The completion's opcode is OpWCBind.
	Bind(mw MW, wr BindWR) (rkey uint32, err error)
	// Taken returns the number of receives that the queue pair has taken from its SRQ and not
	// completed. If the device does not know this number, Taken returns -1. It may return 0 instead of
	// -1 if the queue pair is in the error state and all its receives have completed.
	Taken() int
	// SetTakenLimits arms one AsyncQPSoftLimit and one AsyncQPHardLimit event. Each event is raised
	// when Taken exceeds its limit. If Taken exceeds the limit already, SetTakenLimits raises the
	// event at once. A negative limit disarms its event.
	SetTakenLimits(soft, hard int) error
	// SetError moves the queue pair to the error state, which flushes everything posted. Call it even
	// if an error has already moved the queue pair to that state: without this call, receives that are
	// posted later may never be flushed. If Attr.SRQExactCounts is true, no message completes after
	// SetError has returned.
	SetError() error
	// Close destroys the queue pair. Once it has returned, no posted request accesses memory.
	Close() error
}

// ConnectParams are the parameters of an active connect.
type ConnectParams struct {
	Remote          netip.AddrPort
	Private         []byte
	ReadIn, ReadOut uint8 // largest numbers of outstanding reads and atomics that this end serves and starts
}

// AcceptParams are the parameters of an accept. The fabric lowers the read depths to those that the
// peer offered.
type AcceptParams struct {
	Private         []byte
	ReadIn, ReadOut uint8
}

// Filter decides which peers may connect to a listener: an error refuses the peer. The Filter nil
// accepts every peer.
type Filter func(peer netip.AddrPort) error

// Accepts reports whether the peer may connect.
func (f Filter) Accepts(peer netip.AddrPort) bool { return f == nil || f(peer) == nil }

// Conn is one connection, or one attempt to connect.
type Conn interface {
	LocalAddr() netip.AddrPort
	RemoteAddr() netip.AddrPort
	// ReadDepths returns the read depths that were offered. Once the connection is established, it
	// returns those that both ends have agreed on.
	ReadDepths() (in, out uint8)
	// Awaits returns a text for people that says what a pending attempt waits for. It also reports
	// whether the peer's host has answered. If it has, the network between the hosts is not the cause
	// of the wait.
	Awaits() (what string, reached bool)
	// Disconnect moves the queue pair to the error state and notifies the peer. It may be called
	// more than once, and after the peer has disconnected. The end that disconnects first receives
	// EventDisconnected when the peer answers. A pending attempt ends with EventFailed at once.
	Disconnect() error
	// Close releases the connection. It gives up a pending attempt, and disconnects an established
	// connection. It does not wait for the peer: the fabric completes the disconnect within a
	// bounded time.
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
	// Private returns the peer's private data. If padded is true, the data may end with zeroes that
	// the peer did not send.
	Private() (data []byte, padded bool)
	// ReadDepths returns the largest read depths that this end can accept. The first result is for
	// reads that this end serves, the second is for reads that it starts.
	ReadDepths() (in, out uint8)
	// Accept accepts the request with qp. The handler receives EventEstablished, or EventFailed if the
	// peer has given up. If Accept returns an error, the request still awaits its answer, unless qp
	// has failed during the call: then the request may be lost.
	Accept(qp QP, p AcceptParams, on func(ConnEvent)) (Conn, error)
	// Reject rejects the request. If byConsumer is true, the peer receives EventPeerRejected.
	// Otherwise it receives EventRejected, whose data may be padded with zeroes.
	Reject(private []byte, byConsumer bool) error
}

// Authenticated is implemented by a Conn and a Request whose peer may have shown certificates.
type Authenticated interface {
	// PeerCertificates returns the certificates of the peer, its own first, or nil if it has shown
	// none.
	PeerCertificates() []*x509.Certificate
}

// ConnEventKind is the kind of a connection event.
type ConnEventKind uint8

// The outcomes of an attempt to connect, and the ways in which a connection ends.
const (
	EventEstablished  ConnEventKind = iota // data can flow; Private holds the acceptor's data at the active end
	EventPeerRejected                      // the consumer at the other end rejected; Private may hold its data
	EventRejected                          // no listener, a full backlog, or a failure of the peer; Private may hold data
	EventUnreachable                       // no route, no such host, or no answer from the host
	EventFailed                            // the handshake failed in another way, or the link was lost
	EventDisconnected                      // the other end disconnected, by itself or in answer to this end
	EventRemoved                           // the device has gone
)

// ConnEvent is an event of a connection. The receiver owns Private.
type ConnEvent struct {
	Kind    ConnEventKind
	Private []byte
	Padded  bool  // Private may have zeroes at its end that the peer did not send
	Err     error // the cause, if the fabric knows one
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
	AsyncListenerStarved // requests wait until the process or host has resources again; repeated while they do
)

// AsyncEvent is an asynchronous event. If it concerns a CQ, QP, SRQ or Listener, that field is set,
// and the other three are nil.
type AsyncEvent struct {
	Kind     AsyncKind
	CQ       CQ
	QP       QP
	SRQ      SRQ
	Listener Listener
	Count    int   // AsyncQPSoftLimit, AsyncQPHardLimit: the value of QP.Taken
	Err      error // AsyncQPFatal: the reason, if the fabric knows it; AsyncListenerStarved: what has run out
}
