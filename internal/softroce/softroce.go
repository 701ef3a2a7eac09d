// Package softroce has what differs on soft-RoCE from other devices. Packages udat and perf/engine
// import it, so that both connect alike; it imports nothing of this module.
package softroce

// Vendor is the vendor ID of soft-RoCE devices.
const Vendor = 0xffffff

// MaxRetry is the most transport retries that verbs have.
const MaxRetry = 7

// DefaultRetry returns the default of the transport retries for a vendor's device: 7, but 6 on
// soft-RoCE, which with 7 would retry for ever and never report a peer that has vanished.
func DefaultRetry(vendor uint32) uint8 {
	if vendor == Vendor {
		return MaxRetry - 1
	}
	return MaxRetry
}
