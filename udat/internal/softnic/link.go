package softnic

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
