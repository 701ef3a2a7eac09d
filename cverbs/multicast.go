//go:build linux && cgo

package cverbs

// #include "shim.h"
import "C"

import (
	"fmt"
	"syscall"
)

// AttachMulticast makes a datagram queue pair receive what is sent to a multicast group. The
// parameter lid is the group's LID on InfiniBand, and 0 on RoCE. If the group is attached already,
// nothing changes. While a group is attached, QP.Close returns EBUSY. Errors: EINVAL if the queue
// pair is not UD, or if group is not multicast (ff00::/8, or 224.0.0.0/4 mapped into IPv6); ENOMEM
// beyond DeviceAttr.MaxMcastGrp or MaxMcastQPAttach.
//
// Implements: ibv_attach_mcast.
func (q *QP) AttachMulticast(group GID, lid uint16) error {
	return orZero(q).multicast("ibv_attach_mcast", group, func(gid *C.union_ibv_gid) (C.int, error) {
		rc, err := C.ibv_attach_mcast(q.c, gid, C.uint16_t(lid))
		return rc, err
	})
}

// DetachMulticast undoes AttachMulticast with the same group and lid. Errors: EINVAL as
// AttachMulticast, and if the group is not attached.
//
// Implements: ibv_detach_mcast.
func (q *QP) DetachMulticast(group GID, lid uint16) error {
	return orZero(q).multicast("ibv_detach_mcast", group, func(gid *C.union_ibv_gid) (C.int, error) {
		rc, err := C.ibv_detach_mcast(q.c, gid, C.uint16_t(lid))
		return rc, err
	})
}

func (q *QP) multicast(verb string, group GID, call func(*C.union_ibv_gid) (C.int, error)) error {
	if !q.life.enter() {
		return ErrClosed
	}
	defer q.life.leave()
	if q.typ != QPTypeUD {
		return badArg(verb, "QP %d is %v: only UD has multicast", q.num, q.typ)
	}
	if !group.Addr().IsMulticast() {
		return badArg(verb, "group %v is not a multicast address", group)
	}
	gid := C.union_ibv_gid(group)
	if rc, err := call(&gid); rc != 0 {
		e := rcError(verb, rc, err).(*Error)
		e.Advice = "group " + group.String()
		if verb == "ibv_detach_mcast" && e.Errno == syscall.EINVAL {
			e.Advice += fmt.Sprintf(" is not attached to QP %d: AttachMulticast first", q.num)
		}
		return e
	}
	return nil
}
