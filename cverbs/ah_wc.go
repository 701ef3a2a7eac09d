//go:build linux && cgo

package cverbs

// #include "shim.h"
import "C"

import (
	"fmt"
	"syscall"
	"unsafe"
)

// AHAttrFromWC returns the path back to the sender of a datagram. wc is the completion of the
// receive, and the parameter port is the device port that received the datagram. grh is the first
// 40 bytes of the receive buffer; it may be nil if wc.Flags lacks WCGRH.
//
// A datagram to a multicast group has no path back, because the group is not an address of the
// port. Errors: EINVAL if wc is not a successful completion of a receive, if grh is short or is not
// a valid header, or if the header's destination is not an address of the port.
//
// Implements: ibv_init_ah_from_wc.
func (c *Context) AHAttrFromWC(port uint8, wc *WC, grh []byte) (AHAttr, error) {
	c = orZero(c)
	const verb = "ibv_init_ah_from_wc"
	if !c.life.enter() {
		return AHAttr{}, ErrClosed
	}
	defer c.life.leave()
	if err := checkDatagram(verb, wc, grh); err != nil {
		return AHAttr{}, err
	}
	w, h := cDatagram(wc, grh)
	var a C.struct_ibv_ah_attr
	if rc, err := C.ibv_init_ah_from_wc(c.c, C.uint8_t(port), &w, &h, &a); rc != 0 {
		return AHAttr{}, datagramError(verb, rc, err, port)
	}
	return goAHAttr(&a), nil
}

// CreateAHFromWC creates an address handle for a reply to a datagram. In the reply,
// SendWR.RemoteQPN is wc.SrcQP. RemoteQKey is the Q_Key of the sender's queue pair, which the
// completion does not contain. Arguments and errors are those of Context.AHAttrFromWC.
//
// Implements: ibv_create_ah_from_wc.
func (p *PD) CreateAHFromWC(port uint8, wc *WC, grh []byte) (*AH, error) {
	p = orZero(p)
	const verb = "ibv_create_ah_from_wc"
	a := &AH{}
	if err := a.life.begin(kindAH, &p.life); err != nil {
		return nil, err
	}
	if err := checkDatagram(verb, wc, grh); err != nil {
		a.life.abort()
		return nil, err
	}
	w, h := cDatagram(wc, grh)
	token, err := C.cv_ah_create_from_wc(p.c, &w, &h, C.uint8_t(port))
	if token == 0 {
		a.life.abort()
		return nil, datagramError(verb, -1, err, port)
	}
	a.token = uint64(token)
	a.life.open()
	return a, nil
}

var _ = [1]struct{}{}[C.sizeof_struct_ibv_grh-GRHSize] // does not compile if the sizes differ

func checkDatagram(verb string, wc *WC, grh []byte) error {
	switch {
	case wc == nil:
		return badArg(verb, "wc is nil")
	case wc.Status != WCSuccess:
		return badArg(verb, "wc is a completion with %v: it has no sender", wc.Status)
	case wc.Opcode&WCRecv == 0:
		return badArg(verb, "wc is a completion of %v, not of a receive", wc.Opcode)
	case wc.Flags&WCGRH != 0 && len(grh) < GRHSize:
		return badArg(verb, "grh has %d bytes, the header has %d", len(grh), GRHSize)
	}
	return nil
}

func cDatagram(wc *WC, grh []byte) (w C.struct_ibv_wc, h C.struct_ibv_grh) {
	w = *(*C.struct_ibv_wc)(unsafe.Pointer(wc))
	copy((*[GRHSize]byte)(unsafe.Pointer(&h))[:], grh)
	return w, h
}

func datagramError(verb string, rc C.int, err error, port uint8) error {
	e := rcError(verb, rc, err).(*Error)
	if err == nil && rc == -1 || e.Errno == syscall.EPROTONOSUPPORT { // libibverbs may set no errno
		e.Errno = syscall.EINVAL
	}
	e.Advice = fmt.Sprintf("the header's destination must be an address of port %d, not a multicast group", port)
	return e
}
