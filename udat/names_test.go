package udat_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
)

// TestNames compares the texts of all named numbers with testdata/names.txt, which has a line for
// each.
func TestNames(t *testing.T) {
	withoutDevice(t)
	var got strings.Builder
	list := func(kind string, many uint32, name func(n uint32) fmt.Stringer) {
		for n := range many {
			if text := name(n).String(); !strings.HasSuffix(text, fmt.Sprint(" ", n)) && !strings.HasPrefix(text, "event 0x") {
				fmt.Fprintf(&got, "%s 0x%x %s\n", kind, n, text)
			}
		}
	}
	list("event", 1<<18, func(n uint32) fmt.Stringer { return udat.EventNumber(n) })
	list("handle", 100, func(n uint32) fmt.Stringer { return udat.HandleType(n) })
	list("status", 100, func(n uint32) fmt.Stringer { return udat.DTOStatus(n) })
	list("operation", 100, func(n uint32) fmt.Stringer { return udat.DTOOperation(n) })
	list("state", 100, func(n uint32) fmt.Stringer { return udat.EPState(n) })
	list("return", 0x15, func(n uint32) fmt.Stringer { return udat.ReturnType(n << 16) })
	list("subtype", 200, func(n uint32) fmt.Stringer { return udat.Subtype(n) })
	want, err := os.ReadFile("testdata/names.txt")
	assert.NilError(t, err)
	assert.Equal(t, got.String(), string(want))
	assert.Equal(t, udat.HandleType(200).String(), "handle type 200")
	assert.Equal(t, udat.DTOStatus(200).String(), "status 200")
	assert.Equal(t, udat.DTOOperation(200).String(), "operation 200")
	assert.Equal(t, udat.EPState(200).String(), "endpoint state 200")
	assert.Equal(t, udat.Subtype(200).String(), "subtype 200")
	assert.Equal(t, udat.EventNumber(200).String(), "event 0xc8")
}
