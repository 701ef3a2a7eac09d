package udat_test

import (
	"os"
	"testing"

	"github.com/godat/godat/internal/leaktest"
)

// roleEnv gives a second process of this test program a role and a device.
const roleEnv = "GODAT_TEST_ROLE"

func TestMain(m *testing.M) {
	if os.Getenv(roleEnv) != "" {
		os.Exit(m.Run())
	}
	leaktest.Main(m)
}
