//go:build linux && cgo && !portablesocket

package udat_test

import (
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/internal/leaktest"
	"github.com/godat/godat/udat"
)

// If there is no descriptor for an accept, the error names the limit of descriptors, not memory.
func TestAcceptWithoutFiles(t *testing.T) {
	t.Setenv(tlsEnv, "") // TLS takes no descriptor more
	a, b := newEnd(t, "tcp:127.0.0.1", setup{}), newEnd(t, "tcp:127.0.0.1", setup{})
	assert.NilError(t, a.ep.Connect(b.ia.Addr(), listen(t, b).Qual(), patience, nil, 0, 0))
	request := expect(t, b.cr, udat.EventConnectionRequest)
	leaktest.LimitFiles(t, 3)
	err := request.CR.Accept(b.ep, nil)
	refused(t, err, udat.InsufficientResources)
	assert.ErrorContains(t, err, "open-file limit of the process (RLIMIT_NOFILE, ulimit -n) is reached")
	assert.Assert(t, !strings.Contains(err.Error(), "memory"), "%v", err)
}
