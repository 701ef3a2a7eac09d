//go:build linux && cgo

package cverbs

// #include "shim.h"
import "C"

import (
	"fmt"
	"math"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

// CMID is a connection manager id: a listener, or one end of a connection. Methods such as Connect
// start an operation and return. The outcome arrives as an event on the id's EventChannel.
type CMID struct {
	life life
	c    *C.struct_rdma_cm_id
	h    uintptr
	data atomic.Pointer[any]
	step atomic.Uint32 // a cmStep

	mu     sync.Mutex // guards ch, groups and joins
	ch     *EventChannel
	groups map[uintptr]netip.Addr // the joined groups, by the handle passed to cv_cm_join
	joins  uintptr                // the latest handle

	leaveAll func() // leaves all groups; nil before the first JoinMulticast
}

// CreateID creates an id that reports its events to ch.
//
// Implements: rdma_create_id.
func (ch *EventChannel) CreateID(ps PortSpace) (*CMID, error) {
	ch = orZero(ch)
	id := &CMID{ch: ch}
	if err := id.life.begin(kindCMID, &ch.life); err != nil {
		return nil, err
	}
	c, err := C.cv_cm_create_id(ch.c, 0, C.uint32_t(ps))
	if c == nil {
		id.life.abort()
		return nil, nodeError("rdma_create_id", errnoOf(err), "/dev/infiniband/rdma_cm", "rdma_ucm")
	}
	id.open(c)
	return id, nil
}

func (id *CMID) open(c *C.struct_rdma_cm_id) {
	id.c, id.h = c, byHandle.ids.add(id)
	C.cv_cm_set_handle(c, C.uintptr_t(id.h))
	id.life.open()
}

// Close destroys the id. Depending on the use of the id, it disconnects the connection, rejects the
// request, stops the listener, or leaves the multicast groups. Pending events of the id are
// dropped. Errors: ErrInUse while a queue pair that CMID.CreateQP created on the id is open.
//
// Implements: rdma_destroy_id, rdma_destroy_ep.
func (id *CMID) Close() error {
	id = orZero(id)
	return id.life.close(nil, func() error {
		if id.leaveAll != nil {
			id.leaveAll()
		}
		if rc, err := C.rdma_destroy_id(id.c); rc != 0 {
			return rcError("rdma_destroy_id", rc, err)
		}
		byHandle.ids.remove(id.h)
		return nil
	})
}

// SetData stores a value in the id. Whoever receives an event of the id can read the value with
// Data.
//
// Extension.
func (id *CMID) SetData(v any) { orZero(id).data.Store(&v) }

// Data returns the value that SetData has stored, or nil.
//
// Extension.
func (id *CMID) Data() any {
	id = orZero(id)
	if p := id.data.Load(); p != nil {
		return *p
	}
	return nil
}

// BindAddr binds the id to a local address. A specific address also binds the id to the device that
// has the address. The wildcard address stands for all devices, and port 0 for any free port. A
// link-local address needs a zone. Errors: ENODEV or EADDRNOTAVAIL if no RDMA device has the
// address; EADDRINUSE if the address is taken; EACCES for a port that needs a privilege.
//
// Implements: rdma_bind_addr.
func (id *CMID) BindAddr(addr netip.AddrPort) error {
	id = orZero(id)
	a, err := cAddr("rdma_bind_addr", "addr", addr)
	if err != nil {
		return err
	}
	return addrError(id.call("BindAddr", func() C.int { return C.cv_cm_bind_addr(id.c, &a) }), addr)
}

// ResolveAddr starts resolving dst to a device and a hardware address. The event ADDR_RESOLVED or
// ADDR_ERROR follows. If src is zero, the routing table chooses the source address. The timeout is
// rounded up to milliseconds.
//
// Implements: rdma_resolve_addr.
func (id *CMID) ResolveAddr(src, dst netip.AddrPort, timeout time.Duration) error {
	id = orZero(id)
	const verb = "rdma_resolve_addr"
	var s C.struct_cv_addr
	var err error
	if src.Addr().IsValid() {
		if s, err = cAddr(verb, "src", src); err != nil {
			return err
		}
	}
	d, err := cAddr(verb, "dst", dst)
	if err != nil {
		return err
	}
	ms, err := millis(verb, timeout)
	if err != nil {
		return err
	}
	return addrError(id.call("ResolveAddr", func() C.int { return C.cv_cm_resolve_addr(id.c, &s, &d, ms) }), dst)
}

// ResolveRoute starts resolving the path to the peer. Call it after ADDR_RESOLVED. The event
// ROUTE_RESOLVED or ROUTE_ERROR follows. The timeout is rounded up to milliseconds.
//
// Implements: rdma_resolve_route.
func (id *CMID) ResolveRoute(timeout time.Duration) error {
	id = orZero(id)
	ms, err := millis("rdma_resolve_route", timeout)
	if err != nil {
		return err
	}
	return id.callBound("ResolveRoute", func() C.int { return C.cv_cm_resolve_route(id.c, ms) })
}

// Listen starts accepting connection requests at the bound address. Each request arrives as the
// event CONNECT_REQUEST, with a new id.
//
// Implements: rdma_listen.
func (id *CMID) Listen(backlog int) error {
	id = orZero(id)
	if backlog < 0 || backlog > math.MaxInt32 {
		return badArg("rdma_listen", "backlog %d is not in 0..%d", backlog, math.MaxInt32)
	}
	return id.call("Listen", func() C.int { return C.cv_cm_listen(id.c, C.int(backlog)) })
}

// Connect sends a connection request. Call it after ROUTE_RESOLVED. If the id has a queue pair, the
// event ESTABLISHED follows. If the id has no queue pair, p.QPNum must be the number of a queue
// pair of the caller, and the event CONNECT_RESPONSE follows. The caller then moves the queue pair
// to RTS and calls Establish. On iWARP, ESTABLISHED follows in both cases. On failure, REJECTED,
// UNREACHABLE or CONNECT_ERROR follows; on iWARP Connect itself may also return ECONNREFUSED.
//
// Implements: rdma_connect.
func (id *CMID) Connect(p ConnParam) error {
	id = orZero(id)
	c, data, err := p.c("rdma_connect")
	if err != nil {
		return err
	}
	return p.explain(id.callBound("Connect",
		func() C.int { return C.cv_cm_connect(id.c, &c, data, C.uint32_t(len(p.PrivateData))) }), requestPrivate, "")
}

// Accept accepts a connection request. Call it on the id of the CONNECT_REQUEST event. If the id
// has no queue pair, the caller must first move its own queue pair to RTS and set p.QPNum to the
// number of that queue pair. The event ESTABLISHED or CONNECT_ERROR follows.
//
// Implements: rdma_accept.
func (id *CMID) Accept(p ConnParam) error {
	id = orZero(id)
	c, data, err := p.c("rdma_accept")
	if err != nil {
		return err
	}
	return p.explain(id.callBound("Accept",
		func() C.int { return C.cv_cm_accept(id.c, &c, data, C.uint32_t(len(p.PrivateData))) }), replyPrivate,
		"the peer has given up its request, or ")
}

// Reject rejects a connection request. The peer receives REJECTED with the private data. The caller
// must still close the id.
//
// Implements: rdma_reject.
func (id *CMID) Reject(privateData []byte) error {
	id = orZero(id)
	return id.reject("Reject", privateData, func(data *C.uint8_t, n C.uint32_t) C.int {
		return C.cv_cm_reject(id.c, data, n)
	})
}

// RejectECE rejects a connection request because its ECE options (see RemoteECE) are not
// acceptable. The peer receives REJECTED with the status RejectVendorOption. Errors:
// ErrNotSupported on kernels before 5.9.
//
// Implements: rdma_reject_ece.
func (id *CMID) RejectECE(privateData []byte) error {
	id = orZero(id)
	return id.reject("RejectECE", privateData, func(data *C.uint8_t, n C.uint32_t) C.int {
		return C.cv_cm_reject_ece(id.c, data, n)
	})
}

func (id *CMID) reject(name string, data []byte, call func(*C.uint8_t, C.uint32_t) C.int) error {
	if len(data) > math.MaxUint8 {
		return badArg(cmRules[name].verb, "%d bytes of private data, at most %d", len(data), math.MaxUint8)
	}
	err := id.callBound(name, func() C.int { return call(bytePtr(data), C.uint32_t(len(data))) })
	if len(data) > rejectPrivate {
		p := ConnParam{PrivateData: data}
		return p.explain(err, rejectPrivate, "")
	}
	return err
}

// Establish completes a connection on the active side. Call it after CONNECT_RESPONSE, once the
// queue pair is in RTS.
//
// Implements: rdma_establish.
func (id *CMID) Establish() error {
	id = orZero(id)
	return id.callBound("Establish", func() C.int { return C.cv_cm_establish(id.c) })
}

// Notify passes an asynchronous event of the queue pair to the connection manager. Call it with
// AsyncCommEst, which the device reports if data arrives before the peer's last handshake message.
//
// Implements: rdma_notify.
func (id *CMID) Notify(t AsyncEventType) error {
	id = orZero(id)
	return id.callBound("Notify", func() C.int { return C.cv_cm_notify(id.c, C.uint32_t(t)) })
}

// Disconnect ends the connection, and moves the queue pair that CMID.CreateQP created to ERR. The
// caller must move any other queue pair itself. The event DISCONNECTED follows on both sides.
//
// Implements: rdma_disconnect.
func (id *CMID) Disconnect() error {
	id = orZero(id)
	return id.callBound("Disconnect", func() C.int { return C.cv_cm_disconnect(id.c) })
}

// InitQPAttr returns the attributes and the mask that QP.Modify needs for a transition to state,
// which must be INIT, RTR or RTS. Programs call InitQPAttr for queue pairs that CMID.CreateQP did
// not create.
//
// Implements: rdma_init_qp_attr.
func (id *CMID) InitQPAttr(state QPState) (QPAttr, QPAttrMask, error) {
	id = orZero(id)
	var a C.struct_ibv_qp_attr
	var mask C.int
	a.qp_state = uint32(state)
	if err := id.callBound("InitQPAttr", func() C.int { return C.cv_cm_init_qp_attr(id.c, &a, &mask) }); err != nil {
		return QPAttr{}, 0, err
	}
	return goQPAttr(&a), QPAttrMask(mask), nil
}

// Migrate moves the id, with its pending events, to another event channel.
//
// Implements: rdma_migrate_id.
func (id *CMID) Migrate(ch *EventChannel) error {
	id = orZero(id)
	if ch == nil {
		return badArg("rdma_migrate_id", "ch is nil")
	}
	if !id.life.enter() {
		return ErrClosed
	}
	defer id.life.leave()
	id.mu.Lock()
	defer id.mu.Unlock()
	if ch == id.ch {
		return nil
	}
	if err := ch.life.hold(kindCMID); err != nil {
		return err
	}
	if rc := C.cv_cm_migrate(id.c, ch.c); rc != 0 {
		ch.life.drop(kindCMID)
		return rcError("rdma_migrate_id", rc, nil)
	}
	id.life.swapParent(&id.ch.life, &ch.life)
	id.ch = ch
	return nil
}

// LocalAddr returns the local address and port, or the zero AddrPort before an address is chosen.
//
// Implements: rdma_get_local_addr, rdma_get_src_port.
func (id *CMID) LocalAddr() netip.AddrPort { l, _ := orZero(id).addrs(); return l }

// RemoteAddr returns the peer's address and port, or the zero AddrPort before they are known.
//
// Implements: rdma_get_peer_addr, rdma_get_dst_port.
func (id *CMID) RemoteAddr() netip.AddrPort { _, r := orZero(id).addrs(); return r }

func (id *CMID) addrs() (local, remote netip.AddrPort) {
	if !id.life.enter() {
		return
	}
	defer id.life.leave()
	var l, r C.struct_cv_addr
	C.cv_cm_addrs(id.c, &l, &r)
	local, remote = goAddr(&l), goAddr(&r)
	if needsZone(local.Addr()) || needsZone(remote.Addr()) {
		zone := id.zone(local.Addr())
		local = netip.AddrPortFrom(withZone(local.Addr(), zone), local.Port())
		remote = netip.AddrPortFrom(withZone(remote.Addr(), zone), remote.Port())
	}
	return local, remote
}

// zone returns the zone of a local address. If the address has none, zone returns the name of the
// network device that has this address, or "". The kernel reports the zone of a bound address, but
// no zones for the addresses of a connection.
func (id *CMID) zone(local netip.Addr) string {
	if local.Zone() != "" || id.c.verbs == nil {
		return local.Zone()
	}
	table, _ := gidTable(id.c.verbs)
	for _, e := range table {
		if e.GID.Addr() == local {
			return e.NetDev
		}
	}
	return ""
}

// Device returns the name of the device that the id is bound to, or "" if the id is not bound.
//
// Extension.
func (id *CMID) Device() string {
	id = orZero(id)
	if !id.life.enter() {
		return ""
	}
	defer id.life.leave()
	if id.c.verbs == nil {
		return ""
	}
	return C.GoString(C.ibv_get_device_name(id.c.verbs.device))
}

// Port returns the number of the device port that the id is bound to, or 0 if the id is not bound.
//
// Extension.
func (id *CMID) Port() uint8 {
	id = orZero(id)
	if !id.life.enter() {
		return 0
	}
	defer id.life.leave()
	return uint8(id.c.port_num)
}

// callBound does what call does, but returns EINVAL if the id has no device, because librdmacm
// would crash in f.
func (id *CMID) callBound(name string, f func() C.int) error {
	return id.call(name, func() C.int {
		if id.c.verbs == nil {
			return C.int(syscall.EINVAL)
		}
		return f()
	})
}

// call runs f and records the id's new step. f calls the function of librdmacm that cmRules[name]
// describes. If f fails because of the id's step, the error says so.
func (id *CMID) call(name string, f func() C.int) error {
	if !id.life.enter() {
		return ErrClosed
	}
	defer id.life.leave()
	rule, at := cmRules[name], id.step.Load()
	if rule.to != cmCreateID { // before f, because the event may come before f returns
		id.step.CompareAndSwap(at, uint32(rule.to))
	}
	rc := f()
	if rc == 0 {
		return nil
	}
	id.step.CompareAndSwap(uint32(rule.to), at)
	e := rcError(rule.verb, rc, nil).(*Error)
	if e.Errno == syscall.EINVAL {
		e.Advice = cmAdvice(name, cmStep(at))
	}
	return e
}

func (p *ConnParam) c(verb string) (C.struct_cv_conn, *C.uint8_t, error) {
	if len(p.PrivateData) > math.MaxUint8 {
		return C.struct_cv_conn{}, nil, badArg(verb, "%d bytes of private data, at most %d", len(p.PrivateData),
			math.MaxUint8)
	}
	if p.RetryCount > 7 || p.RNRRetryCount > 7 {
		return C.struct_cv_conn{}, nil, badArg(verb, "RetryCount %d or RNRRetryCount %d is not in 0..7", p.RetryCount,
			p.RNRRetryCount)
	}
	return C.struct_cv_conn{
		responder_resources: C.uint8_t(p.ResponderResources), initiator_depth: C.uint8_t(p.InitiatorDepth),
		flow_control: cbool(p.FlowControl), retry_count: C.uint8_t(p.RetryCount), rnr_retry_count: C.uint8_t(p.RNRRetryCount),
		srq: cbool(p.SRQ), qp_num: C.uint32_t(p.QPNum),
	}, bytePtr(p.PrivateData), nil
}

func goConnParam(c *C.struct_cv_conn) ConnParam {
	return ConnParam{
		ResponderResources: uint8(c.responder_resources), InitiatorDepth: uint8(c.initiator_depth),
		FlowControl: c.flow_control != 0, RetryCount: uint8(c.retry_count), RNRRetryCount: uint8(c.rnr_retry_count),
		SRQ: c.srq != 0, QPNum: uint32(c.qp_num),
	}
}

// The numbers of bytes of private data that every device can carry in a request, a reply and a
// reject.
const (
	requestPrivate = 56
	replyPrivate   = 196
	rejectPrivate  = 148
)

// explain adds the likely cause to an EINVAL of the kernel. The parameter limit is the limit of the
// private data in bytes. The parameter other is a text about another possible cause, or empty. If
// the private data is not too long, the advice begins with this text.
func (p *ConnParam) explain(err error, limit int, other string) error {
	if e, ok := err.(*Error); ok && e.Errno == syscall.EINVAL && e.Advice == "" {
		if len(p.PrivateData) > limit {
			e.Advice = fmt.Sprintf("private data is %d bytes, the limit is %d", len(p.PrivateData), limit)
		} else {
			e.Advice = fmt.Sprintf("%sa depth (%d, %d) exceeds the device's limit", other, p.ResponderResources,
				p.InitiatorDepth)
		}
	}
	return err
}

func bytePtr(b []byte) *C.uint8_t { return (*C.uint8_t)(unsafe.Pointer(unsafe.SliceData(b))) }
