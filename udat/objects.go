package udat

import (
	"log/slog"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/godat/godat/udat/internal/fabric"
)

// This file contains the types of all objects, with the lock that guards each field. The types are
// in one file because they refer to each other. The methods are in other files, which form layers:
// the code of each file calls only code of lower layers.

// HandleType is the kind of a DAT object.
type HandleType uint32

// Handle types.
const (
	HandleCR HandleType = iota
	HandleEP
	HandleEVD
	HandleIA
	HandleLMR
	HandlePSP
	HandlePZ
	HandleRMR
	HandleRSP
	HandleCNO
	HandleSRQ
	handleKinds
)

// Handle is any DAT object: *IA, *EVD, *CNO, *EP, *PZ, *LMR, *RMR, *SRQ, *PSP, *RSP or *CR.
type Handle interface {
	object() *object
}

// object is the common part of all DAT objects. The field refs is the number of users of the
// object; ia.mu guards it.
type object struct {
	kind    HandleType
	live    atomic.Bool
	context atomic.Uint64
	ia      *IA
	refs    int
}

// IA is an open interface adapter: one port of an RDMA device, TCP on this host, or the fabric
// inside this process. Each Open makes a new IA with objects of its own.
type IA struct {
	obj    object
	name   string
	unname func() // releases the registered name that Open was called with
	device fabric.Device
	has    fabric.Attr // the device's attributes, copied because device.Attr would cost each post 100 instructions
	settings

	opened   chan struct{} // closed at the end of Open; asynchronous events of the device wait until then
	asyncEVD *EVD          // set before opened is closed; nil if the adapter has none
	ownAsync bool

	mu      ranked[rankIA] // guards closed, the fields from objects to watching, unconfirmed, and refs of all objects
	closed  bool
	objects [handleKinds]map[*object]Handle
	posting map[*EP]struct{} // endpoints that may have posts in progress, including endpoints being freed

	activeEPs int  // endpoints that are connecting or connected
	watching  bool // the keep-alive runs
	flusher   *flusher
	freed     atomic.Uint32 // endpoints that have been freed
	poller    poller

	told        sync.Once           // the log says that service points are exposed
	unconfirmed map[*connection]*EP // accepts that the initiator has not confirmed yet

	windows windowTable
	regions sync.Map            // *LMR by lmr_context
	sink    atomic.Pointer[EVD] // discards the completions of endpoints that were made without a dispatcher for them
}

func (ia *IA) object() *object {
	if ia == nil {
		return nil
	}
	return &ia.obj
}

// settings are the settings of an adapter, which do not change after Open.
type settings struct {
	foreignConnect bool // connect dispatchers may belong to another adapter
	spin           time.Duration
	processors     int           // the number of processors, of which half may spin
	pollEvery      time.Duration // the interval at which the adapter polls dispatchers
	acceptWait     time.Duration // how long an accept waits for its confirmation
	keepAlive      time.Duration // the interval of the keep-alive; 0: disabled
	log            *slog.Logger  // nil: none
	exposed        bool          // service points listen on all addresses of the host, without TLS
}

// PZ is a protection zone. An endpoint, and a peer through that endpoint, can use only memory in
// the endpoint's own zone.
type PZ struct {
	obj     object
	pd      fabric.PD
	posting map[*EP]struct{} // endpoints in the zone that may have posts in progress; guarded by ia.mu
}

func (pz *PZ) object() *object {
	if pz == nil {
		return nil
	}
	return &pz.obj
}

// LMR is a local memory region: memory that is registered with an adapter, in a protection zone,
// with privileges.
type LMR struct {
	obj    object
	pz     *PZ
	mr     fabric.MR
	buf    []byte
	addr   uint64 // of buf
	remote uint64 // of buf, for peers
	priv   MemPriv
	lkey   uint32
	kind   MemType
	pinner runtime.Pinner
	pages  *pages // memory of AllocLMR
	id     SharedMemoryID
	from   *LMR // the region that a region of type MemLMR was made from

	mu      ranked[rankLMR]
	freed   bool
	windows int // number of windows that are or may be bound to the region
}

func (l *LMR) object() *object {
	if l == nil {
		return nil
	}
	return &l.obj
}

// LMRTriplet names part of a region as a local buffer; [LMR.Triplet] returns one. SegmentLength is
// in bytes. If it is 0 the segment is empty, and the other fields mean nothing.
type LMRTriplet struct {
	LMR            *LMR
	VirtualAddress uint64
	SegmentLength  uint64
}

// RMRTriplet names memory for the RDMA operations of a peer; [LMR.RMRTriplet] and [RMR.RMRTriplet]
// return one. The program sends it to the peer by any means.
type RMRTriplet struct {
	RMRContext    uint32
	TargetAddress uint64
	SegmentLength uint64
}

// MemType is the kind of memory that a region was made from.
type MemType uint32

// Memory types.
const (
	MemVirtual       MemType = 0
	MemLMR           MemType = 1
	MemSharedVirtual MemType = 2
)

// SharedMemoryID names memory that several processes share. All 40 bytes are significant.
type SharedMemoryID [40]byte

// RMR is a remote memory region: a window that can be bound to part of an LMR, and later to another
// part. A peer that has the window's context can access only the bound part, and only while the
// window is bound.
type RMR struct {
	obj object
	pz  *PZ
	mw  fabric.MW

	posting ranked[rankBinding] // one Bind at a time

	mu      ranked[rankRMR]
	dead    bool
	serial  uint64
	pending []binding // binds that are posted and not completed, oldest first
	bound   binding   // the latest completed bind; its region is nil while the window is unbound
	stale   []*LMR    // regions of binds whose outcome is unknown; the window may be bound to them
	unsure  bool      // a bind was flushed, after which the device may refuse further binds of mw
}

func (r *RMR) object() *object {
	if r == nil {
		return nil
	}
	return &r.obj
}

// binding is the effect of one call of Bind on a window.
type binding struct {
	serial  uint64
	region  *LMR // nil: the bind unbinds the window
	triplet LMRTriplet
	priv    MemPriv
	context uint32
	live    bool // posted while connected; if the bind is flushed, the device may have executed it
}

// windowTable maps contexts to windows. A dispatcher looks a window up after a peer has invalidated
// the window's context.
type windowTable struct {
	mu        ranked[rankWindows]
	byContext map[uint32]*RMR
}

// CNO is a notification object: several dispatchers of one adapter can trigger it, and calls wait
// on it.
type CNO struct {
	obj       object
	triggered chan *EVD // of capacity 1: triggers coalesce

	mu      ranked[rankCNO]
	agent   WaitAgent
	waiters int
	gone    chan struct{} // closed and replaced when the last dispatcher is freed
}

func (c *CNO) object() *object {
	if c == nil {
		return nil
	}
	return &c.obj
}

// WaitAgent is an OS wait proxy agent: a function that is called once, on a new goroutine, when a
// notification object is triggered. The argument is the dispatcher that has events, or nil if the
// last dispatcher has been freed or the adapter has been closed.
type WaitAgent func(*EVD)

// EVD is an event dispatcher: a bounded queue of events. Its streams feed it: completions,
// connection events, connection requests, asynchronous events and software events. All methods are
// safe for concurrent use, but only one call may be blocked in Wait.
//
// Calls that wait or dequeue poll the device for completions. While no such call runs, goroutines
// of the adapter drain the completions of connected endpoints. Completions are queued in the order
// in which the device reports them. If the queue gets more events than its length, the queue
// overflows, and the adapter's asynchronous dispatcher receives one event about it. An overflowed
// queue still keeps 4096 more events, or as many as the depth of its completion queue if that is
// more; further events are lost.
type EVD struct {
	obj   object
	flags EVDFlags

	mu       ranked[rankEVD]
	qlen     int
	ring     eventRing
	taken    int       // slots of the caller's slice that the current drain has filled; they count as queued
	reserved int       // places reserved for connection requests
	cq       fabric.CQ // nil if the dispatcher has no DTO and bind streams; never changes
	wcs      [32]fabric.WC
	scratch  Event // empty whenever mu is not held
	sources  sourceTable
	capacity int // number of completions that may be in flight on cq

	waiting    waiting
	unwaitable bool
	disabled   bool
	overflowed bool
	freed      uint32      // the value of IA.freed at the last call of dropFreed
	lost       *lostEvents // the queued event that reports lost asynchronous events; nil: none
	overrun    bool        // the completion queue has lost completions
	dead       bool
	discard    bool     // the dispatcher is the sink, whose completions make no events
	after      []func() // reports of failures, to be called after mu is unlocked; empty whenever mu is unlocked

	cno *CNO // nil: none

	shared map[uint32]sharedSource // by queue pair number: the sources that receive from a shared queue
	shares map[sharedQueue]*share

	streams   streams
	connected int // number of the streams whose endpoints are connecting or connected
}

func (e *EVD) object() *object {
	if e == nil {
		return nil
	}
	return &e.obj
}

// SRQ is a shared receive queue. All endpoints that are made with the queue consume its receives.
type SRQ struct {
	obj    object
	pz     *PZ
	hw     fabric.SRQ
	maxIOV int

	mu       ranked[rankSRQ]
	maxRecv  int // MaxRecvDTOs
	lowMark  int
	lowArmed bool
	failed   bool
	slots    []srqSlot
	free     []uint32
	queued   int             // posted and not completed
	wrs      []fabric.RecvWR // of the batch
	sges     []fabric.SGE

	// outstanding is the number of receives whose events have not been dequeued. These are the
	// receives on the queue, those that endpoints hold, and those that have completed. It grows under
	// mu; a dispatcher decrements it when the event is dequeued.
	outstanding atomic.Int32
}

func (s *SRQ) object() *object {
	if s == nil {
		return nil
	}
	return &s.obj
}

type srqSlot struct {
	cookie Cookie
	gen    uint32
	busy   bool
}

// EP is an endpoint: one end of a reliable connection. All methods are safe for concurrent use.
// Requests are posted to the device in the order in which the posting calls lock the endpoint, and
// so are receives.
type EP struct {
	// The fields that a post reads come first, here and in the queues. With many endpoints each
	// cache line that a post reads costs time.
	obj      object
	state    atomic.Uint32 // changed under mu
	pz       *PZ
	srq      *SRQ
	requests requestQueue
	attr     EPAttr
	recvs    recvQueue

	// If a dispatcher is nil, the events for it are discarded.
	recvEVD, requestEVD, connectEVD *EVD

	modifying ranked[rankModifying] // held by Modify; only Modify changes pz, attr and the dispatchers

	mu    ranked[rankEP]             // guards changes of the state
	conn  atomic.Pointer[connection] // the connection or the attempt to connect; nil: neither; changed under mu
	timer *time.Timer
	wmark watermarks

	request fabric.Request // the request to be answered, in PASSIVE and TENTATIVE; guarded by mu
}

func (ep *EP) object() *object {
	if ep == nil {
		return nil
	}
	return &ep.obj
}

// requestQueue posts sends, RDMAs and binds.
type requestQueue struct {
	mu ranked[rankRequests]
	requestState
	ep *EP
}

// requestState is what Modify replaces, as one value, under ep.mu and mu.
type requestState struct {
	suppressed uint32 // number of consecutive suppressed posts that asked for no completion
	fence      uint32 // sequence number of the latest fenced request
	fenced     bool   // the request with the number fence may be in flight
	marked     bool   // a request that the library posted may be in flight
	marker     uint32 // sequence number of that request
	inline     int
	qp         fabric.QP
	inflight   *inflight // that of source
	batch[fabric.SendWR]

	readOut int // number of RDMA reads that the connection allows in flight
	source  *source
}

// recvQueue posts receives.
type recvQueue struct {
	mu ranked[rankRecvs]
	recvState
	ep *EP
}

// recvState is what Modify replaces, as one value, under ep.mu and mu.
type recvState struct {
	qp       fabric.QP
	inflight *inflight // that of source
	batch[fabric.RecvWR]

	source *source
}

// batch holds the work requests of one call until they are posted.
type batch[WR any] struct {
	wrs    []WR
	sges   []fabric.SGE
	oneWR  [1]WR // the initial storage of wrs; oneIOV is the initial storage of sges
	oneIOV [defaultIOV]fabric.SGE
}

// watermarks are the high watermarks on the number of receives that an endpoint holds. ep.mu guards
// all fields except armed.
type watermarks struct {
	armed      atomic.Bool // soft is set and has not fired, or hard is set
	soft, hard int
	softArmed  bool
	passed     bool // the endpoint took more receives from the shared queue than the hard watermark allows
}

// connection is one connection of an endpoint, or one attempt to connect. Events of an earlier
// connection are dropped.
type connection struct {
	conn      fabric.Conn // nil after the attempt has been given up
	began     time.Time
	notice    *time.Timer // logs an attempt that takes long
	suspected *time.Timer // breaks the connection some time after work was flushed for an unknown reason
	active    bool        // counted in IA.activeEPs and EVD.connected

	// These fields are set in the state FLUSHING: the last event, and the tails of the queues at the
	// end of the connection. The event is queued when all work before the tails has completed, or when
	// flushWait has passed since the time in ended.
	disconnectEvent *Event
	requests, recvs uint32
	ended           time.Time // zero until the connection ends
	peerLeft        bool      // the connection ended because the peer disconnected

	failed atomic.Pointer[error] // the first failure of work; it explains why the peer disconnected
	watch  peerWatch
}

// peerWatch is the state of the keep-alive of a connection; EP.mu guards it.
type peerWatch struct {
	requests, recvs uint32 // the heads of the queues at the last check
	silent          int    // number of consecutive checks with requests in flight and no progress
}

// PSP is a public service point: it listens on a connection qualifier until it is freed.
type PSP struct {
	obj      object
	qual     ConnQual
	evd      *EVD
	flags    PSPFlags
	mu       ranked[rankServicePoint] // held until the listener is set
	listener fabric.Listener
}

func (p *PSP) object() *object {
	if p == nil {
		return nil
	}
	return &p.obj
}

// RSP is a reserved service point: it listens for one connection request, for one endpoint.
type RSP struct {
	obj      object
	qual     ConnQual
	evd      *EVD
	ep       *EP                      // nil: the provider makes the endpoint
	mu       ranked[rankServicePoint] // held until the listener is set, and while a request is being taken
	listener fabric.Listener
}

func (r *RSP) object() *object {
	if r == nil {
		return nil
	}
	return &r.obj
}

// CR is a connection request that waits for an answer. Accept, Reject and Handoff answer it and
// destroy it. Answer each request, because until then it keeps its resources (a socket if the
// device is tcp), even if the peer has given up.
type CR struct {
	obj       object
	request   fabric.Request
	localAddr netip.Addr
	ep        *EP // the endpoint of a reserved service point, or made by the provider; nil: none

	mu ranked[rankCR] // serializes answers
}

func (c *CR) object() *object {
	if c == nil {
		return nil
	}
	return &c.obj
}

// pages is the memory of AllocLMR, which several regions may share.
type pages struct {
	regions atomic.Int32
	release func()
}
