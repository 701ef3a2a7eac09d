package main

import (
	"os"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// stub.go equals what genstub generates now, so it exports what the linux && cgo build exports.
func TestStubIsUpToDate(t *testing.T) {
	want, err := generate("../..")
	assert.NilError(t, err)
	have, err := os.ReadFile("../../stub.go")
	assert.NilError(t, err)
	assert.Equal(t, string(have), string(want), "run go generate in cverbs")
}
