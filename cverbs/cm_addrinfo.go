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

// resolving is a semaphore that limits the number of threads that look up names.
var resolving = make(chan struct{}, 16)

// GetAddrInfo looks up a node and a service, and returns addresses for CreateEP. The parameter node
// is a host name or an address, and the parameter service is a service name or a port number. One
// of the two may be empty. An empty node with hints.Passive stands for all addresses of this host.
// If Type, PortSpace, Family or Src of hints are not zero, they limit the results. GetAddrInfo does
// not look up routes; CreateEP and ResolveRoute do.
//
// GetAddrInfo returns when ctx ends. The look-up then continues in its thread until the resolver
// gives up. At most 16 look-ups run at once, and further callers wait. Errors: ENOENT for an
// unknown name or service; EAGAIN if no name server answered; EINVAL for hints that exclude each
// other; context.Cause(ctx) after ctx has ended; the errors of CreateEventChannel.
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
	// librdmacm looks for devices in its first call. That call must run on the device thread
	// (devices.c). CreateEventChannel makes the first call there.
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
	case C.EAI_NONAME, C.EAI_SERVICE, -5, -9: // EAI_NODATA and EAI_ADDRFAMILY
		e.Errno = syscall.ENOENT
	default:
		e.Errno = syscall.EINVAL
	}
	return e
}

// CreateEP creates an id from one result of GetAddrInfo. The id reports its events to ch. A passive
// id is bound to info.Src; call Listen next. For any other id CreateEP resolves the address and the
// route, and the id is in the same state as after ROUTE_RESOLVED; call CreateQP and Connect next.
// Each of the two resolutions may block a thread for up to 2 s, and cannot be interrupted. Programs
// that must not block call CreateID, ResolveAddr and ResolveRoute instead. Errors: as BindAddr;
// ETIMEDOUT, ENETUNREACH or EHOSTUNREACH if info.Dst cannot be reached; EMFILE if fewer than 8
// descriptors are free.
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
		// librdmacm returns ENOMEM for every failure to create its own event channel.
		if syscall.Errno(rc) == syscall.ENOMEM && spareFiles() != nil {
			rc = C.int(syscall.EMFILE)
		}
		return nil, addrError(rcError(verb, rc, nil), at)
	}
	// The id is still synchronous: its calls would block without a limit. Migration to a channel
	// makes it asynchronous.
	if rc := C.cv_cm_migrate(v, ch.c); rc != 0 {
		C.rdma_destroy_ep(v)
		id.life.abort()
		return nil, rcError("rdma_migrate_id", rc, nil)
	}
	id.open(v)
	if info.Passive {
		id.step.Store(uint32(cmBindAddr))
	} else {
		id.step.Store(uint32(cmRouteResolved))
	}
	return id, nil
}

// RAI_* flags of librdmacm.
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
