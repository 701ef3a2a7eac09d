package rdmanet_test

import (
	"os"
	"testing"

	"github.com/godat/godat/internal/leaktest"
)

// TestMain runs the peer of a test if the environment has a role.
func TestMain(m *testing.M) {
	if role := os.Getenv(roleEnv); role != "" {
		os.Exit(play(role))
	}
	leaktest.Main(m)
}
