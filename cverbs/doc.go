// Package cverbs is a Go binding of libibverbs and librdmacm: devices, protection domains, memory
// regions and windows, completion queues and channels, queue pairs, shared receive queues, address
// handles, asynchronous events, and the RDMA connection manager. Programs import it directly;
// package udat's verbs fabric is built on it.
//
// # Objects, in the order in which a program meets them
//
// [OpenDevice] returns a [Context]. A [PD] is a protection domain: only memory and queue pairs of
// one domain work together. An [MR] is registered memory. A [CQ] holds completions, and a
// [CompChannel] wakes goroutines that wait for completions. A [QP] is a queue pair.
//
// [CMID]s connect queue pairs by address, as rdma_cm does, and an [EventChannel] delivers their
// events. librdmacm moves a queue pair of [CMID.CreateQP] through its states; with
// [CMID.InitQPAttr] the program moves the queue pair itself. [CMID.JoinMulticast] joins a multicast
// group.
//
// [SRQ], [MW] and [AH] are shared receive queues, memory windows and address handles. A [TD] is a
// thread domain, for queues that one thread at a time uses. examples/verbs is a complete client and
// server.
//
// # Data path
//
// [SendWR], [RecvWR], [SGE] and [WC] are flat structs with the same layout in Go and in C. A batch
// crosses into C once, with one doorbell for every 128 requests. Posts and polls do not allocate.
// Immediate data is an integer in host byte order on both sides; the binding converts it.
//
// [QPInit.SendOps] selects an extended queue pair. [Context.CreateCQEx] creates an extended
// completion queue, whose completions contain further fields, such as timestamps ([WCEx]), if the
// device supports them. Batches on extended queues, too, cross into C once.
//
// # Blocking
//
// Waits for completion channels, event channels and asynchronous events park in the Go runtime's
// poller. A parked wait costs a goroutine, not an operating system thread. A wait ends at its
// deadline, when its context ends, and on Wake and Close.
//
// One exception: if the last Wait of a completion channel took less than 4 ms, the next one first
// blocks its thread for up to 4 ms, because the kernel wakes a thread faster than Go's poller wakes
// a goroutine. At most min(GOMAXPROCS/2, 16) waiters block a thread at once.
//
// # Lifetime
//
// Every object has a Close, which any goroutine may call at any time. Close waits for the calls in
// flight on the object, then destroys the object. While other objects use the object, Close
// destroys nothing and returns [ErrInUse] with their kinds. Every call on a closed object, a second
// Close included, returns [ErrClosed], or EINVAL if no object would accept its arguments. A nil
// object and the zero value count as closed. If the kernel refuses to destroy the object, Close
// returns the error. The object then remains open, except a [Context] or a channel, which counts as
// closed. Calls that other goroutines made during this Close have failed with ErrClosed. A second
// Close waits for the first one, and tries again if the object is still open. The garbage collector
// closes nothing.
//
// # Concurrency
//
// All functions and methods may be called from any number of goroutines at once, with three
// exceptions. The caller must serialize the use of queues of a thread domain
// ([PD.AllocParentDomain]). The caller must serialize the use of a completion queue with
// [CQSingleThreaded]. During [MR.Rereg] nothing else may use the region. Posts to any other queue
// are serialized by the driver. The memory of a posted request belongs to the device until the
// completion of the request has been polled.
//
// # Errors
//
// The error of a failed verb is an *[Error] with the verb, the errno, and advice; errors.Is(err,
// syscall.ENOMEM) works. The outcome of a work request is the [WCStatus] of its completion.
// [CMEvent.Err] returns why a connection failed. After an error completion the queue pair is in
// error, and all posted requests complete as flushed.
//
// # Freeing
//
// Close objects in the reverse order of creation: queue pairs before their id, queues, memory and
// domain; completion queues before their channel; everything before the Context.
//
// # What is not here
//
// docs/verbs.md lists every function. These parts of libibverbs are missing: tag matching, IPsec
// actions of flows (ibv_create_flow_action_esp), allocators of a parent domain, and the calls of
// one vendor (mlx5dv, efadv). These parts of librdmacm are missing: rsockets, and the calls on
// synchronous ids (rdma_get_request, rdma_post_send), which block without a limit; use an
// [EventChannel] instead.
//
// # Memory
//
// [PD.RegMR] pins Go memory until the region is closed. An [SGE] contains a plain address. The
// memory at that address must be registered. With [SendInline] it need not be registered, but must
// not move during the call. The binding checks that a request's segments are inside the slice of
// segments. Like libibverbs it cannot check addresses.
//
// # Platforms
//
// The binding needs linux and cgo, and no headers: it declares the part of rdma-core's ABI that it
// uses. The first call that needs no object, such as [OpenDevice] or [CreateEventChannel], opens
// libibverbs.so.1 and librdmacm.so.1. If they are not installed, this call returns
// [ErrNotSupported]. [Libraries] returns the files that were opened. On other platforms the same
// exported API exists without its documentation (see pkg.go.dev), and every constructor returns
// [ErrNotSupported].
//
//go:generate go run ./internal/genstub
package cverbs
