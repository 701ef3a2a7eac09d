package main

import (
	"os"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

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
			assert.Equal(t, out.String(), "hello gopher, over "+d)
		})
	}
}
