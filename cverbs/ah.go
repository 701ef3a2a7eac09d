//go:build linux && cgo

package cverbs

// #include "shim.h"
import "C"

import "fmt"

// AH is an address handle: the path to a datagram destination.
type AH struct {
	life  life
	token uint64
}

// CreateAH creates an address handle. On RoCE, attr.IsGlobal, DGID and SGIDIndex must be set.
// Errors: EINVAL for a wrong port, and on RoCE without IsGlobal; ENODATA for an empty entry of the
// GID table; ENETUNREACH if no route leads to DGID.
//
// Implements: ibv_create_ah.
func (p *PD) CreateAH(attr AHAttr) (*AH, error) {
	p = orZero(p)
	a := &AH{}
	if err := a.life.begin(kindAH, &p.life); err != nil {
		return nil, err
	}
	c := attr.c()
	token, err := C.cv_ah_create(p.c, &c)
	if token == 0 {
		a.life.abort()
		return nil, &Error{Verb: "ibv_create_ah", Errno: errnoOf(err), Advice: fmt.Sprintf(
			"to DGID %v, from SGIDIndex %d of port %d; IsGlobal is %v", attr.DGID, attr.SGIDIndex, attr.Port, attr.IsGlobal)}
	}
	a.token = uint64(token)
	a.life.open()
	return a, nil
}

// Handle returns the token for SendWR.AH. A post with the token of a closed handle returns EINVAL.
//
// Extension.
func (a *AH) Handle() uint64 { return orZero(a).token }

// Close destroys the handle. Call it only after all sends that use the handle have completed.
//
// Implements: ibv_destroy_ah.
func (a *AH) Close() error {
	a = orZero(a)
	return a.life.close(nil, func() error { return rcError("ibv_destroy_ah", C.cv_ah_destroy(C.uint64_t(a.token)), nil) })
}

func (a AHAttr) c() (c C.struct_ibv_ah_attr) {
	c.grh.dgid = [16]byte(a.DGID)
	c.grh.flow_label = C.uint32_t(a.FlowLabel)
	c.grh.sgid_index = C.uint8_t(a.SGIDIndex)
	c.grh.hop_limit = C.uint8_t(a.HopLimit)
	c.grh.traffic_class = C.uint8_t(a.TrafficClass)
	c.dlid = C.uint16_t(a.DLID)
	c.sl = C.uint8_t(a.SL)
	c.src_path_bits = C.uint8_t(a.SrcPathBits)
	c.static_rate = C.uint8_t(a.StaticRate)
	c.port_num = C.uint8_t(a.Port)
	c.is_global = cbool(a.IsGlobal)
	return c
}

func goAHAttr(c *C.struct_ibv_ah_attr) AHAttr {
	return AHAttr{
		DGID: GID(c.grh.dgid), FlowLabel: uint32(c.grh.flow_label), SGIDIndex: uint8(c.grh.sgid_index),
		HopLimit: uint8(c.grh.hop_limit), TrafficClass: uint8(c.grh.traffic_class), DLID: uint16(c.dlid), SL: uint8(c.sl),
		SrcPathBits: uint8(c.src_path_bits), StaticRate: Rate(c.static_rate), IsGlobal: c.is_global != 0,
		Port: uint8(c.port_num),
	}
}
