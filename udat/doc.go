// Package udat implements DAT 1.2 (uDAPL), an interface to RDMA. It has endpoints that are
// connected in pairs, event dispatchers, registered memory in protection zones, and service points
// that listen for connections. The objects work over any RDMA device of this host, over TCP (the
// device "tcp"), and inside this process (the device "mem0"). The comments call these three the
// fabrics. Programs import this package. Package rdmanet implements net.Conn on top of this
// package. Package cverbs, on which this package is built, contains the verbs themselves.
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
// part of a region to peers for a time; a [CNO], on which a program waits for events of several
// dispatchers; and an [RSP], which listens for one connection.
//
// Names follow uDAPL: dat_ep_post_rdma_read is [EP.PostRDMARead], dat_evd_create is [IA.CreateEVD].
// Each comment ends with the uDAPL call that the function implements, or says that the function is
// an extension. The comments call the program the Consumer, as DAT does.
//
// # Operations
//
// A post hands an operation to the device and returns at once. When the operation completes, an
// [Event] with the cookie of the post and a [DTOStatus] is queued on the endpoint's dispatcher.
// [EVD.Wait], [EVD.WaitContext] and [EVD.Dequeue] return the event. A failed operation breaks its
// connection: the work in flight completes with DTOErrFlushed, and then the connection event says
// why the connection ended.
//
// A request with [CompletionSuppress] makes no event if it succeeds. The Consumer knows that it is
// done when a later request of the endpoint completes. Until then the suppressed request counts as
// in flight. To limit the number of such requests, the library has the device report the completion
// of at least one in MaxRequestDTOs/2 consecutive suppressed requests; that completion makes no
// event. Set MaxRequestDTOs to twice the number of requests that are to be in flight.
//
// # Receives
//
// Each Send consumes one receive of the peer, in the order in which the receives were posted. Post
// receives before Connect or Accept, so that the first message finds a receive. Post each receive
// again as soon as its data has been used. If a Send finds no receive (receiver not ready, RNR),
// the device retries the Send without limit: a receive that was not posted again looks like a peer
// that hangs. With [WithRNRRetry] such a Send fails instead. On iWARP a missing receive ends the
// connection.
//
// # Memory
//
//   - Do not write to the memory of a posted request until its event has been dequeued, because the
//     device may send the memory again; reading it is allowed. The memory of a receive or of an
//     RDMA read must not even be read until its event has been dequeued.
//   - Memory that peers may write changes at any time. Read what a peer has written only after an
//     event has proved that the data is complete: when a receive completes, everything that the
//     peer posted on the same endpoint before the received Send has arrived. Or poll a word with
//     [LMR.LoadUint64]; its comment says what a loaded value proves.
//   - An RDMA read promises no order between its bytes. If the owner changes the memory during the
//     read, the reader needs a checksum to notice the change; examples/kv has one.
//   - Go's race detector does not see what the device does. Never write to bytes that the device
//     may write to at the same time.
//   - Check data from a peer before you use it: lengths in messages, [RMRTriplet]s, private data.
//
// # Connections
//
// Connect and Accept carry private data, at most MaxPrivateDataSize bytes; 56 bytes work on every
// fabric. If the peer's program does not use this library, or if either end has a Linux kernel
// before 5.9, the peer's private data arrives padded with zeroes ([Event.PrivateDataPadded]).
// Private data has room for a triplet: [RMRTriplet.MarshalBinary] returns 20 bytes.
//
// [EP.Disconnect] starts to end a connection. With CloseGraceful the requests in flight complete
// first, with CloseAbrupt they are flushed; in both cases the receives are flushed. After the
// completions each end gets the event DISCONNECTED. The peer need not call Disconnect itself. After
// a graceful disconnect the peer has received all messages that were sent before it. A connection
// that fails ends with BROKEN. [EP.Reset] makes the endpoint usable again.
//
// The completions of all work that was posted before the end precede the connection event. Work
// that another goroutine posts while the connection ends is flushed too, but its completions may
// follow the connection event. An endpoint is quiet when each post that returned nil has its
// completion (a suppressed request has one only if it fails). A program that does not count uses
// markers: after the connection event it stops posting, and then posts one empty receive and one
// empty Send with cookies of their own. Both are flushed at once, behind everything that was posted
// before them in their queues. When the completions of both have been dequeued, no further events
// of the endpoint come, and the memory of its posts is free. The example of [EP.Disconnect] named
// Quiet does so. An endpoint with an SRQ posts no receives of its own: for its receives ask
// [EP.GetStatus].
//
// # Vanished peers
//
// When a process ends, for whatever reason, the kernel disconnects its connections, and repeats a
// disconnect message that is lost. If a host or a link vanishes, or a host restarts, no peer is
// notified. A device then gives up a request after the number of retries that [WithRetry] sets, on
// soft-RoCE after 16 s. An idle connection has no request that could fail. Therefore the keep-alive
// ([WithKeepAlive]) sends a request on an idle connection. The keep-alive also breaks a connection
// whose device does not give up its requests. It does so when nothing has completed for 3
// intervals, plus about a second for each 4 KiB in flight. The device tcp has a keep-alive of its
// own on Linux.
//
// As long as the peer's device keeps the connection, a Send may wait for a receive without limit.
// If the peer's device has lost the connection, only this end's device can notice the loss, by its
// retries; soft-RoCE with 7 retries never notices it. On iWARP the kernel's TCP gives up after
// net.ipv4.tcp_retries2 retries, by default within 15 minutes.
//
// # Freeing
//
// The Consumer frees all objects that it makes. Free the users of an object before the object:
// service points and endpoints, then receive queues, windows, memory, dispatchers, notification
// objects, zones, and last the adapter. Freeing an object in use returns [ErrInvalidState]. Wait
// for DISCONNECTED before [EP.Free] and [IA.Close], because both calls end a connection at once and
// lose the data that has not been sent. [IA.Close] with [CloseAbrupt] destroys all objects of the
// adapter. The garbage collector frees no object.
//
// # Errors
//
// Errors are of type *[Error]. They have the type and subtype of DAT and wrap the fabric's own
// error: errors.Is(err, [ErrInvalidState]) and errors.Is(err, syscall.ENOMEM) both work.
// [Event.Err] says why a connection was not made or is broken. A method of a handle that is nil,
// zero or freed returns [ErrInvalidHandle], or zero values if the method has no error result.
// docs/errors.md explains the errors that newcomers meet.
//
// # Concurrency
//
// All functions and methods are safe for concurrent use, Free and Close too. Only one call at a
// time may be blocked in the Wait of a dispatcher: each waiting goroutine needs its own dispatcher.
// Posts to one endpoint go out in the order in which the calls lock the endpoint.
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
