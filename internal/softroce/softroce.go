// Package softroce contains the settings in which soft-RoCE differs from other devices. Packages
// udat, rdmanet and internal/perf/engine import this package, so that all of them connect in the
// same way.
package softroce

// Vendor is the vendor ID of soft-RoCE devices.
const Vendor = 0xffffff

// Name is the vendor's name of soft-RoCE devices.
const Name = "Soft-RoCE"

// MaxRetry is the largest number of transport retries in verbs.
const MaxRetry = 7

// DefaultRetry returns the default number of transport retries for a device of the given vendor. It
// is 7. For soft-RoCE it is 6: with 7, soft-RoCE never stops to retry, and never reports that a
// peer has vanished.
func DefaultRetry(vendor uint32) uint8 {
	if vendor == Vendor {
		return MaxRetry - 1
	}
	return MaxRetry
}
