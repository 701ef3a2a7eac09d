// Package cverbs is a Go binding of libibverbs and librdmacm: devices, protection domains, memory regions and windows,
// completion queues and channels, queue pairs, shared receive queues, address handles, asynchronous events, and the RDMA
// connection manager.
//
// # Data path
//
// [SendWR], [RecvWR], [SGE] and [WC] are flat structs with the same layout in Go and in C. A whole batch crosses into C once and
// rings the doorbell once; nothing allocates. Immediate data is an ordinary integer in host byte order on both sides: the binding
// converts to and from network byte order in one place.
//
// # Blocking
//
// Completion channels, connection manager channels and the device's asynchronous event descriptor are non-blocking and
// registered with the Go runtime's poller. A parked waiter costs a goroutine, not an operating system thread, and obeys deadlines,
// contexts, Wake and Close. A completion channel whose last event came within 4 ms blocks its thread for as long before it parks: that
// wakes in about half the time. At most half of GOMAXPROCS, and 16, do so at once.
//
// # Lifetime
//
// Every object has a Close that may be called once, at any time, from any goroutine. It waits for calls in flight on that object, then
// destroys it. A parent that is still used by a child refuses with [ErrInUse] and says by what; a second Close returns [ErrClosed], and so
// does every other call on a closed object; a nil object, and the zero value, are closed ones. Nothing is closed by the garbage collector.
//
// # Concurrency
//
// All functions and methods may be called by any number of goroutines at once. Posts to one queue take turns. The memory of a posted
// request belongs to the device until its completion has been polled. Programs import the package, and package udat's fabric for devices.
//
// # Memory
//
// [PD.RegMR] pins the Go memory that it registers until the region is closed. An [SGE] carries a plain address: the memory that it
// names must be registered, or, with [SendInline], must stay where it is during the call. The binding checks the bounds
// of what it is given as slices; it cannot check addresses, and neither can libibverbs.
//
// # Platforms
//
// linux with cgo has the real thing. Everywhere else the same exported API exists and every constructor returns [ErrNotSupported].
//
//go:generate go run ./internal/genstub
package cverbs
