//go:build linux && cgo

package cverbs

import (
	"net/netip"
	"strings"
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

// A link-local address without a zone is the likely cause of EINVAL.
func TestAddrErrorZone(t *testing.T) {
	for addr, zone := range map[string]bool{"[fe80::1]:7": true, "[fe80::1%1]:7": false, "169.254.0.1:7": false,
		"[fd98::1]:7": false} {
		err := addrError(&Error{Errno: syscall.EINVAL}, netip.MustParseAddrPort(addr))
		assert.ErrorContains(t, err, addr)
		assert.Equal(t, strings.Contains(err.Error(), "needs a zone"), zone, addr)
	}
}

// The error of a queue pair that the device refuses names what the caller asked for beyond a type.
func TestCreateQPError(t *testing.T) {
	for want, init := range map[string]QPInit{
		"(the device has no UD queue pairs)":                   {Type: QPTypeUD},
		"(the device has no UD queue pairs with SendOps SEND)": {Type: QPTypeUD, SendOps: WithSend},
		"no UD queue pairs with these fields of QPInit: CreateFlags 0x2": {Type: QPTypeUD,
			CreateFlags: QPCreateBlockSelfMcastLB},
	} {
		assert.ErrorContains(t, createQPError("v", syscall.EOPNOTSUPP, &init), want)
	}
}
