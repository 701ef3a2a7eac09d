// Package cverbs is a Go binding of libibverbs and librdmacm: devices, protection domains, memory
// regions and windows, completion queues and channels, queue pairs, shared receive queues, address
// handles, asynchronous events, and the RDMA connection manager. Programs import it directly;
// package udat's verbs fabric is built on it.
//
// # Data path
//
// [SendWR], [RecvWR], [SGE] and [WC] are flat structs with the same layout in Go and in C. A batch
// crosses into C once, with one doorbell for every 128 requests. Posts and polls do not allocate.
// Immediate data is an integer in host byte order on both sides; the binding converts it.
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
// zero value count as closed. The garbage collector closes nothing.
//
// # Concurrency
//
// All functions and methods may be called from any number of goroutines at once. Posts to one queue
// are serialized. The memory of a posted request belongs to the device until its completion has
// been polled.
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
// The binding needs linux and cgo. On other platforms the same exported API exists and every
// constructor returns [ErrNotSupported].
//
//go:generate go run ./internal/genstub
package cverbs
