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
// grants the peer credit as its program reads. Write copies into a send ring; ReadFrom and WriteTo
// do not copy once more. Small writes go out at once; while many are in flight they are coalesced.
// If the peer does not read, Write blocks. [Conn.CloseWrite] ends one direction; deadlines work as
// in package net and also end calls that are blocked. TLS, HTTP and gRPC run on top as on any
// net.Conn: see examples/http.
//
// # Messages and regions
//
// [Messages] are a connection whose SendMsg and RecvMsg keep the bounds of messages. A [Region] is
// memory of the program that is registered for a connection. Its [Remote], sent in a message, lets
// the peer read or write that memory by [Conn.ReadRemote] and [Conn.WriteRemote]. This end is not
// notified of that: the peer sends a message after the operation. [Conn.WriteRegion]
// sends a region on the stream without a copy.
//
// # Devices
//
// The device is that of the route to the peer, or [Dialer].Device. Tests, and hosts without RDMA
// devices, have "mem0", which connects within one process. The package never uses TCP, unless
// [Dialer].Fallback or [ListenConfig].Fallback allows it; that function receives the reason. Ports
// are those of the RDMA connection manager: TCP may use the same number.
//
// # Bounds
//
// A connection locks ReadBuffer + WriteBuffer bytes, 256 KiB by default, and 2 KiB more. It has
// about 16 KiB of Go memory besides, what the device keeps for its queues, and no goroutine: a
// blocked call waits for events itself, of all connections of its listener, or of all that were
// dialed. If several calls are blocked, or none, one goroutine does. Nothing polls while nothing
// happens. A silent peer is probed every [Dialer].KeepAlive and is dead after three probes: with
// the default, blocked calls end within a minute. Dial ends after 30 seconds or with its context.
// Close waits at most 5 seconds for what was written to reach the peer.
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
