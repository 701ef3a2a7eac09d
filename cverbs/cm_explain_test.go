//go:build linux && cgo

package cverbs

import (
	"syscall"
	"testing"

	"gotest.tools/v3/assert"
)

// TestConnParamExplain: the error for EINVAL names the private data only if the data is too long;
// otherwise it names other possible causes.
func TestConnParamExplain(t *testing.T) {
	invalid := func() error { return &Error{Verb: "rdma_accept", Errno: syscall.EINVAL} }
	p := ConnParam{PrivateData: make([]byte, 57), ResponderResources: 3, InitiatorDepth: 4}
	assert.ErrorContains(t, p.explain(invalid(), 56, "x, or "), "private data is 57 bytes, the limit is 56")
	err := p.explain(invalid(), 57, "x, or ")
	assert.ErrorContains(t, err, "x, or a depth (3, 4) exceeds")
	known := &Error{Errno: syscall.EINVAL, Advice: "known"}
	for _, other := range []error{nil, ErrClosed, &Error{Errno: syscall.ENOMEM}, known} {
		before := ""
		if other != nil {
			before = other.Error()
		}
		if err = p.explain(other, 0, ""); err != nil {
			assert.Equal(t, err.Error(), before)
		}
	}
}
