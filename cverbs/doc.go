// Package cverbs is a Go binding of libibverbs and librdmacm: devices, protection domains, memory
// regions and windows, completion queues and channels, queue pairs, shared receive queues, address
// handles, asynchronous events, and the RDMA connection manager. Programs import it directly;
// package udat's verbs fabric is built on it.
//
// # Objects, in the order in which a program meets them
//
// [OpenDevice] returns a [Context]. A [PD] is a protection domain: its memory and queue pairs work
// together. An [MR] is registered memory. A [CQ] takes completions, and a [CompChannel] wakes
// goroutines that wait for them. A [QP] is a queue pair. An [EventChannel] and its [CMID]s connect
// queue pairs by address, as rdma_cm does; [CMID.CreateQP] makes one that librdmacm moves through
// its states, and [CMID.InitQPAttr] leaves that to the program. [CMID.JoinMulticast] joins a group
// of datagram queue pairs. [SRQ], [MW] and [AH] are shared receive queues, memory windows and
// address handles. A [TD] is a thread domain, for queues that one thread at a time uses.
// examples/verbs is a whole client and server.
//
// # Data path
//
// [SendWR], [RecvWR], [SGE] and [WC] are flat structs with the same layout in Go and in C. A batch
// crosses into C once, with one doorbell for every 128 requests. Posts and polls do not allocate.
// Immediate data is an integer in host byte order on both sides; the binding converts it.
//
// [QPInit.SendOps] makes an extended queue pair, [Context.CreateCQEx] an extended completion queue,
// whose completions have timestamps and more ([WCEx]), where the device has them. Their batches
// cross into C once, too.
//
// # Blocking
//
// Completion channels, event channels and asynchronous events wait in the Go runtime's poller. A
// parked waiter costs a goroutine, not an operating system thread. It ends at its deadline, when
// its context ends, and on Wake and Close.
//
// One exception: if the last Wait of a completion channel took less than 4 ms, the next one first
// blocks its thread for up to 4 ms, because the kernel wakes a thread faster than Go's poller wakes
// a goroutine. At most min(GOMAXPROCS/2, 16) waiters block a thread at once.
//
// # Lifetime
//
// Every object has a Close, for any goroutine at any time. It waits for the calls in flight on the
// object, then destroys it. While children use the object Close returns [ErrInUse] and names them.
// Every call on a closed object, a second Close included, returns [ErrClosed]; a nil object and the
// zero value count as closed. If the kernel refuses, the object is open as before; calls that came
// meanwhile have failed with ErrClosed. A Close that meets another waits for it, and tries too if
// that one has failed. The garbage collector closes nothing.
//
// # Concurrency
//
// All functions and methods may be called from any number of goroutines at once. Posts to one queue
// are serialized. The memory of a posted request belongs to the device until its completion has
// been polled. Two kinds of queue are the caller's to serialize: those of a thread domain
// ([PD.AllocParentDomain]), and completion queues with [CQSingleThreaded].
//
// # Errors
//
// Errors are of type *[Error], with the verb, the errno, and what to do about it: errors.Is(err,
// syscall.ENOMEM) works. A completion has a [WCStatus]; [CMEvent.Err] says why there is no
// connection. After an error completion the queue pair is in error, and everything posted completes
// as flushed.
//
// # Freeing
//
// Close in the reverse order of creation: queue pairs before their id, queues, memory and domain;
// completion queues before their channel; all of it before the Context.
//
// # What is not here
//
// docs/verbs.md has every function. Of libibverbs: tag matching, IPsec actions of flows
// (ibv_create_flow_action_esp), allocators of a parent domain, and the calls of one vendor (mlx5dv,
// efadv). Of librdmacm: rsockets, and the calls with synchronous ids (rdma_get_request,
// rdma_post_send), which wait without a bound: an [EventChannel] does it.
//
// # Memory
//
// [PD.RegMR] pins Go memory until the region is closed. An [SGE] carries a plain address. Its
// memory must be registered, or, with [SendInline], must not move during the call. The binding
// checks that segment ranges are inside the slices it receives; like libibverbs, it cannot check
// addresses.
//
// # Platforms
//
// The binding needs linux and cgo, and rdma-core's headers to be built. It opens libibverbs.so.1
// and librdmacm.so.1 when a program first asks for devices or an event channel. Where they are not
// installed that call returns [ErrNotSupported]; [Libraries] returns what was found. On other
// platforms the same exported API exists and every constructor returns [ErrNotSupported].
//
//go:generate go run ./internal/genstub
package cverbs
