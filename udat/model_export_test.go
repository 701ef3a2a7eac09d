package udat

// Pending returns the number of events on the dispatcher, including the completions on the device.
func Pending(e *EVD) int {
	e.poll()
	return Queued(e)
}
