// Package udat has the semantics of DAT 1.2 (uDAPL): endpoints that are connected in pairs, event dispatchers, registered memory in
// protection zones, service points that listen, over any RDMA device of this host or, as "mem0", inside this process. Programs import it;
// whoever wants the verbs themselves imports package cverbs instead.
//
// # Objects
//
// [Open] gives an adapter, an [IA], which makes everything else: a [PZ] is the zone in which endpoints and memory reach each other; an [LMR]
// is registered memory, an [RMR] a window onto it for peers; an [EVD] queues events, a [CNO] waits for many of them; an [EP] is one end of
// a connection, an [SRQ] a receive queue that endpoints share; a [PSP] or an [RSP] listens, and brings a [CR] for each caller. What the Consumer makes
// it frees, in any order that leaves nothing in use: the garbage collector frees none of them. [IA.Close] with [CloseAbrupt] destroys what is left.
//
// Whoever knows uDAPL can guess the names: dat_ep_post_rdma_read is [EP.PostRDMARead], dat_evd_create is [IA.CreateEVD]. The last line of
// each comment says which call it implements, or that it is an extension.
//
// # Operations
//
// A post hands work to the device and returns at once. What becomes of it is an [Event] of the endpoint's dispatcher, which [EVD.Wait],
// [EVD.WaitContext] or [EVD.Dequeue] takes: with the cookie of the post and a [DTOStatus]. A failed operation breaks its connection; what
// was posted comes back flushed, before the event that says why the connection ended.
//
// # Errors
//
// Errors are of type *[Error], with the type and subtype of DAT and the fabric's own cause: errors.Is(err, [ErrInvalidState]) and
// errors.Is(err, syscall.ENOMEM) both work. Every method of a handle that is nil, zero or freed answers [ErrInvalidHandle], or zero values
// where it has no error to answer with.
//
// # Concurrency
//
// All functions and methods may be called by any number of goroutines at once, Free and Close too. One call at a time may be blocked in the Wait
// of a dispatcher, which it owns meanwhile. Posts to one endpoint go out in the order in which the calls take it. The memory of a posted
// operation belongs to the device until its completion has been taken; memory that peers write is read with [LMR.LoadUint64].
package udat
