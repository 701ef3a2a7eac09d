//go:build !race

package verbsfabric

import (
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat/internal/fabric"
)

// TestRegionBeyond4GiB: the largest region is not cut to 32 bits. Other devices pin the memory, all
// of it.
func TestRegionBeyond4GiB(t *testing.T) {
	o := openDevice(t)
	if o.dev.device != "loop0" {
		t.Skip("needs a device that pins nothing")
	}
	m, err := o.pd.RegMR(make([]byte, 1<<32+1), fabric.LocalWrite)
	assert.NilError(t, err)
	assert.NilError(t, m.Close())
}
