//go:build linux && cgo

package cverbs

// #include "shim.h"
import "C"

import "syscall"

// SetTOS sets the connection's IP type of service. Call it before ResolveAddr or Listen.
//
// Implements: rdma_set_option.
func (id *CMID) SetTOS(tos uint8) error {
	return orZero(id).setOption("SetTOS", C.RDMA_OPTION_ID_TOS, int(tos), 1)
}

// SetReuseAddr sets whether BindAddr may bind the id to an address that another id is bound to.
// Only one of these ids may listen.
//
// Implements: rdma_set_option.
func (id *CMID) SetReuseAddr(on bool) error {
	id = orZero(id)
	return id.setOption("SetReuseAddr", C.RDMA_OPTION_ID_REUSEADDR, int(cbool(on)), C.sizeof_int)
}

// SetAFOnly sets whether a wildcard IPv6 listener refuses IPv4 connections.
//
// Implements: rdma_set_option.
func (id *CMID) SetAFOnly(on bool) error {
	id = orZero(id)
	return id.setOption("SetAFOnly", C.RDMA_OPTION_ID_AFONLY, int(cbool(on)), C.sizeof_int)
}

// SetAckTimeout sets the queue pair's ACK timeout to 4.096 us << timeout. The parameter timeout is
// 0 to 31.
//
// Implements: rdma_set_option.
func (id *CMID) SetAckTimeout(timeout uint8) error {
	id = orZero(id)
	if timeout > 31 {
		return badArg("rdma_set_option", "ACK timeout %d is not in 0..31", timeout)
	}
	return id.setOption("SetAckTimeout", C.RDMA_OPTION_ID_ACK_TIMEOUT, int(timeout), 1)
}

// SetLocalECE sets the enhanced connection establishment (ECE) data of the next Connect or Accept.
// Accept replaces e.VendorID by the VendorID of the peer's request. Errors: EINVAL if the id has a
// queue pair, or if e.VendorID is 0.
//
// Implements: rdma_set_local_ece.
func (id *CMID) SetLocalECE(e ECE) error {
	id = orZero(id)
	if !id.life.enter() {
		return ErrClosed
	}
	defer id.life.leave()
	ece := C.struct_ibv_ece{vendor_id: C.uint32_t(e.VendorID), options: C.uint32_t(e.Options)}
	rc, err := C.rdma_set_local_ece(id.c, &ece)
	return id.eceError("rdma_set_local_ece", rc, err)
}

// RemoteECE returns the ECE data of the peer's connection request or of the peer's reply
// (CONNECT_RESPONSE). Errors: EINVAL if the id has a queue pair.
//
// Implements: rdma_get_remote_ece.
func (id *CMID) RemoteECE() (ECE, error) {
	id = orZero(id)
	if !id.life.enter() {
		return ECE{}, ErrClosed
	}
	defer id.life.leave()
	var e C.struct_ibv_ece
	if rc, err := C.rdma_get_remote_ece(id.c, &e); rc != 0 {
		return ECE{}, id.eceError("rdma_get_remote_ece", rc, err)
	}
	return ECE{VendorID: uint32(e.vendor_id), Options: uint32(e.options)}, nil
}

func (id *CMID) eceError(verb string, rc C.int, err error) error {
	err = rcError(verb, rc, err)
	if e, ok := err.(*Error); ok && e.Errno == syscall.EINVAL && id.c.qp != nil {
		e.Advice = "the id has a queue pair: only with one of PD.CreateQP, in ConnParam.QPNum, is ECE the caller's"
	}
	return err
}

func (id *CMID) setOption(call string, name, value, size int) error {
	return id.call(call, func() C.int { return C.cv_cm_set_option(id.c, C.int(name), C.int(value), C.int(size)) })
}
