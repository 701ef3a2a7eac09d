package result

import (
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

// A typing error finds its name; another word finds none, nor does a text as long as a peer likes.
func TestNearest(t *testing.T) {
	for typed, want := range map[string]string{"sned": Send, "wirte": Write, "write-im": WriteImm, "cmpswap": CmpSwap,
		"transacton": Transaction, "": "", "x": "", "bandwidth": "", strings.Repeat("send", 1000): ""} {
		assert.Equal(t, Nearest(typed, AllTests), want, typed)
	}
	assert.Error(t, OneOf("poll", "evnt", Polls),
		`--poll "evnt": must be one of busy, event, adaptive; did you mean event?`)
	assert.NilError(t, OneOf("poll", Event, Polls))
}

// What a flag has as its first value is empty in a Case: the name of it is refused there.
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
