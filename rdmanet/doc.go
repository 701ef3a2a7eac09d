// Package rdmanet implements net.Conn and net.Listener over RDMA: streams over InfiniBand, RoCE or
// iWARP.
//
//	l, err := rdmanet.Listen("rdma", ":7000")
//	conn, err := l.Accept()
//
//	conn, err := rdmanet.Dial(ctx, "rdma", "192.0.2.7:7000")
//
// # Streams
//
// Each end of a connection has a ring of registered memory into which its peer writes by RDMA, and
// grants the peer credit as its program reads. Write copies into a send ring; WriteTo passes
// received data on without a copy. Small writes go out at once; while many are in flight they are
// coalesced. If the peer does not read, Write blocks. [Conn.CloseWrite] ends one direction;
// deadlines work as in package net and also end calls that are blocked. TLS, HTTP and gRPC run on
// top as on any net.Conn: see examples/http; docs/suites.md lists the tests of other projects that
// run over it.
//
// # Messages and regions
//
// [Messages] are a connection whose SendMsg and RecvMsg keep the bounds of messages. A [Region] is
// memory of the program that is registered for a connection. Its [Remote], sent in a message, lets
// the peer read or write that memory by [Conn.ReadRemote] and [Conn.WriteRemote], many pieces at a
// time and asynchronously by a [Batch], and use words of it atomically by [Conn.FetchAdd] and
// [Conn.CompareSwap], where the device can. This end is not notified of that, unless the peer
// sends a message after it, or a notice: [Conn.Notify]. [Conn.WriteRegion] sends a region on the
// stream without a copy, [Conn.ReadFunc] reads it without one.
//
// Connections in one [Zone] share [Memory] that is registered once; each [Grant] of it to a peer
// has its own rights and can be revoked.
//
// # Devices
//
// The device is that of the route to the peer, or [Dialer].Device. Tests, and hosts without RDMA
// devices, have "mem0", which connects within one process. The package uses TCP only if the program
// asks for it: with the device "tcp", which is RDMA over TCP, or with [Dialer].Fallback and
// [ListenConfig].Fallback, which receive the reason. Ports are those of the RDMA connection
// manager, and TCP may use the same number; on "tcp" they are TCP's.
//
// # Bounds
//
// A connection begins with 8 KiB of registered, locked memory. Each ring grows to ReadBuffer or
// WriteBuffer, 128 KiB by default, when its stream needs that; if the memory cannot be had the
// connection stays slow and a log entry says so. It has about 16 KiB of Go memory besides, what the
// device keeps for its queues, and no goroutine: a blocked call waits for events itself, of all
// connections of its dispatcher, of which there is one for 512 connections. If several calls are
// blocked, or none, one goroutine does.
//
// A silent peer is probed every [Dialer].KeepAlive and is dead after three probes, or when the
// device gives one up: with the default, blocked calls end within a minute. Dial ends after 30
// seconds or with its context, and tries again while the listener has too many requests. A listener
// answers up to [ListenConfig].Backlog requests that wait, and gives up peers that connect and say
// nothing: see SECURITY.md.
//
// # Closing
//
// Close does not lose what Write has taken while the peer lives. It waits a moment for the peer's
// device; the rest goes out in the background, as with TCP, but only while the process lives: one
// that ends right after Close calls [Drain] before, or [Conn.SetLinger]. Close every connection and
// every Listener: one that the program forgets is not collected. Inside a bubble of
// testing/synctest close all of them, and Drain, before the bubble ends.
//
// # Errors
//
// Errors are a [*net.OpError] around the cause: os.ErrDeadlineExceeded, net.ErrClosed,
// syscall.ECONNREFUSED, ECONNRESET, EPIPE, ETIMEDOUT or EHOSTUNREACH, with the error of package
// udat behind it, or [ErrNoDevice]. A peer that breaks the protocol ends its own connection, no
// other. What the peer sends is checked before it is used: sizes, credits and positions, not the
// bytes of the stream.
//
// # Concurrency
//
// All methods are safe for concurrent use. Reads take turns, and so do Writes; a Read and a Write
// run at the same time.
package rdmanet
