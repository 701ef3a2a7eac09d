package engine

import (
	"context"
	"testing"

	"gotest.tools/v3/assert"
)

// Many objects of every kind can be created, and all of them can be freed.
func TestLimits(t *testing.T) {
	for _, device := range devices() {
		for _, kind := range LimitKinds {
			r, err := Limits(context.Background(), device, kind, 50)
			assert.NilError(t, err, "%s %s", device, kind)
			assert.Assert(t, r.Count > 0, "%s %s: %v", device, kind, r.Refusal)
		}
	}
	_, err := Limits(context.Background(), "mem0", "XYZ", 1)
	assert.ErrorContains(t, err, `--kind "XYZ": must be one of`)
}
