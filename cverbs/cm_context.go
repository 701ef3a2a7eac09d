//go:build linux && cgo

package cverbs

// #include "shim.h"
import "C"

import (
	"sync"
	"syscall"
)

// cmContexts are the Contexts that CMID.Context has returned.
var cmContexts struct {
	mu sync.Mutex
	m  map[*C.struct_ibv_context]*Context
}

// Context returns the device context that librdmacm opened for the id's device. The protection
// domain, the queues and the other objects that CMID.CreateQP uses must belong to this context. A
// queue pair that the program configures with InitQPAttr may belong to any context of the device.
//
// librdmacm owns the context, so Close returns ErrInUse. The context stays open until the process
// ends. Errors: EINVAL before the id is bound to a device.
//
// Implements: rdma_get_devices, rdma_free_devices.
func (id *CMID) Context() (*Context, error) {
	id = orZero(id)
	if !id.life.enter() {
		return nil, ErrClosed
	}
	defer id.life.leave()
	v := id.c.verbs
	if v == nil {
		return nil, badArg("rdma_cm_id.verbs", notBound)
	}
	cmContexts.mu.Lock()
	defer cmContexts.mu.Unlock()
	if c := cmContexts.m[v]; c != nil {
		return c, nil
	}
	// This list is never freed. While a list exists librdmacm keeps the contexts in it, even the
	// context of an unplugged device.
	if list, err := C.cv_cm_devices(); list == nil {
		return nil, &Error{Verb: "rdma_get_devices", Errno: errnoOf(err)}
	}
	c, err := newContext(v, C.GoString(C.ibv_get_device_name(v.device)))
	if err != nil {
		return nil, err
	}
	c.borrows = true
	c.life.state.Add(openBit) // open, but not counted by Live, because it never closes
	if cmContexts.m == nil {
		cmContexts.m = map[*C.struct_ibv_context]*Context{}
	}
	cmContexts.m[v] = c
	return c, nil
}

// CreateQP creates a queue pair on the id. librdmacm then moves the queue pair through its states.
// pd must belong to the id's Context. Close the queue pair before the id. Errors: EINVAL if the id
// has a queue pair already or is not bound to a device, or if pd belongs to another context.
//
// Implements: rdma_create_qp, rdma_create_qp_ex.
func (id *CMID) CreateQP(pd *PD, init QPInit) (*QP, error) {
	id = orZero(id)
	const verb = "rdma_create_qp"
	if pd == nil {
		return nil, badArg(verb, "pd is nil")
	}
	q, attr, err := newQP(verb, pd, &id.life, &init)
	if err != nil {
		return nil, err
	}
	id.mu.Lock()
	defer id.mu.Unlock()
	var errno error = syscall.EINVAL
	rc := C.int(-1)
	switch {
	case id.c.verbs == nil:
		err = badArg(verb, notBound)
	case id.c.verbs != pd.ctx.c:
		err = badArg(verb, "the domain is not of the id's Context")
	case id.c.qp != nil:
		err = badArg(verb, "the id has a queue pair already: close it first")
	default:
		if more := init.more(); more == nil {
			rc, errno = C.rdma_create_qp(id.c, pd.c, attr)
		} else {
			rc, errno = C.cv_cm_create_qp_ex(id.c, pd.c, attr, more)
		}
		if rc != 0 {
			err = createQPError(verb, errnoOf(errno), &init)
		}
	}
	if err != nil {
		q.discard()
		return nil, err
	}
	q.destroy = id.destroyQP
	q.finish(id.c.qp, goCap(&attr.cap))
	return q, nil
}

func (id *CMID) destroyQP() C.int {
	id.mu.Lock()
	defer id.mu.Unlock()
	id.ch.mu.Lock()
	defer id.ch.mu.Unlock()
	return C.cv_cm_destroy_qp(id.c)
}
