package main

import (
	"os"
	"testing"

	"gotest.tools/v3/assert"
)

// The stub build exports what the linux && cgo build exports: its file is what the real files generate.
func TestStubIsUpToDate(t *testing.T) {
	want, err := generate("../..")
	assert.NilError(t, err)
	have, err := os.ReadFile("../../stub.go")
	assert.NilError(t, err)
	assert.Equal(t, string(have), string(want), "run go generate in cverbs")
}
