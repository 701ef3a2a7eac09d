// Package softnic implements a NIC in software, all but the wire: protection domains, keys,
// regions, windows, queues, shared receive queues, completions, flush, connections, and faults for
// tests.
//
// Packages memfabric and tcpfabric are wires. A wire embeds [Adapter] and [Device], and gives each
// queue pair a [Link]. The link reads the posted requests from [QP.Sends], pins the memory of each
// (qp_initiator.go), and completes them in order. At the target, the link has the queue pair check
// each request, place its payload and complete its receive (qp_target.go).
//
// The race detector does not see how payload is moved, just as it does not see a NIC do it.
//
// The locks are acquired in this order: Adapter.Mu, QP.In, QP.mu, then the locks of queues,
// completion queues and keys, which are leaves. No lock is held while a handler runs.
package softnic
