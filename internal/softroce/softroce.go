// Package softroce has the settings in which soft-RoCE differs from other devices. Packages udat,
// rdmanet and perf/engine import it, so that all connect in the same way. It imports no package of
// this module.
package softroce

// Vendor is the vendor ID of soft-RoCE devices.
const Vendor = 0xffffff

// Name is the vendor's name of soft-RoCE devices.
const Name = "Soft-RoCE"

// MaxRetry is the largest number of transport retries in verbs.
const MaxRetry = 7

// DefaultRetry returns the default number of transport retries for a vendor's device. It is 7, but
// 6 on soft-RoCE: with 7, soft-RoCE retries forever and never reports a peer that has vanished.
func DefaultRetry(vendor uint32) uint8 {
	if vendor == Vendor {
		return MaxRetry - 1
	}
	return MaxRetry
}
