//go:build linux && cgo

package cverbs

// #include "shim.h"
import "C"

import (
	"encoding/binary"
	"fmt"
	"math"
	"reflect"
	"unsafe"
)

// Flow is a rule that steers packets to a queue pair.
type Flow struct {
	life life
	c    *C.struct_ibv_flow
}

// CreateFlow creates a rule that steers packets to the queue pair if they meet all conditions in
// specs. The queue pair must be of type RAW_PACKET or UD. An action in specs tags, drops or counts
// these packets. Conditions must be in the order of a packet's headers. The process needs
// CAP_NET_RAW. Errors: ErrNotSupported; EPERM without CAP_NET_RAW; EINVAL for more than 255 specs,
// and for conditions that the device does not support.
//
// Implements: ibv_create_flow.
func (q *QP) CreateFlow(attr FlowAttr, specs []FlowSpec) (*Flow, error) {
	q = orZero(q)
	const verb = "ibv_create_flow"
	if len(specs) > math.MaxUint8 {
		return nil, badArg(verb, "%d specifications: it takes at most %d", len(specs), math.MaxUint8)
	}
	parents := []*life{&q.life}
	for _, s := range specs {
		if s, ok := s.(FlowCount); ok {
			parents = append(parents, &orZero(s.Counters).life)
		}
	}
	f := &Flow{}
	if err := f.life.begin(kindFlow, parents...); err != nil {
		return nil, err
	}
	b, err := flowBytes(attr, specs)
	if err != nil {
		f.life.abort()
		return nil, badArg(verb, "%v", err)
	}
	aligned := make([]uint64, (len(b)+7)/8)
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&aligned[0])), len(b)), b)
	v, err := C.ibv_create_flow(q.c, (*C.struct_ibv_flow_attr)(unsafe.Pointer(&aligned[0])))
	if v == nil {
		f.life.abort()
		return nil, &Error{Verb: verb, Errno: errnoOf(err)}
	}
	f.c = v
	f.life.open()
	return f, nil
}

// Close removes the rule.
//
// Implements: ibv_destroy_flow.
func (f *Flow) Close() error {
	f = orZero(f)
	return f.life.close(nil, func() error {
		rc, err := C.ibv_destroy_flow(f.c)
		return rcError("ibv_destroy_flow", rc, err)
	})
}

// flowBytes returns a struct ibv_flow_attr, followed by its specifications.
func flowBytes(attr FlowAttr, specs []FlowSpec) ([]byte, error) {
	a := C.struct_ibv_flow_attr{_type: uint32(attr.Type), priority: C.uint16_t(attr.Priority),
		num_of_specs: C.uint8_t(len(specs)), port: C.uint8_t(attr.Port), flags: C.uint32_t(attr.Flags)}
	b := copyStruct(&a)
	for i, s := range specs {
		one := specBytes(s)
		if one == nil {
			return nil, fmt.Errorf("specification %d is a %T, not one of the types of FlowSpec", i, s)
		}
		b = append(b, one...)
	}
	binary.NativeEndian.PutUint16(b[unsafe.Offsetof(a.size):], uint16(len(b)))
	return b, nil
}

// copyStruct returns the bytes of a copy of a structure. Go leaves arbitrary bytes in the padding
// between fields. In the copy these bytes are 0.
func copyStruct[T any](p *T) []byte {
	b := make([]byte, unsafe.Sizeof(*p))
	copyFields(b, unsafe.Slice((*byte)(unsafe.Pointer(p)), len(b)), reflect.TypeFor[T]())
	return b
}

func copyFields(to, from []byte, t reflect.Type) {
	if t.Kind() != reflect.Struct {
		copy(to[:t.Size()], from)
		return
	}
	for i := range t.NumField() {
		if f := t.Field(i); f.Name != "_" { // cgo's name for padding
			copyFields(to[f.Offset:], from[f.Offset:], f.Type)
		}
	}
}

// specOf returns the bytes of a specification, with its type and size set.
func specOf[T any](p *T, typ FlowSpecType, inner bool) []byte {
	if inner {
		typ |= FlowSpecInner
	}
	b := copyStruct(p)
	binary.NativeEndian.PutUint32(b, uint32(typ))
	binary.NativeEndian.PutUint16(b[4:], uint16(len(b)))
	return b
}

// be16 and be32 turn a number into network byte order.
func be16(v uint16) C.uint16_t {
	var b [2]byte
	binary.BigEndian.PutUint16(b[:], v)
	return C.uint16_t(binary.NativeEndian.Uint16(b[:]))
}

func be32(v uint32) C.uint32_t {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], v)
	return C.uint32_t(binary.NativeEndian.Uint32(b[:]))
}

func ip4(a [4]byte) C.uint32_t { return C.uint32_t(binary.NativeEndian.Uint32(a[:])) }

func cBytes[T any](b []byte) T { return *(*T)(unsafe.Pointer(unsafe.SliceData(b))) }

// specBytes returns the C structure of a specification, or nil if s has none of the types that the
// comment of FlowSpec lists.
func specBytes(s FlowSpec) []byte {
	switch s := s.(type) {
	case FlowEth:
		f := func(f FlowEthFields) C.struct_ibv_flow_eth_filter {
			return C.struct_ibv_flow_eth_filter{dst_mac: cBytes[[6]C.uint8_t](f.Dst[:]), src_mac: cBytes[[6]C.uint8_t](f.Src[:]),
				ether_type: be16(f.EtherType), vlan_tag: be16(f.VLAN)}
		}
		return specOf(&C.struct_ibv_flow_spec_eth{val: f(s.Val), mask: f(s.Mask)}, FlowSpecEth, s.Inner)
	case FlowIPv4:
		f := func(f FlowIPv4Fields) C.struct_ibv_flow_ipv4_filter {
			return C.struct_ibv_flow_ipv4_filter{src_ip: ip4(f.Src), dst_ip: ip4(f.Dst)}
		}
		return specOf(&C.struct_ibv_flow_spec_ipv4{val: f(s.Val), mask: f(s.Mask)}, FlowSpecIPv4, s.Inner)
	case FlowIPv4Ext:
		f := func(f FlowIPv4ExtFields) C.struct_ibv_flow_ipv4_ext_filter {
			return C.struct_ibv_flow_ipv4_ext_filter{src_ip: ip4(f.Src), dst_ip: ip4(f.Dst), proto: C.uint8_t(f.Proto),
				tos: C.uint8_t(f.TOS), ttl: C.uint8_t(f.TTL), flags: C.uint8_t(f.Flags)}
		}
		return specOf(&C.struct_ibv_flow_spec_ipv4_ext{val: f(s.Val), mask: f(s.Mask)}, FlowSpecIPv4Ext, s.Inner)
	case FlowIPv6:
		f := func(f FlowIPv6Fields) C.struct_ibv_flow_ipv6_filter {
			return C.struct_ibv_flow_ipv6_filter{src_ip: cBytes[[16]C.uint8_t](f.Src[:]),
				dst_ip: cBytes[[16]C.uint8_t](f.Dst[:]), flow_label: be32(f.FlowLabel), next_hdr: C.uint8_t(f.NextHdr),
				traffic_class: C.uint8_t(f.TrafficClass), hop_limit: C.uint8_t(f.HopLimit)}
		}
		return specOf(&C.struct_ibv_flow_spec_ipv6{val: f(s.Val), mask: f(s.Mask)}, FlowSpecIPv6, s.Inner)
	case FlowTCP:
		return portBytes(s.Val, s.Mask, FlowSpecTCP, s.Inner)
	case FlowUDP:
		return portBytes(s.Val, s.Mask, FlowSpecUDP, s.Inner)
	case FlowESP:
		f := func(f FlowESPFields) C.struct_ibv_flow_esp_filter {
			return C.struct_ibv_flow_esp_filter{spi: be32(f.SPI), seq: be32(f.Seq)}
		}
		return specOf(&C.struct_ibv_flow_spec_esp{val: f(s.Val), mask: f(s.Mask)}, FlowSpecESP, s.Inner)
	case FlowVXLAN:
		return specOf(&C.struct_ibv_flow_spec_tunnel{val: C.struct_ibv_flow_tunnel_filter{tunnel_id: be32(s.Val)},
			mask: C.struct_ibv_flow_tunnel_filter{tunnel_id: be32(s.Mask)}}, FlowSpecVXLAN, false)
	case FlowGRE:
		f := func(f FlowGREFields) C.struct_ibv_flow_gre_filter {
			return C.struct_ibv_flow_gre_filter{c_ks_res0_ver: be16(f.Flags), protocol: be16(f.Protocol), key: be32(f.Key)}
		}
		return specOf(&C.struct_ibv_flow_spec_gre{val: f(s.Val), mask: f(s.Mask)}, FlowSpecGRE, false)
	case FlowMPLS:
		return specOf(&C.struct_ibv_flow_spec_mpls{val: C.struct_ibv_flow_mpls_filter{label: be32(s.Val)},
			mask: C.struct_ibv_flow_mpls_filter{label: be32(s.Mask)}}, FlowSpecMPLS, s.Inner)
	case FlowTag:
		return specOf(&C.struct_ibv_flow_spec_action_tag{tag_id: C.uint32_t(s.Tag)}, FlowSpecActionTag, false)
	case FlowCount:
		return specOf(&C.struct_ibv_flow_spec_counter_action{counters: s.Counters.c}, FlowSpecActionCount, false)
	case FlowDrop:
		return specOf(&C.struct_ibv_flow_spec_action_drop{}, FlowSpecActionDrop, false)
	}
	return nil
}

func portBytes(val, mask FlowPorts, typ FlowSpecType, inner bool) []byte {
	f := func(f FlowPorts) C.struct_ibv_flow_tcp_udp_filter {
		return C.struct_ibv_flow_tcp_udp_filter{dst_port: be16(f.Dst), src_port: be16(f.Src)}
	}
	return specOf(&C.struct_ibv_flow_spec_tcp_udp{val: f(val), mask: f(mask)}, typ, inner)
}
