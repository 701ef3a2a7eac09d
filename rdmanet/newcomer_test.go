package rdmanet

import (
	"os"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

// TestNewcomer: a peer of another version is refused with the words that docs/errors.md quotes.
func TestNewcomer(t *testing.T) {
	page, err := os.ReadFile("../docs/errors.md")
	assert.NilError(t, err)
	_, err = decodeHello(append([]byte("RDN9"), make([]byte, helloSize)...))
	const quote = "the peer speaks version"
	assert.ErrorContains(t, err, quote+` '9'`)
	assert.Assert(t, strings.Contains(string(page), "| `"+quote+"` |"))
}
