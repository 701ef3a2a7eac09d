package result

import (
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

// A mistyped name finds the right name. Another word finds none, and neither does a text of any
// length from a peer.
func TestNearest(t *testing.T) {
	for typed, want := range map[string]string{"sned": Send, "wirte": Write, "write-im": WriteImm, "cmpswap": CmpSwap,
		"transacton": Transaction, "": "", "x": "", "bandwidth": "", strings.Repeat("send", 1000): ""} {
		assert.Equal(t, Nearest(typed, AllTests), want, typed)
	}
	assert.Error(t, OneOf("poll", "evnt", Polls),
		`--poll "evnt": must be one of busy, event, adaptive; did you mean event?`)
	assert.NilError(t, OneOf("poll", Event, Polls))
}

// In a Case, the first value of --connect or --transport is an empty text. Its name, cm or rc,
// is refused.
func TestNamesOfDefaults(t *testing.T) {
	c := Default()
	c.Layer = Cverbs
	c.Complete()
	assert.NilError(t, c.Validate())
	connect, transport := c, c
	connect.Connect, transport.Transport = CM, RC
	assert.ErrorContains(t, connect.Validate(), `--connect "cm"`)
	assert.ErrorContains(t, transport.Validate(), `--transport "rc"`)
}
