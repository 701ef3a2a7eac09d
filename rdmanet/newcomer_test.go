package rdmanet

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
)

// TestNewcomer: a peer of another version, and an address without a route, are refused with the
// words that docs/errors.md quotes.
func TestNewcomer(t *testing.T) {
	page, err := os.ReadFile("../docs/errors.md")
	assert.NilError(t, err)
	_, err = decodeHello(append([]byte("RDN9"), make([]byte, helloSize)...))
	const quote = "the peer speaks version"
	assert.ErrorContains(t, err, quote+` '9'`)
	assert.Assert(t, strings.Contains(string(page), "| `"+quote+"` |"))

	for _, address := range []string{"192.0.2.1", "2001:db8::1"} {
		if _, err := sourceTo(netip.MustParseAddr(address)); err != nil { // this host has no default route
			assert.ErrorContains(t, err, address+" has no route: ")
			assert.Assert(t, !strings.Contains(err.Error(), "udp"), "%v", err)
		}
	}
}

// TestNoUsableDevice: mem0 is used only if the host has no devices. A device without permission,
// without a file, without an address or with its port down still counts as one.
func TestNoUsableDevice(t *testing.T) {
	mem := udat.ProviderInfo{Name: "mem0", Fabric: "mem", Active: true, Addr: "127.0.0.1"}
	good := udat.ProviderInfo{Name: "rxe0", Fabric: "verbs", Active: true, Addr: "192.0.2.1"}
	down, bare := good, good
	down.Active, bare.Addr = false, ""
	for name, c := range map[string]struct {
		all    []udat.ProviderInfo
		why    error
		usable int
		none   bool
	}{
		"none":       {all: []udat.ProviderInfo{mem}, why: errors.New("this host has no RDMA device"), none: true},
		"one":        {all: []udat.ProviderInfo{good, mem}, usable: 1},
		"down":       {all: []udat.ProviderInfo{down, mem}},
		"no address": {all: []udat.ProviderInfo{bare, mem}},
		"permission": {all: []udat.ProviderInfo{mem}, why: fmt.Errorf("ibv_open_device: %w", syscall.EACCES)},
		"container":  {all: []udat.ProviderInfo{mem}, why: fmt.Errorf("ibv_open_device: %w", syscall.ENOENT)},
	} {
		usable, none := choose(c.all, c.why)
		assert.Check(t, len(usable) == c.usable && none == c.none, "%s: %v, %v", name, usable, none)
	}
}
