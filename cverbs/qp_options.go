//go:build linux && cgo

package cverbs

// #include "shim.h"
import "C"

import (
	"fmt"
	"math"
	"net"
	"syscall"
)

// SetECE requests enhanced connection establishment options, and returns the options that the
// device accepted. Call it before ToRTR, because the options take effect at the next transitions.
// Pass the options that both ends have agreed on (CMID.RemoteECE). Errors: ErrNotSupported for
// VendorID 0, and if the driver has no ECE options; EINVAL for options that the driver does not
// know.
//
// Implements: ibv_set_ece.
func (q *QP) SetECE(e ECE) (accepted ECE, err error) {
	q = orZero(q)
	if !q.life.enter() {
		return ECE{}, ErrClosed
	}
	defer q.life.leave()
	c := C.struct_ibv_ece{vendor_id: C.uint32_t(e.VendorID), options: C.uint32_t(e.Options)}
	if rc, err := C.ibv_set_ece(q.c, &c); rc != 0 {
		x := rcError("ibv_set_ece", rc, err).(*Error)
		x.Advice = eceAdvice(q.num, QPState(q.c.state), e, x.Errno)
		return ECE{}, x
	}
	return ECE{VendorID: uint32(c.vendor_id), Options: uint32(c.options)}, nil
}

// QueryECE returns the ECE options that the device supports. After SetECE it returns the options
// that the device accepted. Errors: ErrNotSupported if the driver has no ECE options.
//
// Implements: ibv_query_ece.
func (q *QP) QueryECE() (ECE, error) {
	q = orZero(q)
	if !q.life.enter() {
		return ECE{}, ErrClosed
	}
	defer q.life.leave()
	var c C.struct_ibv_ece
	if rc, err := C.ibv_query_ece(q.c, &c); rc != 0 {
		return ECE{}, rcError("ibv_query_ece", rc, err)
	}
	return ECE{VendorID: uint32(c.vendor_id), Options: uint32(c.options)}, nil
}

// DataInOrder reports whether the bytes of a message are written to the receiver's memory in order,
// if the message is sent with op. A program that sees the last byte may then read the others.
// DataInOrder returns false if the driver does not know. Errors: ErrNotSupported with libraries
// before rdma-core 36.
//
// Implements: ibv_query_qp_data_in_order.
func (q *QP) DataInOrder(op WROpcode) (bool, error) {
	q = orZero(q)
	const verb = "ibv_query_qp_data_in_order"
	if !q.life.enter() {
		return false, ErrClosed
	}
	defer q.life.leave()
	switch rc := C.ibv_query_qp_data_in_order(q.c, uint32(op), 0); rc {
	case 0, 1:
		return rc == 1, nil
	case -1:
		return false, &Error{Verb: verb, Errno: syscall.EOPNOTSUPP}
	default:
		return false, rcError(verb, rc, nil)
	}
}

// SetRateLimit limits the speed at which the queue pair sends from now on. Errors: ErrNotSupported
// if the device has no rate limits; EINVAL for a speed below DeviceAttr.RateLimitMin or above
// RateLimitMax, and if the queue pair is not in RTS.
//
// Implements: ibv_modify_qp_rate_limit.
func (q *QP) SetRateLimit(l RateLimit) error {
	q = orZero(q)
	if !q.life.enter() {
		return ErrClosed
	}
	defer q.life.leave()
	c := C.struct_ibv_qp_rate_limit_attr{rate_limit: C.uint32_t(l.Kbps), max_burst_sz: C.uint32_t(l.MaxBurst),
		typical_pkt_sz: C.uint16_t(l.TypicalPacket)}
	if rc, err := C.ibv_modify_qp_rate_limit(q.c, &c); rc != 0 {
		e := rcError("ibv_modify_qp_rate_limit", rc, err).(*Error)
		e.Advice = rateAdvice(q.num, QPState(q.c.state), l, e.Errno)
		return e
	}
	return nil
}

// ResolveEthernet returns the Ethernet address and the VLAN of the destination attr.DGID on RoCE.
// The source is the GID with index attr.SGIDIndex of port attr.Port. vlan is -1 if there is no
// VLAN. The answer comes from the kernel's neighbour table. If the kernel must ask the network
// first, the call blocks for up to 3 s. Errors: EHOSTUNREACH if no host answers; EINVAL if the
// source GID has no network device.
//
// Implements: ibv_resolve_eth_l2_from_gid.
func (c *Context) ResolveEthernet(attr AHAttr) (mac net.HardwareAddr, vlan int, err error) {
	c = orZero(c)
	if !c.life.enter() {
		return nil, -1, ErrClosed
	}
	defer c.life.leave()
	a := attr.c()
	var to [6]C.uint8_t
	vid := C.uint16_t(math.MaxUint16)
	if rc, err := C.ibv_resolve_eth_l2_from_gid(c.c, &a, &to[0], &vid); rc != 0 {
		e := rcError("ibv_resolve_eth_l2_from_gid", rc, err).(*Error)
		e.Advice = fmt.Sprintf("from GID index %d of port %d to %v", attr.SGIDIndex, attr.Port, attr.DGID)
		return nil, -1, e
	}
	for _, b := range to {
		mac = append(mac, byte(b))
	}
	if vlan = int(vid); vlan > 0xfff {
		vlan = -1
	}
	return mac, vlan, nil
}
