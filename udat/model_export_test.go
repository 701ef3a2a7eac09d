package udat

// Pending gives tests the number of events on the dispatcher, together with what the device has for
// it.
func Pending(e *EVD) int {
	e.poll()
	return Queued(e)
}
