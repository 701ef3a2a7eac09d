// Package softnic implements a NIC in software, without a transport: protection domains, keys,
// regions, windows, queues, shared receive queues, completions, flush and connections.
// Package nicfault injects faults.
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

import (
	"fmt"

	"github.com/godat/godat/udat/internal/fabric"
)

// Invalid returns an ErrInvalid about an argument of op.
func Invalid(op, format string, args ...any) error {
	return fmt.Errorf("%s: %s: %w", op, fmt.Sprintf(format, args...), fabric.ErrInvalid)
}

// Failed returns err, an error of package fabric, with the name of the operation op before it.
func Failed(op string, err error) error {
	return fmt.Errorf("%s: %w", op, err)
}

// Link is a queue pair's end of the transport. No lock of the device is held when the methods of
// the link are called. When the link finds that its queue pair is closed, it must call QP.Leave,
// and must not use the queue pair any more.
type Link interface {
	// Wake is called when a request was posted, when a receive that the link waits for was posted,
	// and when there is something to flush. It does not block.
	Wake()
	// Posted is called when receives were posted to the queue pair's own queue. It does not block.
	Posted()
	// Failed is called when the queue pair has moved to the error state, or is closed. It does not
	// block.
	Failed()
}
