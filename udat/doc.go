// Package udat implements DAT 1.2 (uDAPL), an interface to RDMA. It has endpoints that are
// connected in pairs, event dispatchers, registered memory in protection zones, and service points
// that listen for connections. They work over any RDMA device of this host, over TCP (the device
// "tcp"), and inside this process (the device "mem0"). Programs import this package. Package
// rdmanet implements net.Conn on top of it; package cverbs, below it, has the verbs themselves.
//
// # Objects, in the order in which a program meets them
//
// [Open] returns an adapter, an [IA], which makes all other objects; [Providers] lists the adapters
// that can be opened. A [PZ] is a protection zone: an endpoint can use only memory in its own zone.
// An [LMR] is registered memory: [IA.AllocLMR] allocates and registers new memory, [IA.CreateLMR]
// registers a byte slice of the program. An [EVD] is a queue of events. An [EP] is one end of a
// connection. A [PSP] listens on a port, the connection qualifier. It makes a [CR] for each
// connection request, and [CR.Accept] connects the requesting peer with an endpoint.
//
// Less common are an [SRQ], a receive queue that endpoints share; an [RMR], a window that opens
// part of a region to peers for a time; a [CNO], which waits for several dispatchers; and an [RSP],
// which listens for one connection.
//
// Names follow uDAPL: dat_ep_post_rdma_read is [EP.PostRDMARead], dat_evd_create is [IA.CreateEVD].
// Each comment ends with the uDAPL call that the function implements, or says that the function is
// an extension. The comments call the program the Consumer, as DAT does.
//
// # Operations
//
// A post hands an operation to the device and returns at once. When the operation completes, an
// [Event] with the cookie of the post and a [DTOStatus] is queued on the endpoint's dispatcher.
// [EVD.Wait], [EVD.WaitContext] and [EVD.Dequeue] return it. A failed operation breaks its
// connection: the work in flight completes with DTOErrFlushed, and the last event says why the
// connection ended.
//
// A request with [CompletionSuppress] makes no event if it succeeds. The Consumer knows that it is
// done when a later request of the endpoint completes. Until then the suppressed request counts as
// in flight. To limit their number the library asks the device for a completion, without an event,
// at the latest after half of MaxRequestDTOs suppressed requests in a row. Set MaxRequestDTOs to
// twice the number of requests that are to be in flight.
//
// # Receives
//
// Each Send consumes one receive of the peer, in the order in which the receives were posted. Post
// receives before Connect or Accept, so that the first message finds one. Post each receive again
// as soon as its data has been used. If a Send finds no receive (receiver not ready, RNR), the
// device retries it for ever: a receive that was not posted again looks like a peer that hangs.
// With [WithRNRRetry] such a Send fails instead. On iWARP a missing receive ends the connection.
//
// # Memory
//
//   - Do not write to the memory of a posted request until its event has been dequeued, because the
//     device may send the memory again; reading it is allowed. The memory of a receive or of an
//     RDMA read belongs to the device until then.
//   - Memory that peers may write changes at any time. Read what a peer has written only after an
//     event has proved that it is complete: when a receive completes, all that the peer posted on
//     the same endpoint before that Send has arrived. Or poll a word with [LMR.LoadUint64]; its
//     comment says what a loaded value proves.
//   - An RDMA read promises no order between its bytes. If the owner of the memory changes it
//     during the read, the reader needs a checksum to notice that; examples/kv has one.
//   - Go's race detector does not see what the device does. Never write to bytes that the device
//     may write to at the same time.
//   - Do not trust data from a peer until it is checked: lengths in messages, [RMRTriplet]s,
//     private data.
//
// # Connections
//
// Connect and Accept carry private data, at most MaxPrivateDataSize bytes; 56 bytes work on every
// fabric. If the peer's program does not use this library, its private data arrives padded with
// zeroes ([Event.PrivateDataPadded]). A triplet for the peer fits: [RMRTriplet.MarshalBinary]
// returns 20 bytes.
//
// [EP.Disconnect] begins the end of a connection. CloseGraceful completes the requests in flight
// first, CloseAbrupt flushes them; both flush the receives. Both ends then see DISCONNECTED after
// their completions, and the peer need not call Disconnect itself. After a graceful disconnect the
// peer has received all messages that were sent before it. A connection that fails ends with
// BROKEN. [EP.Reset] makes the endpoint usable again.
//
// # Vanished peers
//
// When a process ends, for whatever reason, the kernel disconnects its connections, and repeats the
// message if it is lost. If a host or a link vanishes, or a host restarts, no peer is notified. A
// device then gives up a request after [WithRetry] attempts; soft-RoCE needs 16 s for them. An idle
// connection has no request that could fail. Therefore the keep-alive ([WithKeepAlive]) sends a
// request. The keep-alive also breaks a connection if the device does not give up within 3
// intervals, plus a second for each 4 KiB in flight.
//
// A Send may wait for a receive for ever while the peer's device has the connection. If the peer's
// device has lost the connection, only this end's device can notice, by its retries; soft-RoCE with
// 7 retries never does. On iWARP the kernel's TCP gives up, within net.ipv4.tcp_retries2: 15
// minutes by default.
//
// # Freeing
//
// The Consumer frees all objects that it makes. Free the users of an object before the object:
// service points and endpoints, then receive queues, windows, memory, dispatchers, notification
// objects, zones, and last the adapter. Freeing an object in use returns [ErrInvalidState]. Wait
// for DISCONNECTED before [EP.Free] and [IA.Close], because both end a connection at once and lose
// the data that has not been sent. [IA.Close] with [CloseAbrupt] destroys all objects of the
// adapter. The garbage collector frees none of them.
//
// # Errors
//
// Errors are of type *[Error]. They have the type and subtype of DAT and wrap the fabric's own
// error: errors.Is(err, [ErrInvalidState]) and errors.Is(err, syscall.ENOMEM) both work.
// [Event.Err] says why a connection was not made or is broken. A method of a handle that is nil,
// zero or freed returns [ErrInvalidHandle], or zero values if it returns no error. docs/errors.md
// explains the errors that newcomers meet.
//
// # Concurrency
//
// All functions and methods are safe for concurrent use, Free and Close too. Only one call at a
// time may be blocked in the Wait of a dispatcher: give each goroutine that waits a dispatcher of
// its own. Posts to one endpoint go out in the order in which the calls lock the endpoint.
//
// # Polling
//
// [EVD.Wait] polls for up to 50 us ([WithSpin]) and then parks its goroutine; most programs need
// nothing else. A program that polls in a loop of its own should call [EVD.DequeueSpin] with 16
// polls or more, because that call yields to Go's scheduler when it must. A loop around
// [EVD.Dequeue], or a loop that only posts, must call runtime.Gosched every few milliseconds:
// otherwise other goroutines wait until the runtime interrupts the loop. Leave at least one
// processor (GOMAXPROCS) without a polling goroutine, for the garbage collector and the rest of the
// program. In a process that is bound to one processor set GOMAXPROCS to 2; docs/waiting.md has the
// figures.
package udat
