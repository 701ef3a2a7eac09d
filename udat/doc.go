// Package udat implements DAT 1.2 (uDAPL): endpoints that are connected in pairs, event
// dispatchers, registered memory in protection zones, and service points that listen, over any RDMA
// device of this host or, as "mem0", inside this process. Programs import this package; package
// cverbs has the verbs themselves.
//
// # Objects
//
// [Open] returns an adapter, an [IA], which makes all other objects. A [PZ] is a zone in which
// endpoints and memory reach each other. An [LMR] is registered memory, an [RMR] a window onto it
// for peers. An [EVD] queues events; a [CNO] waits for several dispatchers. An [EP] is one end of a
// connection, an [SRQ] a receive queue that endpoints share. A [PSP] or an [RSP] listens and makes
// a [CR] of each connection request. The Consumer, as DAT calls the program, frees what it makes,
// in any order that leaves nothing in use; the garbage collector frees none of it. [IA.Close] with
// [CloseAbrupt] destroys the rest.
//
// Names follow uDAPL: dat_ep_post_rdma_read is [EP.PostRDMARead], dat_evd_create is [IA.CreateEVD].
// The last line of each comment names the call that is implemented, or says that it is an
// extension.
//
// # Operations
//
// A post hands work to the device and returns at once. Its completion is an [Event] on the
// endpoint's dispatcher, with the cookie of the post and a [DTOStatus]; [EVD.Wait],
// [EVD.WaitContext] and [EVD.Dequeue] take it. A failed operation breaks its connection: work in
// flight completes as flushed, then comes the event with the reason why the connection ended.
//
// # Vanished peers
//
// A process that ends, however it ends, disconnects: the kernel sends the message, again if it is
// lost. If a host, a link or the path between vanishes nobody reports that. The keep-alive of
// [WithKeepAlive] then breaks the connection, within 40 s by default: idle or with any requests in
// flight. A shorter loss of the path breaks nothing on devices that retry as long (soft-RoCE;
// others give up earlier, after [WithRetry] attempts). If the host answers but the peer's queue
// pair has gone, requests other than Sends break the connection too, later by a second for each 4
// KiB. A Send may wait for a receive for ever while the peer's host answers. On iWARP the kernel's
// TCP decides, within net.ipv4.tcp_retries2: 15 minutes by default.
//
// # Errors
//
// Errors are of type *[Error], with the type and subtype of DAT and the fabric's own cause:
// errors.Is(err, [ErrInvalidState]) and errors.Is(err, syscall.ENOMEM) both work. Every method of a
// handle that is nil, zero or freed returns [ErrInvalidHandle], or zero values if it returns no
// error.
//
// # Concurrency
//
// All functions and methods are safe for concurrent use, Free and Close too. One call at a time may
// be blocked in the Wait of a dispatcher. Posts to one endpoint go out in the order in which the
// calls lock the endpoint. The memory of a posted operation belongs to the device until its
// completion has been taken; read memory that peers write with [LMR.LoadUint64].
package udat
