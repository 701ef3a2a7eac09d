//go:build linux && cgo

package cverbs

// #include "shim.h"
// #include <netdb.h>
import "C"

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"syscall"
	"unsafe"
)

// resolving bounds the threads that look up names.
var resolving = make(chan struct{}, 16)

// GetAddrInfo returns where a node and a service are: names, or an address and a port number. One
// of the two may be empty; a passive node may, for all addresses of this host. Fields of hints that
// are not zero limit the choice: Type and PortSpace, Family, Src. Routes are not looked up:
// CreateEP or ResolveRoute does that.
//
// GetAddrInfo returns when ctx ends. The look-up then goes on in its thread until the resolver
// gives up; at most 16 are under way, and further callers wait. Errors: ENOENT for an unknown name
// or service, EAGAIN if no name server answered, EINVAL for hints that exclude each other; the
// cause of the context's end; as CreateEventChannel.
//
// Implements: rdma_getaddrinfo, rdma_freeaddrinfo.
func GetAddrInfo(ctx context.Context, node, service string, hints AddrInfo) ([]AddrInfo, error) {
	const verb = "rdma_getaddrinfo"
	if strings.ContainsRune(node+service, 0) {
		return nil, badArg(verb, "node %q or service %q has a zero byte", node, service)
	}
	if node == "" && service == "" {
		return nil, badArg(verb, "node and service are empty")
	}
	h, err := hints.c(verb)
	if err != nil {
		return nil, err
	}
	// librdmacm looks for devices with its first call, which must be on their thread.
	ch, err := CreateEventChannel()
	if err != nil {
		return nil, err
	}
	ch.Close()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	select {
	case resolving <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	var all []AddrInfo
	done := make(chan error, 1)
	go func() {
		found, err := getAddrInfo(node, service, &h)
		all = found
		<-resolving
		done <- err
	}()
	select {
	case err := <-done:
		return all, err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func getAddrInfo(node, service string, hints *C.struct_cv_addrinfo) (all []AddrInfo, err error) {
	n, s := C.CString(node), C.CString(service)
	defer C.free(unsafe.Pointer(n))
	defer C.free(unsafe.Pointer(s))
	var found [16]C.struct_cv_addrinfo
	rc := C.cv_getaddrinfo(n, s, hints, &found[0], C.int(len(found)))
	if rc < 0 {
		return nil, addrInfoError(rc, node, service)
	}
	for i := range found[:rc] {
		all = append(all, goAddrInfo(&found[i]))
	}
	return all, nil
}

func addrInfoError(rc C.int, node, service string) error {
	e := &Error{Verb: "rdma_getaddrinfo", Errno: syscall.Errno(-rc)}
	e.Advice = fmt.Sprintf("node %q, service %q", node, service)
	if rc > C.CV_EAI {
		return e
	}
	code := rc - C.CV_EAI
	e.Advice += ": " + C.GoString(C.gai_strerror(code))
	switch code {
	case C.EAI_AGAIN:
		e.Errno = syscall.EAGAIN
	case C.EAI_MEMORY:
		e.Errno = syscall.ENOMEM
	case C.EAI_NONAME, C.EAI_SERVICE, -5, -9: // no address; no address of the family
		e.Errno = syscall.ENOENT
	default:
		e.Errno = syscall.EINVAL
	}
	return e
}

// CreateEP creates an id of one result of GetAddrInfo, which reports its later events to ch. A
// passive id is bound to Src: Listen is next. Another has its address and its route, as after
// ROUTE_RESOLVED: CreateQP and Connect are next. CreateEP waits for both, up to 2 s each, in a
// thread of the operating system; to be able to give up, use CreateID, ResolveAddr and
// ResolveRoute. Errors: as BindAddr; ETIMEDOUT, ENETUNREACH or EHOSTUNREACH if Dst cannot be
// reached; EMFILE without 8 free descriptors.
//
// Implements: rdma_create_ep.
func (ch *EventChannel) CreateEP(info AddrInfo) (*CMID, error) {
	ch = orZero(ch)
	const verb = "rdma_create_ep"
	at := info.Dst
	if info.Passive {
		at = info.Src
	}
	if !at.Addr().IsValid() {
		return nil, badArg(verb, "the address is not valid: Src of a passive id, else Dst")
	}
	if info.Type == 0 {
		info.Type = QPTypeRC
	}
	if info.PortSpace == 0 {
		return nil, badArg(verb, "PortSpace is 0")
	}
	c, err := info.c(verb)
	if err != nil {
		return nil, err
	}
	id := &CMID{ch: ch}
	if err := id.life.begin(kindCMID, &ch.life); err != nil {
		return nil, err
	}
	var v *C.struct_rdma_cm_id
	if rc := C.cv_create_ep(&c, &v); rc != 0 {
		id.life.abort()
		if syscall.Errno(rc) == syscall.ENOMEM && spareFiles() != nil { // librdmacm hides why it has no channel
			rc = C.int(syscall.EMFILE)
		}
		return nil, addrError(verb, rc, at)
	}
	// A synchronous id so far: its calls would wait without an end.
	if rc := C.cv_cm_migrate(v, ch.c); rc != 0 {
		C.rdma_destroy_ep(v)
		id.life.abort()
		return nil, rcError("rdma_migrate_id", rc, nil)
	}
	keepContext(v.verbs)
	id.open(v)
	return id, nil
}

// Flags of librdmacm.
const raiPassive, raiNumericHost, raiNoRoute, raiFamily = 1, 2, 4, 8

func (a *AddrInfo) c(verb string) (c C.struct_cv_addrinfo, err error) {
	c.flags, c.qp_type, c.port_space = raiNoRoute, C.uint32_t(a.Type), C.uint32_t(a.PortSpace)
	if a.Passive {
		c.flags |= raiPassive
	}
	if a.NumericHost {
		c.flags |= raiNumericHost
	}
	switch a.Family {
	case 0:
	case 4, 6:
		c.family = C.int32_t(a.Family)
		c.flags |= raiFamily
	default:
		return c, badArg(verb, "Family %d is not 0, 4 or 6", a.Family)
	}
	for _, x := range []struct {
		name string
		from netip.AddrPort
		to   *C.struct_cv_addr
	}{{"Src", a.Src, &c.src}, {"Dst", a.Dst, &c.dst}} {
		if !x.from.Addr().IsValid() {
			continue
		}
		if *x.to, err = cAddr(verb, x.name, x.from); err != nil {
			return c, err
		}
	}
	return c, nil
}

func goAddrInfo(c *C.struct_cv_addrinfo) AddrInfo {
	return AddrInfo{Passive: c.flags&raiPassive != 0, Type: QPType(c.qp_type), PortSpace: PortSpace(c.port_space),
		Src: goAddr(&c.src), Dst: goAddr(&c.dst)}
}
