//go:build linux && cgo

package udat_test

import (
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/internal/leaktest"
	"github.com/godat/godat/udat"
)

// Without free file descriptors the devices of the host cannot be found: the error names the limit,
// and does not say that there is no such device. The fabric inside the process needs no
// descriptors.
func TestOpenFileLimit(t *testing.T) {
	leaktest.LimitFiles(t, 0)
	for _, name := range append(devices()[1:], "rdma7", "10.98.0.77") {
		_, err := udat.Open(name)
		refused(t, err, udat.InsufficientResources, udat.SubResourceDevice)
		assert.ErrorContains(t, err, "open-file limit of the process (RLIMIT_NOFILE) is 0")
	}
	assert.ErrorContains(t, udat.WhyNoDevices(), "RLIMIT_NOFILE")
	ia, err := udat.Open("mem0")
	assert.NilError(t, err)
	assert.NilError(t, ia.Close(udat.CloseGraceful))
}

// If there is no descriptor for a service point, the error names the limit of descriptors, not
// memory.
func TestListenWithoutFiles(t *testing.T) {
	e := newEnd(t, "tcp:127.0.0.1", setup{})
	leaktest.LimitFiles(t, 0)
	_, _, err := e.ia.CreatePSPAny(e.cr, udat.PSPConsumer)
	refused(t, err, udat.InsufficientResources)
	assert.ErrorContains(t, err, "open-file limit of the process (RLIMIT_NOFILE, ulimit -n) is reached")
	assert.Assert(t, !strings.Contains(err.Error(), "memory"), "%v", err)
}
