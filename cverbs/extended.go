//go:build linux && cgo

package cverbs

// #include "shim.h"
import "C"

import "math"

// The method more collects the attributes that need ibv_create_qp_ex or rdma_create_qp_ex. It
// returns nil if none of them is set.
func (i *QPInit) more() *C.struct_cv_qp_more {
	if i.SendOps == 0 && i.CreateFlags == 0 && i.MaxTSOHeader == 0 && i.RSS == nil {
		return nil
	}
	m := &C.struct_cv_qp_more{ops: C.uint64_t(i.SendOps), flags: C.uint32_t(i.CreateFlags),
		source_qpn: C.uint32_t(i.SourceQPN), tso: C.uint16_t(i.MaxTSOHeader)}
	if r := i.RSS; r != nil {
		m.table, m.hash_function, m.hash_fields = r.Table.c, C.uint8_t(r.Function), C.uint64_t(r.Fields)
		m.key_len = C.uint8_t(len(r.Key))
		for k, b := range r.Key {
			m.key[k] = C.uint8_t(b)
		}
	}
	return m
}

func (r *RSS) check(verb string) error {
	switch {
	case r == nil:
		return nil
	case r.Table == nil:
		return badArg(verb, "RSS: Table is nil")
	case len(r.Key) > math.MaxUint8:
		return badArg(verb, "RSS: Key has %d bytes, more than %d", len(r.Key), math.MaxUint8)
	}
	return nil
}
