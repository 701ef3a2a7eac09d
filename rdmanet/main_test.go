package rdmanet_test

import (
	"os"
	"testing"

	"github.com/godat/godat/internal/leaktest"
)

// TestMain is the peer of a test where the environment has a role.
func TestMain(m *testing.M) {
	if role := os.Getenv(roleEnv); role != "" {
		os.Exit(play(role))
	}
	leaktest.Main(m)
}
