//go:build !race

package verbsfabric

import (
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat/internal/fabric"
)

// TestRegionBeyond4GiB: the size of a region is not truncated to 32 bits. Devices other than loop0
// would pin the whole memory.
func TestRegionBeyond4GiB(t *testing.T) {
	o := openDevice(t)
	if o.dev.device != "loop0" {
		t.Skip("needs a device that pins nothing")
	}
	m, err := o.pd.RegMR(make([]byte, 1<<32+1), fabric.LocalWrite)
	assert.NilError(t, err)
	assert.NilError(t, m.Close())
}
