package udat_test

import (
	"fmt"
	"os"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
)

// TestHostMemory: the limit of a registration is all of the host's memory, however much it is.
func TestHostMemory(t *testing.T) {
	text, err := os.ReadFile("/proc/meminfo")
	assert.NilError(t, err)
	var kilobytes uint64
	_, err = fmt.Sscanf(string(text), "MemTotal: %d kB", &kilobytes)
	assert.NilError(t, err)
	assert.Equal(t, udat.HostMemory(), kilobytes<<10)
}
