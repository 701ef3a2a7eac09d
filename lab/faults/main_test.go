package main

import (
	"os"
	"slices"
	"testing"

	"github.com/godat/godat/internal/leaktest"
)

// TestMain also runs the datperf server of scenarios, and the other processes that scenarios start.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && slices.Contains([]string{"-datperf", "-stream"}, os.Args[1]) {
		main()
		return
	}
	leaktest.Main(m)
}
