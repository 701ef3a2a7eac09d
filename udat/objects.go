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

// This file is what the objects consist of, and which lock guards what. They point to each other in
// circles, so they stand together, below all code: what they do stands in the file of each, which
// calls only files below it.

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

// object is common to all DAT objects. refs counts the users of the object and is guarded by ia.mu.
type object struct {
	kind    HandleType
	live    atomic.Bool
	context atomic.Uint64
	ia      *IA
	refs    int
}

// IA is an open interface adapter: one port of an RDMA device, this host's TCP, or the fabric
// inside this process. Each Open makes an IA of its own, with its own objects.
type IA struct {
	obj    object
	name   string
	unname func() // ends the registry's count of this opening
	device fabric.Device
	has    fabric.Attr // the device's: a copy would cost each post that asks for them 100 instructions
	settings

	opened   chan struct{} // closed at the end of Open: events of the device wait for it
	asyncEVD *EVD          // set before opened is closed; nil: none
	ownAsync bool

	mu      ranked[rankIA] // guards the objects and their references
	closed  bool
	objects [handleKinds]map[*object]Handle
	posting map[*EP]struct{} // endpoints that may have posts under way, also those being freed

	activeEPs int  // endpoints that are connecting or connected
	watching  bool // the flusher checks their peers
	flusher   *flusher
	poller    poller

	unconfirmed []unconfirmed // accepts, oldest first; also some that are over; guarded by mu

	windows windowTable
	regions sync.Map            // *LMR by lmr_context
	sink    atomic.Pointer[EVD] // discards completions of endpoints without a dispatcher for them
}

func (ia *IA) object() *object {
	if ia == nil {
		return nil
	}
	return &ia.obj
}

// unconfirmed is an accept that its initiator has not confirmed yet.
type unconfirmed struct {
	ep    *EP
	conn  *connection
	since time.Time
}

// settings are those that the adapter keeps; none changes after Open.
type settings struct {
	foreignConnect bool // connect dispatchers may be of another adapter
	spin           time.Duration
	processors     int           // for the limit of spinning calls
	pollEvery      time.Duration // interval of polling the dispatchers
	acceptWait     time.Duration // for the confirmation of an accept
	keepAlive      time.Duration // interval of the checks of peers; 0: none
	log            *slog.Logger  // nil: none
}

// PZ is a protection zone: endpoints reach only memory of their own zone, from either end of a
// connection.
type PZ struct {
	obj     object
	pd      fabric.PD
	posting map[*EP]struct{} // endpoints in it that may have posts under way; guarded by ia.mu
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
	addr   uint64
	priv   MemPriv
	lkey   uint32
	kind   MemType
	pinner runtime.Pinner
	pages  *pages // memory of AllocLMR
	id     SharedMemoryID
	from   *LMR // of MemLMR: the region that the memory comes from

	mu      ranked[rankLMR]
	freed   bool
	windows int // number that are, or may be, bound to it
}

func (l *LMR) object() *object {
	if l == nil {
		return nil
	}
	return &l.obj
}

// LMRTriplet names part of a region as a local buffer; [LMR.Triplet] makes one. VirtualAddress and
// SegmentLength are in bytes. A SegmentLength of 0 is legal; the other fields then mean nothing.
type LMRTriplet struct {
	LMR            *LMR
	VirtualAddress uint64
	SegmentLength  uint64
}

// RMRTriplet names memory for a peer's RDMA; [LMR.RMRTriplet] and [RMR.RMRTriplet] make one. The
// program sends it to the peer in any way it likes.
type RMRTriplet struct {
	RMRContext    uint32
	TargetAddress uint64
	SegmentLength uint64
}

// MemType is the kind of memory that a region was made of.
type MemType uint32

// Memory types.
const (
	MemVirtual       MemType = 0
	MemLMR           MemType = 1
	MemSharedVirtual MemType = 2
)

// SharedMemoryID names memory that several processes share; all 40 bytes count.
type SharedMemoryID [40]byte

// RMR is a remote memory region: a window that can be bound to part of an LMR, and bound anew, so
// that a peer reaches that part only, for a limited time.
type RMR struct {
	obj object
	pz  *PZ
	mw  fabric.MW

	posting ranked[rankBinding] // one Bind at a time

	mu      ranked[rankRMR]
	dead    bool
	serial  uint64
	pending []binding // posted and not completed, oldest first
	bound   binding   // the latest completed; its region is nil while unbound
	stale   []*LMR    // regions of binds with unknown outcome: the window may be bound to them
	unsure  bool      // a bind was flushed; the device may bind this window no more
}

func (r *RMR) object() *object {
	if r == nil {
		return nil
	}
	return &r.obj
}

// binding is one Bind of a window.
type binding struct {
	serial  uint64
	region  *LMR // nil unbinds
	triplet LMRTriplet
	priv    MemPriv
	context uint32
	live    bool // posted on a connection: the device may execute it and flush it all the same
}

// windowTable finds a window by its context, when a peer has invalidated it.
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
	gone    chan struct{} // closed, and made anew, when the last dispatcher is freed
}

func (c *CNO) object() *object {
	if c == nil {
		return nil
	}
	return &c.obj
}

// WaitAgent is an OS wait proxy agent: a function that one trigger of a notification object calls,
// on a goroutine of its own, with the dispatcher that has events, or with nil when the last
// dispatcher or the adapter goes away.
type WaitAgent func(*EVD)

// EVD is an event dispatcher: a bounded queue of events. Completions, connection events, connection
// requests, asynchronous and software events feed it, each as a stream. All methods are safe for
// concurrent use, but only one call may be blocked in Wait.
//
// Calls that wait or dequeue take completions from the device, and the adapter polls now and then,
// in the order of the device. More events than the queue's length overflow it: the adapter's
// asynchronous dispatcher receives one event about it. An overflowed queue keeps 4096 more events,
// or as many as there can be operations in flight if that is more; later ones are lost.
type EVD struct {
	obj   object
	flags EVDFlags

	mu       ranked[rankEVD]
	qlen     int
	ring     eventRing
	taken    int       // slots of the caller's slice that this drain has filled; they count as queued
	reserved int       // places for connection requests under way
	cq       fabric.CQ // nil without DTO or bind streams; never changes
	wcs      [32]fabric.WC
	scratch  Event // empty whenever mu is free
	sources  sourceTable
	capacity int // completions that may be in flight on cq

	waiting    waiting
	unwaitable bool
	disabled   bool
	overflowed bool
	overrun    bool // the completion queue has lost completions
	dead       bool
	discard    bool     // the sink: completions make no events
	after      []func() // reports of failures, to be made when mu is free; empty while it is

	cno *CNO // nil: none

	shared map[uint32]sharedSource // sources with a shared queue, by queue pair number
	shares map[sharedQueue]*share

	streams   streams
	connected int // of the streams, those of endpoints that are connecting or connected
}

func (e *EVD) object() *object {
	if e == nil {
		return nil
	}
	return &e.obj
}

// SRQ is a shared receive queue: any endpoint made with it takes its receives from it.
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
	queued   int // posted and not completed
	wrs      [1]fabric.RecvWR
	sges     []fabric.SGE

	// outstanding is the number of receives on the queue, at endpoints, or completed and not dequeued.
	// It grows under mu; a dispatcher decrements it when the event is dequeued.
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

// EP is an endpoint: one end of a reliable connection. All methods are safe for concurrent use;
// posts of one kind (requests, receives) go out in the order in which the calls lock the endpoint.
type EP struct {
	// What a post reads comes first, here and in the queues: with many endpoints each cache line
	// costs.
	obj      object
	state    atomic.Uint32 // changed under mu
	pz       *PZ
	srq      *SRQ
	requests requestQueue
	attr     EPAttr
	recvs    recvQueue

	// nil: the events are discarded.
	recvEVD, requestEVD, connectEVD *EVD

	modifying ranked[rankModifying] // held by Modify, which alone changes the fields above

	mu    ranked[rankEP]             // changes of state
	conn  atomic.Pointer[connection] // or the attempt at one; nil: none; changed under mu
	timer *time.Timer
	wmark watermarks

	request fabric.Request // to be answered, in PASSIVE and TENTATIVE; guarded by mu
}

func (ep *EP) object() *object {
	if ep == nil {
		return nil
	}
	return &ep.obj
}

// requestQueue posts sends, RDMAs and binds.
type requestQueue struct {
	mu         ranked[rankRequests]
	suppressed uint32 // consecutive posts without a completion
	fence      uint32 // the number of the latest fenced request,
	fenced     bool   // which may be in flight
	marked     bool   // a request of the library may be in flight,
	marker     uint32 // with this number
	inline     int
	qp         fabric.QP
	inflight   *inflight // replaced by Modify with source, under ep.mu and mu
	batch[fabric.SendWR]

	readOut int // RDMA reads that the connection allows in flight
	ep      *EP
	source  *source
}

// recvQueue posts receives.
type recvQueue struct {
	mu       ranked[rankRecvs]
	qp       fabric.QP
	inflight *inflight // replaced by Modify with source, under ep.mu and mu
	batch[fabric.RecvWR]

	ep     *EP
	source *source
}

// batch holds the work requests of one call until they are posted.
type batch[WR any] struct {
	wrs    []WR
	sges   []fabric.SGE
	oneWR  [1]WR // behind wrs and sges until there are more
	oneIOV [defaultIOV]fabric.SGE
}

// watermarks are an endpoint's high watermarks on the receives that it holds. All but armed is
// guarded by ep.mu.
type watermarks struct {
	armed      atomic.Bool // some watermark is set and has not fired
	soft, hard int
	softArmed  bool
	passed     bool // more than hard were taken from the shared queue
}

// connection is one connection of an endpoint, or one attempt at it. Events of an earlier
// connection are dropped.
type connection struct {
	conn      fabric.Conn // nil once an attempt has been given up
	began     time.Time
	notice    *time.Timer // logs that connecting takes long
	suspected *time.Timer // runs while work has been flushed for no known reason
	active    bool        // counted in IA.activeEPs and EVD.connected

	// In FLUSHING: the last event, and the tails of the queues when the connection ended. The event
	// waits until all work before them has completed, at most flushWait after ended.
	disconnectEvent *Event
	requests, recvs uint32
	ended           time.Time // zero while the connection lives
	peerLeft        bool      // the cause that ended it

	failed atomic.Bool // work has failed: it explains why the peer left
	watch  peerWatch
}

// peerWatch is what the keep-alive knows of a connection; guarded by EP.mu.
type peerWatch struct {
	requests, recvs uint32 // the heads of the queues at the latest check
	silent          int    // consecutive checks that found requests in flight and nothing completed
}

// PSP is a public service point: it listens on a connection qualifier until it is freed.
type PSP struct {
	obj      object
	qual     ConnQual
	evd      *EVD
	flags    PSPFlags
	mu       ranked[rankServicePoint] // held until it listens
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
	ep       *EP                      // nil: the provider makes one
	mu       ranked[rankServicePoint] // held until it listens, and while a request is taken
	listener fabric.Listener
}

func (r *RSP) object() *object {
	if r == nil {
		return nil
	}
	return &r.obj
}

// CR is a connection request that awaits an answer: accept, reject or handoff, each of which
// destroys it.
type CR struct {
	obj       object
	request   fabric.Request
	localAddr netip.Addr
	ep        *EP // of a reserved service point, or made by the provider; nil: none

	mu ranked[rankCR] // one answer at a time
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
