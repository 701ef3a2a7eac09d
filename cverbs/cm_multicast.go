//go:build linux && cgo

package cverbs

// #include "shim.h"
import "C"

import (
	"fmt"
	"net/netip"
	"syscall"
)

// JoinMulticast joins a multicast group: 224.0.0.0/4 or ff00::/8. The event MULTICAST_ERROR
// follows, or MULTICAST_JOIN, which has the path to the group, the group's Q_Key, and the RemoteQPN
// of sends to a group (0xffffff). The id is of PortSpaceUDP or PortSpaceIPoIB, and bound to a
// device by BindAddr or ResolveAddr.
//
// When EventChannel.Get takes MULTICAST_JOIN, librdmacm attaches the queue pair of CreateQP to the
// group, unless the id joins with JoinSendOnly. The caller attaches other queue pairs:
// AttachMulticast, with DGID and DLID of the event's path.
//
// Errors: EINVAL for a group that is not multicast or has been joined, and for an id of another
// port space or without a device; ErrNotSupported for an IPv6 group on RoCE v2.
//
// Implements: rdma_join_multicast, rdma_join_multicast_ex.
func (id *CMID) JoinMulticast(group netip.Addr, as JoinFlag) error {
	id = orZero(id)
	const verb = "rdma_join_multicast"
	a, err := groupAddr(verb, group)
	if err != nil {
		return err
	}
	if as > JoinSendOnly {
		return badArg(verb, "%v is neither JoinFullMember nor JoinSendOnly", as)
	}
	if !id.life.enter() {
		return ErrClosed
	}
	defer id.life.leave()
	id.mu.Lock()
	defer id.mu.Unlock()
	switch {
	case id.c.verbs == nil:
		return badArg(verb, "the id is not bound to a device yet: BindAddr or ResolveAddr first")
	case id.c.qp_type != C.IBV_QPT_UD:
		return badArg(verb, "the id's port space is %v: multicast needs UDP or IPoIB", PortSpace(id.c.ps))
	case id.joined(group) != 0:
		return badArg(verb, "group %v is joined already", group)
	}
	id.joins++
	if id.groups == nil {
		id.groups = map[uintptr]netip.Addr{}
		id.leaveAll = id.leaveGroups
	}
	id.groups[id.joins] = group.Unmap() // before its event can come
	if rc := C.cv_cm_join(id.c, &a, C.uint32_t(as), C.uintptr_t(id.joins)); rc != 0 {
		delete(id.groups, id.joins)
		e := rcError(verb, rc, nil).(*Error)
		e.Advice = fmt.Sprintf("group %v", group)
		if e.Errno == enotsupp {
			e.Errno = syscall.EOPNOTSUPP
			e.Advice += ": the kernel joins no IPv6 groups on RoCE v2; AttachMulticast does"
		}
		return e
	}
	return nil
}

// enotsupp is an errno of the kernel that should not reach a program.
const enotsupp = syscall.Errno(524)

// LeaveMulticast leaves a group, and detaches the queue pair of CreateQP from it. If MULTICAST_JOIN
// has not come yet, it does not come any more. Datagrams that the queue pair has received still
// complete. Errors: EINVAL for a group that has not been joined.
//
// Implements: rdma_leave_multicast.
func (id *CMID) LeaveMulticast(group netip.Addr) error {
	id = orZero(id)
	const verb = "rdma_leave_multicast"
	if _, err := groupAddr(verb, group); err != nil {
		return err
	}
	if !id.life.enter() {
		return ErrClosed
	}
	defer id.life.leave()
	id.mu.Lock()
	defer id.mu.Unlock()
	h := id.joined(group)
	if h == 0 {
		return badArg(verb, "group %v has not been joined", group)
	}
	return id.leave(h)
}

// leave leaves a group; id.mu is held. No event is being taken meanwhile: MULTICAST_JOIN would
// attach the queue pair again.
func (id *CMID) leave(h uintptr) error {
	const verb = "rdma_leave_multicast"
	group := id.groups[h]
	a, err := cAddr(verb, "group", netip.AddrPortFrom(group, 0))
	if err != nil {
		return err
	}
	delete(id.groups, h)
	id.ch.mu.Lock()
	defer id.ch.mu.Unlock()
	if rc := C.cv_cm_leave(id.c, &a); rc != 0 {
		e := rcError(verb, rc, nil).(*Error)
		e.Advice = fmt.Sprintf("group %v", group)
		return e
	}
	return nil
}

// leaveGroups frees what librdmacm keeps for each group.
func (id *CMID) leaveGroups() {
	id.mu.Lock()
	defer id.mu.Unlock()
	for h := range id.groups {
		id.leave(h)
	}
}

// joined returns the handle of a group, or 0; id.mu is held.
func (id *CMID) joined(group netip.Addr) uintptr {
	for h, g := range id.groups {
		if g == group.Unmap() {
			return h
		}
	}
	return 0
}

// group returns the group of a handle, the zero Addr if it has been left.
func (id *CMID) group(h uintptr) netip.Addr {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.groups[h]
}

func groupAddr(verb string, group netip.Addr) (C.struct_cv_addr, error) {
	if !group.Unmap().IsMulticast() {
		return C.struct_cv_addr{}, badArg(verb, "group %v is not a multicast address", group)
	}
	return cAddr(verb, "group", netip.AddrPortFrom(group, 0))
}
