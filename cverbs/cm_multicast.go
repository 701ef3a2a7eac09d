//go:build linux && cgo

package cverbs

// #include "shim.h"
import "C"

import (
	"fmt"
	"net/netip"
	"syscall"
)

// JoinMulticast joins a multicast group, which is an address in 224.0.0.0/4 or ff00::/8. The id
// must be of PortSpaceUDP or PortSpaceIPoIB, and bound to a device by BindAddr or ResolveAddr. The
// event MULTICAST_JOIN or MULTICAST_ERROR follows. Sends to the group need three fields of the
// MULTICAST_JOIN event: AH is the path, QKey is the Q_Key, and QPNum (0xffffff) is the value for
// SendWR.RemoteQPN.
//
// When EventChannel.Get takes MULTICAST_JOIN, librdmacm attaches the queue pair of CMID.CreateQP to
// the group, unless flag is JoinSendOnly. The caller must attach any other queue pair with
// QP.AttachMulticast, using the DGID and the DLID of the event's AH.
//
// Errors: EINVAL if group is not a multicast address or is joined already, or if the id has another
// port space or no device; ErrNotSupported for an IPv6 group on RoCE v2.
//
// Implements: rdma_join_multicast, rdma_join_multicast_ex.
func (id *CMID) JoinMulticast(group netip.Addr, flag JoinFlag) error {
	id = orZero(id)
	const verb = "rdma_join_multicast"
	a, err := groupAddr(verb, group)
	if err != nil {
		return err
	}
	if flag > JoinSendOnly {
		return badArg(verb, "%v is neither JoinFullMember nor JoinSendOnly", flag)
	}
	if !id.life.enter() {
		return ErrClosed
	}
	defer id.life.leave()
	id.mu.Lock()
	defer id.mu.Unlock()
	switch {
	case id.c.verbs == nil:
		return badArg(verb, notBound)
	case id.c.qp_type != C.IBV_QPT_UD:
		return badArg(verb, "the id's port space is %v: multicast needs UDP or IPoIB", PortSpace(id.c.ps))
	case id.groupHandle(group) != 0:
		return badArg(verb, "group %v is joined already: LeaveMulticast first", group)
	}
	id.joins++
	if id.groups == nil {
		id.groups = map[uintptr]netip.Addr{}
		id.leaveAll = id.leaveGroups
	}
	id.groups[id.joins] = group.Unmap() // stored before its event can arrive
	if rc := C.cv_cm_join(id.c, &a, C.uint32_t(flag), C.uintptr_t(id.joins)); rc != 0 {
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

// enotsupp is ENOTSUPP. This errno is for use inside the kernel only, but a join may return it.
const enotsupp = syscall.Errno(524)

// LeaveMulticast leaves a group, and detaches the queue pair of CMID.CreateQP from the group. A
// MULTICAST_JOIN that Get has not returned yet is dropped. Datagrams that the queue pair has
// received still complete. Errors: EINVAL for a group that has not been joined.
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
	h := id.groupHandle(group)
	if h == 0 {
		return badArg(verb, "group %v has not been joined: JoinMulticast first", group)
	}
	return id.leave(h)
}

// leave leaves the group with the handle h. The caller holds id.mu. The method locks the channel's
// mu, so that librdmacm takes no event meanwhile. If librdmacm took MULTICAST_JOIN, it would attach
// the queue pair again.
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

// leaveGroups leaves all groups, so that librdmacm frees what it has allocated for them.
func (id *CMID) leaveGroups() {
	id.mu.Lock()
	defer id.mu.Unlock()
	for h := range id.groups {
		id.leave(h)
	}
}

// groupHandle returns the handle of a group, or 0 if the group is not joined. The caller holds
// id.mu.
func (id *CMID) groupHandle(group netip.Addr) uintptr {
	for h, g := range id.groups {
		if g == group.Unmap() {
			return h
		}
	}
	return 0
}

// group returns the group of a handle, or the zero Addr if the group has been left.
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
