package rdmanet

import (
	"net/netip"
	"os"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
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
