package softroce

import (
	"testing"

	"gotest.tools/v3/assert"
)

// Only soft-RoCE gets fewer retries than MaxRetry.
func TestDefaultRetry(t *testing.T) {
	for vendor, want := range map[uint32]uint8{0: 7, 0x2c9: 7, 0xfffffe: 7, Vendor: 6, 0x1000000: 7} {
		assert.Equal(t, DefaultRetry(vendor), want, "%#x", vendor)
	}
}
