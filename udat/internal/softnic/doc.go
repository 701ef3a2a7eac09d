// Package softnic implements a NIC in software, without a transport: protection domains, keys,
// regions, windows, queues, shared receive queues, completions, flush, connections, and faults for
// tests.
//
// Packages memfabric and tcpfabric are the transports: they move requests and payload between two
// devices. A transport embeds [Adapter] and [Device], and makes a [Link] for each queue pair. The
// link reads the posted requests from [QP.Sends], pins the memory of each request
// (qp_initiator.go), and completes the requests in order. At the target, the link calls the queue
// pair to check each request, to place its payload and to complete its receive (qp_target.go).
//
// The race detector does not see how payload is moved, just as it does not see a NIC do it.
//
// The locks are acquired in this order: Adapter.Mu, QP.In, QP.mu, then the locks of queues,
// completion queues and keys, which are leaves. No lock is held while a handler runs.
package softnic
