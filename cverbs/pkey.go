//go:build linux && cgo

package cverbs

// #include "shim.h"
import "C"

import (
	"encoding/binary"
	"fmt"
	"syscall"
	"unsafe"
)

// QueryPKey returns one entry of a port's P_Key table, in host byte order.
//
// Implements: ibv_query_pkey.
func (c *Context) QueryPKey(port uint8, index int) (uint16, error) {
	c = orZero(c)
	if !c.life.enter() {
		return 0, ErrClosed
	}
	defer c.life.leave()
	if err := tableIndex("ibv_query_pkey", index); err != nil {
		return 0, err
	}
	var pkey C.uint16_t
	if rc, err := C.ibv_query_pkey(c.c, C.uint8_t(port), C.int(index), &pkey); rc != 0 {
		return 0, rcError("ibv_query_pkey", rc, err)
	}
	b := (*[2]byte)(unsafe.Pointer(&pkey))
	return binary.BigEndian.Uint16(b[:]), nil
}

// PKeyIndex returns the index of a P_Key in a port's table, for QPAttr.PKeyIndex. pkey is in host
// byte order. Errors: ENOENT if the table does not contain pkey, or if there is no such port.
//
// Implements: ibv_get_pkey_index.
func (c *Context) PKeyIndex(port uint8, pkey uint16) (int, error) {
	c = orZero(c)
	if !c.life.enter() {
		return 0, ErrClosed
	}
	defer c.life.leave()
	var key C.uint16_t
	b := (*[2]byte)(unsafe.Pointer(&key))
	binary.BigEndian.PutUint16(b[:], pkey)
	i := C.ibv_get_pkey_index(c.c, C.uint8_t(port), key)
	if i < 0 { // the library sets no errno
		return 0, &Error{Verb: "ibv_get_pkey_index", Errno: syscall.ENOENT,
			Advice: fmt.Sprintf("port %d has no P_Key %#04x", port, pkey)}
	}
	return int(i), nil
}
