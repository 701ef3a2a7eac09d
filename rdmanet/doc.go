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
// Each end of a connection has a ring of registered memory into which its peer writes by RDMA. As
// the program at one end reads, that end sends credits to its peer. Write copies into a send ring.
// WriteTo passes received data on without a copy. Small writes are sent at once, but they are
// coalesced while many of them are in flight. If the peer does not read, Write blocks.
// [Conn.CloseWrite] ends one direction; deadlines work as in package net, also for calls that are
// already blocked. TLS, HTTP and gRPC run over a connection as over any net.Conn: see
// examples/http. docs/suites.md lists the test suites of other projects that run over this package.
//
// # Messages and regions
//
// [Messages] sends and receives whole messages over a connection. A [Region] is memory of the
// program that is registered for a connection. The program sends the region's [Remote] to the peer
// in a message. The peer can then read and write the memory with [Conn.ReadRemote] and
// [Conn.WriteRemote], and many pieces asynchronously with a [Batch]. If the device has atomics, the
// peer can also use [Conn.FetchAdd] and [Conn.CompareSwap] on words of the memory. The program is
// not notified of such operations unless the peer sends a message after them. A [RemoteMemory]
// reads and writes the peer's memory from slices that are not registered. [Conn.WriteRegion] writes
// a region to the stream without a copy. Calls for remote memory end with their contexts, and
// deadlines are for the stream.
//
// Connections in one [Zone] share [Memory], which is registered once. Each [Grant] of a Memory to a
// peer has its own rights and can be revoked.
//
// # Devices
//
// The route to the peer selects the device, unless [Dialer].Device names one. The device "mem0"
// connects within one process; it is for tests and for hosts without RDMA devices. The package uses
// TCP only if the program asks for it, in one of two ways. The device "tcp" is RDMA over TCP. With
// [Dialer].Fallback or [ListenConfig].Fallback set, DialContext and ListenNet use TCP connections
// of package net where no RDMA device is, and call Fallback with the reason. With Fallback a host
// without RDMA devices uses TCP for its own addresses too; it then uses mem0 only if Device names
// it. Ports are ports of the RDMA connection manager, and independent of the TCP ports. On the
// device "tcp" they are TCP ports.
//
// # Bounds
//
// A connection begins with 8 KiB of registered, locked memory. When its stream needs more, each
// ring grows to ReadBuffer or WriteBuffer, by default 128 KiB, or 512 KiB on TCP. If that memory
// cannot be registered, the ring stays small and the connection slow, and the Logger reports it. In
// addition a connection uses about 16 KiB of Go memory and the memory of the device's queues. A
// connection has no goroutine of its own. Up to 512 connections share a dispatcher, which handles
// their events. One of the blocked calls does this work. While no call does it, a goroutine of the
// dispatcher does. A device must allow queues of 33 requests (max_qp_wr) and completion queues of
// 66 entries (max_cqe).
//
// On an idle connection the device asks the peer's device every [Dialer].KeepAlive. With the
// default KeepAlive, calls that are blocked when the peer's host dies return within a minute. As
// over TCP, a peer whose process is stopped keeps its connection. Dial ends after 30 seconds or
// with its context. Dial tries again while the listener has too many requests. A listener queues up
// to [ListenConfig].Backlog requests, and gives up peers that connect and send nothing: see
// SECURITY.md.
//
// # Closing
//
// Close does not lose data that Write has accepted, as long as the peer is alive. Close waits up to
// half a second until the peer's device has the data. The rest is sent after Close has returned, as
// with TCP, but only while the process runs: unlike with TCP, no kernel sends it after the exit, so
// a process that exits without Close loses most of what Write has accepted. A program that writes
// ends with
//
//	conn.Close()
//	err := rdmanet.Drain(ctx)
//
// or calls [Conn.SetLinger] before Close. os.Exit and log.Fatal skip a deferred Close. Close every
// connection and every Listener, because the garbage collector does not free them. In a bubble of
// testing/synctest, close all of them and call Drain before the bubble ends, and use no device that
// is also open outside of the bubble.
//
// # Errors
//
// An error is a [*net.OpError] that wraps the cause. The cause is os.ErrDeadlineExceeded, the error
// of a context, net.ErrClosed, [ErrNoDevice], [ErrAccess], or one of syscall.EINVAL, ECONNREFUSED,
// ECONNRESET, EPIPE, ETIMEDOUT and EHOSTUNREACH. If an error of package udat is the reason, that
// error is in the chain, too. A peer that violates the protocol ends only its own connection.
// Sizes, credits and positions from a peer are checked before they are used; the bytes of the
// stream are not.
//
// # Concurrency
//
// All methods are safe for concurrent use. Concurrent Reads run one after the other, and so do
// concurrent Writes. A Read and a Write run at the same time.
package rdmanet
