// Package udat implements DAT 1.2 (uDAPL): endpoints that are connected in pairs, event
// dispatchers, registered memory in protection zones, and service points that listen, over any RDMA
// device of this host, over TCP (the device "tcp"), or inside this process ("mem0"). Programs
// import this package. Package rdmanet, on top of it, has net.Conn; package cverbs, below it, has
// the verbs themselves.
//
// # Objects, in the order in which a program meets them
//
// [Open] returns an adapter, an [IA], which makes all other objects; [Providers] lists what can be
// opened. A [PZ] is a zone in which endpoints and memory reach each other. An [LMR] is registered
// memory: [IA.AllocLMR] returns some, [IA.CreateLMR] registers a slice of the program's. An [EVD]
// queues events. An [EP] is one end of a connection. A [PSP] listens on a port, the connection
// qualifier, and makes a [CR] of each connection request, which [CR.Accept] connects with an
// endpoint. Later come an [SRQ], a receive queue that endpoints share, an [RMR], a window that
// opens part of a region to peers for a time, a [CNO], which waits for several dispatchers, and an
// [RSP], which listens for one connection.
//
// Names follow uDAPL: dat_ep_post_rdma_read is [EP.PostRDMARead], dat_evd_create is [IA.CreateEVD].
// The last line of each comment names the call that is implemented, or says that it is an
// extension. The program is called the Consumer, as in DAT.
//
// # Operations
//
// A post hands work to the device and returns at once. Its completion is an [Event] on the
// endpoint's dispatcher, with the cookie of the post and a [DTOStatus]; [EVD.Wait],
// [EVD.WaitContext] and [EVD.Dequeue] take it. A failed operation breaks its connection: work in
// flight completes as flushed, then comes the event with the reason why the connection ended.
//
// With [CompletionSuppress] a successful request makes no event; a later request of the endpoint
// that completes proves it done. Suppressed requests keep their places until then, and the library
// asks for a completion itself after half of MaxRequestDTOs: make that twice what is in flight.
//
// # Receives
//
// Each Send takes one receive of the peer, in the order of posting. Post receives before Connect or
// Accept, so that the first message finds one, and post each again as soon as its data has been
// used. A Send that finds none is retried by the device for ever (receiver not ready, RNR): a
// forgotten receive looks like a peer that hangs. [WithRNRRetry] makes it an error. On iWARP a
// missing receive ends the connection.
//
// # Memory
//
//   - The memory of a posted request may be read, not written, until its completion has been taken:
//     the device may send it again. The memory of a receive or of an RDMA read belongs to the
//     device until then.
//   - Memory that peers may write or read changes at any time. Read what a peer writes only after
//     an event has proved it: a receive that completes proves all that the peer posted on the same
//     endpoint before its Send. Or poll a word with [LMR.LoadUint64], whose comment says what that
//     proves.
//   - An RDMA read promises no order between its bytes. A reader of memory that its owner stores
//     into needs a checksum, as in examples/kv.
//   - Go's race detector does not see the device. Never let a store of the program and the device's
//     meet in the same bytes.
//   - Data from a peer is hostile until checked: lengths in messages, [RMRTriplet]s, private data.
//
// # Connections
//
// Connect and Accept carry private data: up to MaxPrivateDataSize bytes, of which 56 work on every
// fabric. From a peer that is no program of this library it comes padded with zeroes
// ([Event.PrivateDataPadded]). [RMRTriplet.MarshalBinary] returns 20 bytes.
//
// [EP.Disconnect] begins the end of a connection. CloseGraceful first completes the requests in
// flight, CloseAbrupt flushes them; receives are flushed in both. Both ends then see DISCONNECTED,
// after their completions: the peer gets all messages that were sent before a graceful one, and
// need not disconnect itself. A connection that fails ends with BROKEN. The endpoint can be used
// again after [EP.Reset].
//
// # Vanished peers
//
// A process that ends, however it ends, disconnects: the kernel sends the message, again if it is
// lost. If a host or a link vanishes, or a host restarts, nobody reports it. The device then gives
// up a request after [WithRetry] attempts: soft-RoCE after 16 s. An idle connection has no
// requests, so the keep-alive of [WithKeepAlive] sends one; it breaks a connection whose device
// does not give up within 3 intervals, later by a second for each 4 KiB in flight.
//
// A Send may wait for a receive for ever while the peer's device has the connection. If the peer's
// device has lost it, only this end's device can notice, by its retries: with 7 retries soft-RoCE
// never does. On iWARP the kernel's TCP decides, within net.ipv4.tcp_retries2: 15 minutes by
// default.
//
// # Freeing
//
// The Consumer frees what it makes, in an order that leaves nothing in use: service points,
// endpoints, then receive queues, windows, memory, dispatchers, notification objects, zones, and
// the adapter. An object in use is not freed ([ErrInvalidState]). Wait for DISCONNECTED before
// [EP.Free] and [IA.Close], which end a connection at once and lose what has not been sent.
// [IA.Close] with [CloseAbrupt] destroys everything. The garbage collector frees none of it.
//
// # Errors
//
// Errors are of type *[Error], with the type and subtype of DAT and the fabric's own cause:
// errors.Is(err, [ErrInvalidState]) and errors.Is(err, syscall.ENOMEM) both work. [Event.Err] says
// why there is no connection. Every method of a handle that is nil, zero or freed returns
// [ErrInvalidHandle], or zero values if it returns no error. docs/errors.md lists what newcomers
// meet.
//
// # Concurrency
//
// All functions and methods are safe for concurrent use, Free and Close too. One call at a time may
// be blocked in the Wait of a dispatcher; use a dispatcher for each goroutine that waits. Posts to
// one endpoint go out in the order in which the calls lock the endpoint.
//
// # Polling
//
// [EVD.Wait] polls for up to 50 us ([WithSpin]) and then parks its goroutine: most programs need no
// more. A program that polls by itself should use [EVD.DequeueSpin] with 16 polls or more in each
// call, which yields to Go's scheduler when it must. A loop around [EVD.Dequeue], or one that only
// posts, must call runtime.Gosched every few milliseconds, or the runtime interrupts it and other
// goroutines wait. Leave at least one processor (GOMAXPROCS) without a polling goroutine, for the
// garbage collector and for what the program does besides. A process that is bound to one processor
// should set GOMAXPROCS to 2: docs/waiting.md has the figures.
package udat
