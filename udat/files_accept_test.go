//go:build linux && cgo && !portablesocket

package udat_test

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
)

// If there is no descriptor for an accept, the error names the limit of descriptors, not memory.
func TestAcceptWithoutFiles(t *testing.T) {
	a, b := newEnd(t, "tcp:127.0.0.1", setup{}), newEnd(t, "tcp:127.0.0.1", setup{})
	assert.NilError(t, a.ep.Connect(b.ia.Addr(), listen(t, b).Qual(), patience, nil, 0, 0))
	request := expect(t, b.cr, udat.EventConnectionRequest)
	var before unix.Rlimit
	assert.NilError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &before))
	defer unix.Setrlimit(unix.RLIMIT_NOFILE, &before)
	assert.NilError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 3, Max: before.Max}))
	err := request.CR.Accept(b.ep, nil)
	refused(t, err, udat.InsufficientResources)
	assert.ErrorContains(t, err, "open-file limit of the process (RLIMIT_NOFILE, ulimit -n) is reached")
	assert.Assert(t, !strings.Contains(err.Error(), "memory"), "%v", err)
}
