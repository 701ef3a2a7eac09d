// Package softnic is what a NIC is, in software: domains, keys, regions, windows, queues, shared
// receive queues, completions, flush, connections, and faults for tests. It knows no wire.
//
// A wire (packages memfabric and tcpfabric) embeds [Adapter] and [Device], and gives each queue
// pair a [Link]. The link takes the requests posted from [QP.Sends], asks for the memory of each
// (qp_initiator.go), and completes them in order. At the other end it has the queue pair check,
// place and complete what has come (qp_target.go).
//
// Payload is moved out of the race detector's sight, as a NIC moves it.
//
// Locks are taken in this order: Adapter.Mu, QP.In, QP.mu, then those of queues, completion queues
// and keys, which are leaves. No handler is called under any of them.
package softnic
