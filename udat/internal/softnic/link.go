package softnic

// Link is a queue pair's end of the wire. It is not called under locks of the device. When it works
// for a queue pair that is closed it calls QP.Leave, and does not use it any more.
type Link interface {
	// Wake says that something was posted, or that a receive came for which the link was waiting. It
	// does not block.
	Wake()
	// Failed says that the queue pair is now in the error state, or closed. It does not block.
	Failed()
}
