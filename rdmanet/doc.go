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
// Each end of a connection has a ring of registered memory into which its peer writes by RDMA. It
// sends the peer credits as its program reads. Write copies into a send ring. WriteTo passes
// received data on without a copy. Small writes are sent at once, and coalesced while many are in
// flight. If the peer does not read, Write blocks. [Conn.CloseWrite] ends one direction; deadlines
// work as in package net, also for calls that are already blocked. TLS, HTTP and gRPC run over a
// connection as over any net.Conn: see examples/http. docs/suites.md lists the test suites of other
// projects that run over this package.
//
// # Messages and regions
//
// [Messages] sends and receives whole messages over a connection. A [Region] is memory of the
// program that is registered for a connection. The program sends the region's [Remote] to the peer
// in a message. The peer can then read and write the memory with [Conn.ReadRemote] and
// [Conn.WriteRemote], or with a [Batch] many pieces asynchronously. It can use [Conn.FetchAdd] and
// [Conn.CompareSwap] on words of the memory if the device has atomics. The program is not notified
// of such operations unless the peer sends a message or a notice ([Conn.Notify]) after them.
// [Conn.WriteRegion] writes a region to the stream without a copy, and [Conn.ReadFunc] reads the
// stream without a copy.
//
// Connections in one [Zone] share [Memory], which is registered once. Each [Grant] of it to a peer
// has its own rights and can be revoked.
//
// # Devices
//
// The route to the peer selects the device, unless [Dialer].Device names one. For tests, and on
// hosts without RDMA devices, there is the device "mem0", which connects within one process. The
// package uses TCP only if the program asks for it: with the device "tcp", which is RDMA over TCP,
// or with [Dialer].Fallback and [ListenConfig].Fallback, which are called with the reason. With
// Fallback a host without RDMA devices uses TCP for its own addresses too, and mem0 only if it is
// named. Ports are ports of the RDMA connection manager, and independent of the TCP ports. On the
// device "tcp" they are TCP ports.
//
// # Bounds
//
// A connection begins with 8 KiB of registered, locked memory. Each ring grows to ReadBuffer or
// WriteBuffer, by default 128 KiB, on TCP 512 KiB, when its stream needs it. If that memory cannot
// be registered, the connection stays slow, and the Logger reports it. In addition a connection
// uses about 16 KiB of Go memory and the memory of the device's queues. It has no goroutine. Up to
// 512 connections share a dispatcher, and a blocked call waits for the events of all of them. If
// several calls are blocked, or none, one goroutine of the dispatcher does.
//
// A connection probes a silent peer every [Dialer].KeepAlive. It ends after three unanswered
// probes, or when the device gives up sending one. With the default, blocked calls end within a
// minute. Dial ends after 30 seconds or with its context. It tries again while the listener has too
// many requests. A listener queues up to [ListenConfig].Backlog requests, and gives up peers that
// connect and send nothing: see SECURITY.md.
//
// # Closing
//
// Close does not lose data that Write has accepted, as long as the peer is alive. It waits for up
// to half a second for the peer's device. The rest is sent in the background, as with TCP, but only
// while the process runs. A process that exits right after Close must call [Drain] before it exits,
// or [Conn.SetLinger] before Close. Close every connection and every Listener, because the garbage
// collector does not free them. Inside a bubble of testing/synctest close all of them, and call
// Drain, before the bubble ends; a device that is open outside of the bubble must not be used in
// it.
//
// # Errors
//
// An error is a [*net.OpError] that wraps the cause. The cause is os.ErrDeadlineExceeded,
// net.ErrClosed, [ErrNoDevice], or one of syscall.ECONNREFUSED, ECONNRESET, EPIPE, ETIMEDOUT and
// EHOSTUNREACH, with an error of package udat in the chain if there is one. A peer that violates
// the protocol ends only its own connection. Sizes, credits and positions from a peer are checked
// before they are used; the bytes of the stream are not.
//
// # Concurrency
//
// All methods are safe for concurrent use. Concurrent Reads run one after the other, and so do
// concurrent Writes. A Read and a Write run at the same time.
package rdmanet
