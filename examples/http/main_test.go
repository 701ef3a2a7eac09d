package main

import (
	"os"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/examples/internal/exampletest"
)

func TestMain(m *testing.M) { exampletest.Main(m, main) }

func TestUsage(t *testing.T) { exampletest.Usage(t, "usage: http [DEVICE]") }

// TestHTTP runs the example inside this process, and on the device that the environment names.
func TestHTTP(t *testing.T) {
	devices := []string{"mem0"}
	if d := os.Getenv("GODAT_TEST_DEVICE"); d != "" {
		devices = append(devices, d)
	}
	for _, d := range devices {
		t.Run(d, func(t *testing.T) {
			var out strings.Builder
			assert.NilError(t, run(t.Context(), d, &out))
			assert.Equal(t, out.String(), "hello gopher, over "+d+"\n")
		})
	}
}
